// SPDX-License-Identifier: Apache-2.0
// What is wrong with the value of an option: the value that was seen, and what is expected.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace meshloom::command_line {

/// Returns the options that are understood behind a command, those of the commands above it and of
/// groups included.
std::vector<const CLI::Option*> options_of(const CLI::App& command);

/// Says what is wrong with a line that was refused for a value: "--seed: is abc, expected a whole
/// number". Empty where the refusal is about something else, or says so itself.
std::string value_problem(const CLI::App& command, const CLI::ParseError& error);

}  // namespace meshloom::command_line
