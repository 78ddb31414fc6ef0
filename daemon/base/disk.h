// SPDX-License-Identifier: Apache-2.0
// Disk: where files that somebody named are looked for and read: this host's, or another one's.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/input_file.h"

namespace meshloom::base {

enum class FileKind { kNone, kFile, kFolder, kOther };

/// Links are followed. Used by one thread at a time.
class Disk {
 public:
  virtual ~Disk() = default;

  /// Tells whether it is another host's, whose daemon then checks every path itself: who asks may
  /// only see what it was told to read.
  virtual bool is_remote() const = 0;
  /// Returns what lies at the path; kNone also for what cannot be looked at.
  virtual FileKind kind(const std::filesystem::path& path) = 0;
  bool has(const std::filesystem::path& path) { return kind(path) != FileKind::kNone; }
  /// Opens a file as InputFile's constructor does, and throws what that throws.
  virtual InputFile open(const std::filesystem::path& path) = 0;
  /// Returns the names in a folder, in no order; none if it is not there. Throws as
  /// throw_input_error.
  virtual std::vector<std::string> list(const std::filesystem::path& folder) = 0;
  /// Returns the regular files below a folder in order of their paths. What begins with a dot is
  /// left out, and links to folders are. Throws as throw_input_error.
  virtual std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder) = 0;
  /// Returns the stamp of what lies at the path on this disk, as file_stamp does.
  virtual std::optional<std::string> stamp(const std::filesystem::path& path) = 0;
};

/// This host's. Stateless, so any thread may use it.
Disk& own_disk();

}  // namespace meshloom::base
