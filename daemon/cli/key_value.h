// SPDX-License-Identifier: Apache-2.0
// Options and arguments take "KEY=VALUE", which is split here.
#pragma once

#include <string>
#include <utility>

namespace meshloom::cli {

/// Returns key and value. The value may be empty and may hold further "=". Throws CliError (kUsage)
/// where there is no "=" or nothing before it; `form` is what the text should have been.
std::pair<std::string, std::string> split_key_value(const std::string& text,
                                                    const char* form = "KEY=VALUE");

}  // namespace meshloom::cli
