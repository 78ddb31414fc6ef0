// SPDX-License-Identifier: Apache-2.0
// SoundLines: files of JSON lines that were read to their end a moment ago.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <string>

#include "daemon/text/document.h"
#include "daemon/text/document_files.h"

namespace meshloom::train {

/// A sweep submits job after job on the same files, each of which is checked line by line. Any
/// thread may call it.
class SoundLines {
 public:
  static constexpr std::size_t kKept = 256;

  /// Returns the key of a file as it lies on the disk at this moment, and of what decides whether a
  /// line of it is taken.
  static std::string key(const text::DocumentFile& file, const text::DocumentReading& reading);
  /// Returns the key of a file of conversations, which are taken as `setup` says
  /// (ChatSetup::identity).
  static std::string key(const text::DocumentFile& file, const std::string& setup);

  bool has(const std::string& key) const;
  void add(const std::string& key);

 private:
  mutable std::mutex mutex_;
  std::deque<std::string> kept_;
};

}  // namespace meshloom::train
