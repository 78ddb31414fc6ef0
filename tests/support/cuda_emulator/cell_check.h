// SPDX-License-Identifier: Apache-2.0
// The check of one byte: whether it holds something, and who else touched it with nothing between.
#pragma once

#include "tests/support/cuda_emulator/access_check.h"
#include "tests/support/cuda_emulator/shadow.h"

namespace meshloom::emulator {

enum class Conflict : std::uint8_t {
  kNone,
  kUndefined,
  kWrittenInBlock,
  kReadInBlock,
  kWrittenByBlock,
  kReadByBlock,
  kWrittenByWork,
  kReadByWork,
};

/// Who touches a byte. Work without threads is a block of one thread.
struct Toucher {
  Epoch epoch;
  Epoch block_start;
  Epoch launch_start;
  std::uint16_t thread = 0;
  std::uint16_t sync = 0;
  bool shared = false;  ///< the byte belongs to the block
  Access access = Access::kRead;
};

/// Returns the first conflict, or notes the access in the cell. `birth` is when the byte became one
/// that may be touched.
Conflict touch(Cell& cell, const Toucher& toucher, WorkHistory& history, Position birth);

}  // namespace meshloom::emulator
