// SPDX-License-Identifier: Apache-2.0
// AuditLog: who called what, as JSON lines in a file whose size is bounded.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "daemon/base/appended_file.h"

namespace meshloom::control {

/// The file takes half of the bytes that are allowed; then it takes the place of the one before
/// (FILE.1) and a new one begins. What repeats is thinned: of calls that change nothing, or are
/// refused, of one caller, method and code the first kMostAlike of kWindow are written, and the
/// next line says how many were left out. Secrets are no part of a line. Any thread may call any
/// method.
class AuditLog {
 public:
  struct Call {
    std::string who;  ///< name of the identity; empty: nobody
    std::string role;
    std::string from;  ///< its address
    std::string method;
    std::string object;
    std::string code;    ///< "OK", "NOT_FOUND"
    std::string reason;  ///< of an error
    std::int64_t bytes = 0;
    std::chrono::microseconds duration{0};
    bool always = false;  ///< it has changed something
  };
  static constexpr int kMostAlike = 20;
  static constexpr std::chrono::seconds kWindow{10};
  static constexpr std::int64_t kDefaultBytes = std::int64_t{64} << 20;
  static constexpr std::int64_t kLeastBytes = std::int64_t{1} << 20;

  /// The folder is made. What cannot be written is told once in the daemon's log.
  AuditLog(const std::filesystem::path& file, std::int64_t most_bytes);
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  void write(const Call& call);

  struct Filter {
    std::string object, who, since;  ///< empty: any; `since`: RFC 3339
  };
  /// Lines that pass, oldest first, until `take` says false.
  void read(const Filter& filter, const std::function<bool(const std::string& line)>& take) const;

 private:
  struct Alike {
    std::chrono::steady_clock::time_point since;
    int written = 0;
    std::int64_t left_out = 0;
  };
  /// Whether the call is to be written; then how many like it were left out before.
  bool admit(const Call& call, std::int64_t* left_out);
  void append(const std::string& line);
  void open();

  const std::filesystem::path file_;
  const std::int64_t most_bytes_;
  mutable std::mutex mutex_;
  std::optional<base::AppendedFile> file_now_;  ///< none: it could not be opened
  std::int64_t size_ = 0;
  bool failed_ = false;  ///< that was told
  std::map<std::string, Alike> alike_;
};

}  // namespace meshloom::control
