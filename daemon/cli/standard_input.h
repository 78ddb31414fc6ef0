// SPDX-License-Identifier: Apache-2.0
// Standard input takes the place of a file.
#pragma once

#include <cstddef>
#include <string>

namespace meshloom::cli {

/// Returns all of standard input, but no more than `most` bytes: a caller with a limit asks for one
/// byte beyond it.
std::string read_standard_input(std::size_t most);

}  // namespace meshloom::cli
