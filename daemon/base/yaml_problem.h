// SPDX-License-Identifier: Apache-2.0
// What is wrong with a text that is no YAML, in words for who has written it.
#pragma once

#include <string>

namespace YAML {
class Exception;
}

namespace meshloom::base {

/// Returns what to change, and the line as far as it is short: `a [ is not closed by ]: "betas:
/// [0.9, 0.95"`.
std::string yaml_problem(const YAML::Exception& error, const std::string& text);

}  // namespace meshloom::base
