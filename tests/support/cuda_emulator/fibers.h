// SPDX-License-Identifier: Apache-2.0
// Fibers: the stacks on which the threads of a block run, one after another on one thread of the
// host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/support/cuda_emulator/device/emulated_thread.h"

/// Saves what a call must keep and the stack's address in `save`, and goes on where `load` was
/// saved.
extern "C" void meshloom_emulator_switch(void** save, void* load);

namespace meshloom::emulator {

inline constexpr unsigned kMostThreads = 1024;

/// One set for the process, made once and never freed.
class FiberStacks {
 public:
  FiberStacks();

  bool contains(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - begin_ < kMostThreads * kStackBytes;
  }
  /// Whose stack an address lies in that they contain.
  unsigned thread_of(const void* address) const {
    return static_cast<unsigned>((reinterpret_cast<std::uintptr_t>(address) - begin_) /
                                 kStackBytes);
  }
  ThreadContext& context(unsigned thread) const {
    return *reinterpret_cast<ThreadContext*>(begin_ + thread * kStackBytes);
  }
  /// Empties a thread's stack; a switch to what it returns calls `entry`, which never returns.
  void* prepare(unsigned thread, void (*entry)()) const;

 private:
  std::uintptr_t begin_ = 0;
};

}  // namespace meshloom::emulator
