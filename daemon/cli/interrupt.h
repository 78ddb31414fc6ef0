// SPDX-License-Identifier: Apache-2.0
// Ctrl-C ends the reading of a stream, not the process.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>

namespace meshloom::cli {

/// While it lives, SIGINT and SIGTERM call `on_interrupt` on a thread of its own instead of ending
/// the process. There is one at a time.
class InterruptScope {
 public:
  explicit InterruptScope(std::function<void()> on_interrupt);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  bool interrupted() const { return interrupted_; }

 private:
  std::function<void()> on_interrupt_;
  std::atomic<bool> interrupted_{false};
  struct sigaction before_int_ {};
  struct sigaction before_term_ {};
  int pipe_[2] = {-1, -1};
  std::thread thread_;
};

}  // namespace meshloom::cli
