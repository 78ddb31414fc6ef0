// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp do together: shuffles, votes, reductions and their barrier.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/support/cuda_emulator/device/emulated_thread.h"

namespace meshloom::emulator {

enum class WarpCall : std::uint8_t {
  kSync,
  kShuffle,
  kShuffleXor,
  kShuffleUp,
  kShuffleDown,
  kBallot,
  kSum,
  kMinSigned,
  kMaxSigned,
  kMinUnsigned,
  kMaxUnsigned,
  kMultiply,
  kLoadMatrices,
  kLoadTransposed,
};

/// Meets the other lanes of `mask`. `argument` is the lane or the distance of a shuffle, in groups
/// of `width` lanes.
std::uint64_t meet_in_warp(WarpCall call, unsigned mask, std::uint64_t value, int argument,
                           int width, Site site);

template <class T>
T shuffle(WarpCall call, unsigned mask, T value, int argument, int width, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = meet_in_warp(call, mask, bits, argument, width, site);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace meshloom::emulator

inline void __syncwarp(unsigned mask = 0xffffffffu,
                       meshloom::emulator::Site site = meshloom::emulator::Site::current()) {
  meshloom::emulator::meet_in_warp(meshloom::emulator::WarpCall::kSync, mask, 0, 0, 32, site);
}

#define MESHLOOM_EMULATED_SHUFFLE(NAME, CALL, ARGUMENT)                                 \
  template <class T>                                                                    \
  T NAME(unsigned mask, T value, ARGUMENT argument, int width = 32,                     \
         meshloom::emulator::Site site = meshloom::emulator::Site::current()) {         \
    return meshloom::emulator::shuffle(meshloom::emulator::WarpCall::CALL, mask, value, \
                                       static_cast<int>(argument), width, site);        \
  }
MESHLOOM_EMULATED_SHUFFLE(__shfl_sync, kShuffle, int)
MESHLOOM_EMULATED_SHUFFLE(__shfl_xor_sync, kShuffleXor, int)
MESHLOOM_EMULATED_SHUFFLE(__shfl_up_sync, kShuffleUp, unsigned)
MESHLOOM_EMULATED_SHUFFLE(__shfl_down_sync, kShuffleDown, unsigned)
#undef MESHLOOM_EMULATED_SHUFFLE

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              meshloom::emulator::Site site = meshloom::emulator::Site::current()) {
  return static_cast<unsigned>(meshloom::emulator::meet_in_warp(
      meshloom::emulator::WarpCall::kBallot, mask, predicate != 0, 0, 32, site));
}

inline int __any_sync(unsigned mask, int predicate,
                      meshloom::emulator::Site site = meshloom::emulator::Site::current()) {
  return __ballot_sync(mask, predicate, site) != 0;
}

inline int __all_sync(unsigned mask, int predicate,
                      meshloom::emulator::Site site = meshloom::emulator::Site::current()) {
  return __ballot_sync(mask, predicate == 0, site) == 0;
}

#define MESHLOOM_EMULATED_REDUCE(NAME, CALL, T)                                                \
  inline T NAME(unsigned mask, T value,                                                        \
                meshloom::emulator::Site site = meshloom::emulator::Site::current()) {         \
    return meshloom::emulator::shuffle(meshloom::emulator::WarpCall::CALL, mask, value, 0, 32, \
                                       site);                                                  \
  }
MESHLOOM_EMULATED_REDUCE(__reduce_add_sync, kSum, int)
MESHLOOM_EMULATED_REDUCE(__reduce_add_sync, kSum, unsigned)
MESHLOOM_EMULATED_REDUCE(__reduce_min_sync, kMinSigned, int)
MESHLOOM_EMULATED_REDUCE(__reduce_min_sync, kMinUnsigned, unsigned)
MESHLOOM_EMULATED_REDUCE(__reduce_max_sync, kMaxSigned, int)
MESHLOOM_EMULATED_REDUCE(__reduce_max_sync, kMaxUnsigned, unsigned)
#undef MESHLOOM_EMULATED_REDUCE
