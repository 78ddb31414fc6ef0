// SPDX-License-Identifier: Apache-2.0
// The warp's products of matrices and their loads, and a thread's copies into shared memory that
// land at its wait, no earlier.
#pragma once

#include <cstdint>

#include "tests/support/cuda_emulator/device/emulated_warp.h"

namespace meshloom::emulator {

/// What a lane brings to a product, on its stack.
struct LaneProduct {
  const unsigned* a;
  unsigned b[2];
  float* c;
};

/// What stands at a row's address in shared memory.
struct alignas(16) MatrixRow {
  std::uint32_t words[4];
};

/// What a lane brings to a load of matrices, on its stack: a row that it has read, and where its
/// words go.
struct LaneMatrices {
  MatrixRow row;
  unsigned* words;
};

inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                         Site site = Site::current()) {
  const LaneProduct lane{a, {b0, b1}, c};
  meet_in_warp(WarpCall::kMultiply, 0xffffffffu, reinterpret_cast<std::uint64_t>(&lane), 0, 32,
               site);
}

inline void load_matrices(unsigned (&words)[4], const void* row, bool transposed,
                          Site site = Site::current()) {
  const LaneMatrices lane{*static_cast<const MatrixRow*>(row), words};
  meet_in_warp(transposed ? WarpCall::kLoadTransposed : WarpCall::kLoadMatrices, 0xffffffffu,
               reinterpret_cast<std::uint64_t>(&lane), 0, 32, site);
}

/// A copy that has read what it copies and waits to be written.
struct AsyncCopy {
  void* to = nullptr;
  MatrixRow bytes{};
};

void queue_copy(const AsyncCopy& copy);
void end_copy_group();
/// Takes the oldest copy of the thread that is not in its last `groups` groups. False: there is
/// none.
bool take_landed_copy(int groups, AsyncCopy& copy);

inline void begin_copy(void* to, const void* from, bool wanted) {
  AsyncCopy copy{to, {}};
  if (wanted) copy.bytes = *static_cast<const MatrixRow*>(from);
  queue_copy(copy);
}

inline void wait_for_copies(int groups) {
  AsyncCopy copy;
  while (take_landed_copy(groups, copy)) *static_cast<MatrixRow*>(copy.to) = copy.bytes;
}

}  // namespace meshloom::emulator
