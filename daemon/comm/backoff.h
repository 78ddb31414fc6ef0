// SPDX-License-Identifier: Apache-2.0
// Backoff: how a polling wait gives the core away, a little at first, then more.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace meshloom::comm {

/// Call `pause` after every poll that moved nothing, `reset` after one that did. About 20 CPU
/// pauses, then sched_yield for a millisecond, then sleeps of 50 us, later 500 us: short waits cost
/// little, and a long one leaves the core to others.
class Backoff {
 public:
  void reset() { rounds_ = 0; }

  void pause() {
    ++rounds_;
    if (rounds_ <= kPauses) {
      cpu_pause();
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (rounds_ == kPauses + 1) yield_since_ = now;
    const auto waited = now - yield_since_;
    if (waited < std::chrono::milliseconds(1)) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(
          std::chrono::microseconds(waited < std::chrono::milliseconds(50) ? 50 : 500));
    }
  }

 private:
  static void cpu_pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  static constexpr int kPauses = 20;
  int rounds_ = 0;
  std::chrono::steady_clock::time_point yield_since_;
};

}  // namespace meshloom::comm
