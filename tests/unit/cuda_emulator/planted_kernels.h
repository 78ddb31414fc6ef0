// SPDX-License-Identifier: Apache-2.0
// Kernels with planted faults, compiled once without optimisation and once with it.
#pragma once

#include <driver_types.h>

#include <cstddef>

namespace meshloom::testing {

enum class Planted {
  kNothing,
  kMissingBarrier,
  kReadPastEnd,
  kWrongMask,
  kMisalignedVector,
  kRace,
  kUnreachedBarrier,
};

#define MESHLOOM_PLANTED_KERNELS                                                             \
  /* out[r] is the sum of row r: a block for each row of `columns`, a multiple of 4. */      \
  void row_sums(float* out, const float* in, int rows, int columns, Planted, cudaStream_t);  \
  /* out[c, r] = in[r, c], by tiles. */                                                      \
  void transpose(float* out, const float* in, int rows, int columns, Planted, cudaStream_t); \
  /* out[i] = in[i] + 1 in blocks of 128 threads. */                                         \
  void add_one(float* out, const float* in, int n, cudaStream_t);                            \
  /* out[i] = i, through `shared` bytes of dynamic shared memory. */                         \
  void number(float* out, int n, int threads, std::size_t shared, bool allow_shared,         \
              cudaStream_t);                                                                 \
  /* Eight blocks add 1 to `sum`, with atomic instructions or without. */                    \
  void count_blocks(int* sum, bool atomic, cudaStream_t);                                    \
  /* Results of shuffles, votes and reductions of one warp: 8 numbers for each lane. */      \
  void warp_calls(int* out, cudaStream_t);                                                   \
  /* Each block reads in[0], and the last one that runs writes it where `write`. */          \
  void read_by_many(float* out, float* in, int writer, cudaStream_t);

namespace unoptimised {
MESHLOOM_PLANTED_KERNELS
}
namespace optimised {
MESHLOOM_PLANTED_KERNELS
}

}  // namespace meshloom::testing
