// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/key_value.h"

#include <fmt/format.h>

#include "daemon/cli/exit_code.h"

namespace meshloom::cli {

std::pair<std::string, std::string> split_key_value(const std::string& text, const char* form) {
  const auto equals = text.find('=');
  if (equals == 0 || equals == std::string::npos)
    throw CliError(kUsage, fmt::format("\"{}\" is not of the form {}", text, form));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

}  // namespace meshloom::cli
