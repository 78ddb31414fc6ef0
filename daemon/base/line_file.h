// SPDX-License-Identifier: Apache-2.0
// LineFile: a text file that grows by whole lines, also on a disk that is full now and then.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "daemon/base/appended_file.h"

namespace meshloom::base {

/// The object appends lines that are in the file whole or not at all; nobody else writes to it
/// meanwhile. Used by one thread.
class LineFile {
 public:
  /// Makes the file where it is missing. An unfinished last line, as a process leaves that dies
  /// while it writes, is cut off. One that cannot be opened takes nothing: see error().
  explicit LineFile(std::filesystem::path path);

  /// `lines` end with a line feed, the last one too. False if the disk did not take all of them:
  /// the file is as it was before.
  bool append(std::string_view lines);

  const std::filesystem::path& path() const { return path_; }
  /// Returns the errno of the last refusal; 0: none so far.
  int error() const { return error_; }
  /// Returns how many lines were refused since the last that was taken.
  std::int64_t lost() const { return lost_; }

 private:
  bool open();

  std::filesystem::path path_;
  std::optional<AppendedFile> file_;  ///< up to the last whole line
  std::int64_t lost_ = 0;
  int error_ = 0;
};

}  // namespace meshloom::base
