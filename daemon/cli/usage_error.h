// SPDX-License-Identifier: Apache-2.0
// What is wrong with a command line, in one sentence that says what to write instead.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace meshloom::cli {

/// Of a line that `app` has refused with `error`: the command it is about, what was seen, what was
/// meant perhaps or what there is, and where help is. Without the program's name.
std::string usage_text(const CLI::App& app, const CLI::ParseError& error);

}  // namespace meshloom::cli
