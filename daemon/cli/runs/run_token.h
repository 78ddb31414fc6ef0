// SPDX-License-Identifier: Apache-2.0
// The command line takes the token of a run from options, a file or the environment; a file can be
// made for it.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "daemon/base/files.h"
#include "daemon/cli/command_context.h"

namespace meshloom::cli {

/// Adds --token-file and --token; what they give, else context.default_run_token, is put into
/// context.run_token. A command that is given none is a usage error, unless the flag `unless` is
/// given.
void add_needed_token(CLI::App& command, CommandContext& context,
                      const CLI::Option* unless = nullptr);
/// Adds the two options alone, for a command that only looks: with the token it renews the run's
/// lease.
void add_optional_token(CLI::App& command, CommandContext& context);

/// Returns the token that a file holds, without blanks and ends of lines around it. Throws
/// CLI::ValidationError.
std::string read_token_file(const std::filesystem::path& path);

/// NewTokenFile makes a file that its owner alone may read, before there is a token. The file goes
/// again unless one is written.
class NewTokenFile {
 public:
  /// Throws CliError (kUsage) if the file is there or cannot be made.
  explicit NewTokenFile(std::filesystem::path path);
  ~NewTokenFile();
  NewTokenFile(const NewTokenFile&) = delete;
  NewTokenFile& operator=(const NewTokenFile&) = delete;

  /// Writes the token, which is durable when this returns. Throws IoError.
  void write(const std::string& token);

 private:
  const std::filesystem::path path_;
  base::UniqueFd file_;
  bool written_ = false;
};

}  // namespace meshloom::cli
