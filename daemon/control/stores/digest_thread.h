// SPDX-License-Identifier: Apache-2.0
// DigestThread: the SHA-256 of a file while it grows.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/base/sha256.h"

namespace meshloom::control {

/// What a file holds up to a position, as a digest that can go on.
struct FileDigest {
  base::Sha256 sha256;
  std::int64_t position = 0;
};

/// Hashes on a thread of its own that gives way to those that train. What the digest lacks at the
/// beginning is read from the file. Used by one thread.
class DigestThread {
 public:
  /// The file's first `bytes` bytes come first; `known` has some of them behind it.
  DigestThread(std::filesystem::path file, FileDigest known, std::int64_t bytes);
  /// What is queued is not waited for.
  ~DigestThread();
  DigestThread(const DigestThread&) = delete;
  DigestThread& operator=(const DigestThread&) = delete;

  /// The next bytes of the file. Waits while much is queued. Throws what reading the file threw.
  void append(std::string bytes);
  /// True once there is nothing left but the file's beginning, which may take long.
  bool drain_new();
  /// Of all that came. Throws what reading the file threw.
  FileDigest finish();

 private:
  void run();
  void catch_up();
  void check_error();

  const std::filesystem::path file_;
  const std::int64_t begin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> queue_;
  FileDigest digest_;  ///< the thread's while it is busy
  bool caught_up_ = false;
  bool busy_ = true;
  bool ending_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace meshloom::control
