// SPDX-License-Identifier: Apache-2.0
// What is wrong with a command line, in one sentence that says what to write instead.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace meshloom::command_line {

/// UnknownOption is an option that a command does not have, with what else stands there.
struct UnknownOption {
  std::string path;   ///< the command's, without the program's name: "job edit"
  std::string name;   ///< with its dashes
  std::string value;  ///< what was meant as its value, perhaps; may be empty
};

/// Tells what a program knows of such an option beside its names, as half a sentence; empty if
/// nothing.
using OptionHint = std::function<std::string(const UnknownOption&)>;

/// Tells what a program knows of a word that is no command behind `path`, as half a sentence; empty
/// if nothing.
using CommandHint = std::function<std::string(const std::string& path, const std::string& word)>;

/// Explains a line that `app` has refused with `error`: the command it is about, what was seen,
/// what was meant perhaps or what there is, and where help is. Without the program's name.
std::string usage_text(const CLI::App& app, const CLI::ParseError& error,
                       const OptionHint& hint = {}, const CommandHint& command_hint = {});

}  // namespace meshloom::command_line
