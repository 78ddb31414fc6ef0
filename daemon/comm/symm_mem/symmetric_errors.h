// SPDX-License-Identifier: Apache-2.0
// Refusals that several files of symmetric memory share, in PyTorch's words where it has some.
// Source of the words: PyTorch's CUDASymmetricMemory.cu (check_channel, check_rank).
#pragma once

#include "kernels/base/error.h"

namespace meshloom::comm {

/// Throws InvalidArgument (SYMM_MEM_RANK).
inline void check_rank(int rank, int size, const char* what) {
  if (rank >= 0 && rank < size) [[likely]]
    return;
  throw InvalidArgument(
      fmt::format("symmetric memory: {}: rank {} must be in [0, {})", what, rank, size),
      "SYMM_MEM_RANK", {{"rank", std::to_string(rank)}, {"size", std::to_string(size)}});
}

/// Throws InvalidArgument (SYMM_MEM_CHANNEL).
inline void check_channel(int channel, int channels, const char* what) {
  if (channel >= 0 && channel < channels) [[likely]]
    return;
  throw InvalidArgument(
      fmt::format("symmetric memory: {}: channel {} must be in [0, {}): the maximum supported "
                  "channel is {}",
                  what, channel, channels, channels - 1),
      "SYMM_MEM_CHANNEL",
      {{"channel", std::to_string(channel)}, {"channels", std::to_string(channels)}});
}

}  // namespace meshloom::comm
