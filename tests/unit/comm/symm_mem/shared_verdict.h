// SPDX-License-Identifier: Apache-2.0
// What tests that strike a rank share: memory in which a rank tells what it heard, and a look for
// what it left behind.
#pragma once

#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "daemon/comm/work.h"
#include "kernels/base/error.h"

namespace meshloom::comm::testing {

inline std::set<std::string> files_in_shared_memory() {
  std::set<std::string> files;
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm", none))
    files.insert(file.path());
  return files;
}

/// What a rank tells the test in memory that outlives it.
struct Verdict {
  char text[2048] = {};
  char reason[64] = {};
  std::int64_t struck_at = 0;  ///< ns of the steady clock
  std::int64_t heard_at = 0;
};

class SharedVerdict {
 public:
  SharedVerdict()
      : verdict_(new (mmap(nullptr, sizeof(Verdict), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Verdict) {}
  ~SharedVerdict() { munmap(verdict_, sizeof(Verdict)); }
  SharedVerdict(const SharedVerdict&) = delete;
  SharedVerdict& operator=(const SharedVerdict&) = delete;
  Verdict* operator->() { return verdict_; }
  std::chrono::nanoseconds delay() const {
    return std::chrono::nanoseconds(verdict_->heard_at - verdict_->struck_at);
  }
  void hear(const Error& error) {
    verdict_->heard_at = now();
    std::strncpy(verdict_->text, error.what(), sizeof(verdict_->text) - 1);
    std::strncpy(verdict_->reason, error.reason().c_str(), sizeof(verdict_->reason) - 1);
  }
  static std::int64_t now() { return Clock::now().time_since_epoch().count(); }

 private:
  Verdict* verdict_;
};

}  // namespace meshloom::comm::testing
