// SPDX-License-Identifier: Apache-2.0
// Standard input in the place of a file.
#pragma once

#include <cstddef>
#include <string>

namespace meshloom::cli {

/// All of it, but no more than `most` bytes: a caller with a limit asks for one byte beyond it.
std::string read_standard_input(std::size_t most);

}  // namespace meshloom::cli
