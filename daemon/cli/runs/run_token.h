// SPDX-License-Identifier: Apache-2.0
// The token of a run on the command line: where it comes from, and a file for it.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "daemon/base/files.h"
#include "daemon/cli/command_context.h"

namespace meshloom::cli {

/// --token-file and --token, else context.default_run_token, put into context.run_token. A command
/// that is given none is a usage error, unless the flag `unless` is given.
void add_needed_token(CLI::App& command, CommandContext& context,
                      const CLI::Option* unless = nullptr);
/// The two options alone, for a command that only looks: with the token it renews the run's lease.
void add_optional_token(CLI::App& command, CommandContext& context);

/// The token that a file holds, without blanks and ends of lines around it. Throws
/// CLI::ValidationError.
std::string read_token_file(const std::filesystem::path& path);

/// A new file that its owner alone may read, made before there is a token. Goes again unless one is
/// written.
class NewTokenFile {
 public:
  /// Throws CliError (kUsage) if the file is there or cannot be made.
  explicit NewTokenFile(std::filesystem::path path);
  ~NewTokenFile();
  NewTokenFile(const NewTokenFile&) = delete;
  NewTokenFile& operator=(const NewTokenFile&) = delete;

  /// Durable when it returns. Throws IoError.
  void write(const std::string& token);

 private:
  const std::filesystem::path path_;
  base::UniqueFd file_;
  bool written_ = false;
};

}  // namespace meshloom::cli
