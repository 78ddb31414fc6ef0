// SPDX-License-Identifier: Apache-2.0
// RunningBlock: the block of threads that the emulator runs, of which there is one at a time in the
// process.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/cuda_emulator/device/emulated_launch.h"
#include "tests/support/cuda_emulator/device/emulated_tensor_core.h"
#include "tests/support/cuda_emulator/device/emulated_warp.h"
#include "tests/support/cuda_emulator/device_memory.h"
#include "tests/support/cuda_emulator/fault.h"
#include "tests/support/cuda_emulator/fibers.h"
#include "tests/support/cuda_emulator/shared_memory.h"
#include "tests/support/cuda_emulator/traffic.h"
#include "tests/support/cuda_emulator/work_history.h"

namespace meshloom::emulator {

inline constexpr unsigned kWarpLanes = 32;

/// A thread that waits says where and for what.
struct Thread {
  enum class Status : std::uint8_t { kReady, kAtBarrier, kInWarp, kDone };

  void* stack = nullptr;
  Status status = Status::kReady;
  std::uint16_t sync = 0;  ///< __syncwarp calls in this epoch
  Site site;
  WarpCall call = WarpCall::kSync;
  unsigned mask = 0;
  std::uint64_t value = 0;
  std::uint64_t result = 0;
  int argument = 0;
  int width = 0;
  // In a warp call:
  unsigned leader = 0;   ///< the lane that came to it first
  unsigned arrived = 0;  ///< of the leader: lanes that have come
};

/// Lanes of a warp, a bit each. With them a lane that comes to a call need not look at all others.
struct Warp {
  unsigned in_call = 0;  ///< wait in a warp call
  unsigned gone = 0;     ///< have ended, or were never there
};

/// Copies into shared memory that a thread has begun. Counts begin with the block.
struct ThreadCopies {
  std::vector<AsyncCopy> begun;
  std::size_t landed = 0;               ///< how many of them
  std::vector<std::size_t> group_ends;  ///< how many had been begun when a group was ended

  void clear() {
    begun.clear();
    landed = 0;
    group_ends.clear();
  }
};

struct RunningBlock {
  FiberStacks stacks;
  SharedMemory shared;

  // What belongs to the launch:
  const Launch* launch = nullptr;
  DeviceMemory* memory = nullptr;
  WorkHistory* history = nullptr;
  Epoch launch_start = 0;
  Traffic* traffic = nullptr;  ///< null where nothing is recorded

  // What belongs to the block:
  Epoch block_start = 0;
  std::array<Thread, kMostThreads> threads;
  std::array<Warp, kMostThreads / kWarpLanes> warps;
  std::array<ThreadCopies, kMostThreads> copies;
  unsigned count = 0;
  unsigned current = 0;
  unsigned step = 1;  ///< to the thread that goes on: 1, or one back
  unsigned at_barrier = 0;
  unsigned done = 0;
  void* host = nullptr;  ///< the stack of who runs the block
  Fault fault;
  const void* fault_return = nullptr;  ///< the place of an access that is at fault
};

/// Null until the first launch.
extern constinit RunningBlock* g_running_block;
inline RunningBlock& running_block() { return *g_running_block; }

/// Runs all blocks of a launch, in an order that comes from `random`. Throws FaultError.
void run_grid(const Launch& launch, DeviceMemory& memory, WorkHistory& history,
              std::mt19937_64& random);

/// Lets other threads run. Returns when this one is ready and has its turn.
void yield_thread();
/// "thread (1, 0, 0) of block (3, 0, 0)"
std::string thread_text(unsigned thread);
/// Ends the block with a fault; the threads' stacks are left as they are, without destructors. So
/// `fault` is to be built by a function that has returned.
[[noreturn]] void abandon_block();

}  // namespace meshloom::emulator
