// SPDX-License-Identifier: Apache-2.0
// EventFile: one file of a folder that TensorBoard shows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/appended_file.h"
#include "daemon/events/event_file.pb.h"

namespace meshloom::events {

/// Whether a folder has event files already.
bool has_event_files(const std::filesystem::path& folder);

/// A new file, events.out.tfevents.TIME.SUFFIX, whose time is behind those of all files in the
/// folder, since TensorBoard reads them in the order of their names. Records are whole or not
/// there: a full disk costs events and nothing else, and the file is made once the disk takes it.
/// Used by one thread.
class EventFile {
 public:
  /// `first`: what it begins with, behind the version of the format.
  EventFile(std::filesystem::path folder, std::string suffix, std::vector<Event> first);

  /// All of them or none. False, with errno in error(), if the disk did not take them.
  bool append(const std::vector<Event>& events);

  /// The file, or the folder while there is none.
  const std::filesystem::path& path() const { return path_; }
  int error() const { return error_; }

 private:
  bool open();

  const std::filesystem::path folder_;
  const std::string suffix_;
  const std::vector<Event> first_;
  std::filesystem::path path_;
  std::optional<base::AppendedFile> file_;
  int error_ = 0;
};

}  // namespace meshloom::events
