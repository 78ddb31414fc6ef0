// SPDX-License-Identifier: Apache-2.0
// NewTokenFile: a file for a token that there is not yet.
#pragma once

#include <filesystem>
#include <string>

#include "daemon/base/unique_fd.h"

namespace meshloom::cli {

/// NewTokenFile makes a file that its owner alone may read, before there is a token. The file goes
/// again unless one is written.
class NewTokenFile {
 public:
  /// `option`: of the line, by which the path was given. Throws CliError (kUsage) if the file is
  /// there or cannot be made.
  explicit NewTokenFile(std::filesystem::path path, const std::string& option = "--token-file");
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
