// SPDX-License-Identifier: Apache-2.0
// PinnedRing: host memory that uploads go through, so that they wait neither for the device nor for
// the memory that they are copied from.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <span>

namespace meshloom::kernels::cuda {

/// Pinned memory in a few parts. A part is filled by one upload after another, and used again once
/// the copies out of it are done. The first `take` allocates. Used by one thread at a time, with
/// the device of the stream as that thread's.
class PinnedRing {
 public:
  static constexpr std::size_t kParts = 4;
  static constexpr std::size_t kPartBytes = std::size_t{4} << 20;

  /// For copies in `stream`, which outlives the ring.
  explicit PinnedRing(cudaStream_t stream) : stream_(stream) {}
  /// All copies are done.
  ~PinnedRing();
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;

  /// Memory for the next copy: at most `bytes`, and at least 1 where `bytes` is. It keeps what is
  /// written to it until the copies that the stream is given before the next call are done. Waits
  /// for the device where all parts are full of copies that are not done.
  std::span<std::byte> take(std::size_t bytes);

 private:
  struct Part {
    cudaEvent_t copied = nullptr;
    bool in_use = false;  ///< `copied` is recorded behind copies from it
  };

  void allocate();
  void next_part();

  cudaStream_t stream_;
  std::byte* data_ = nullptr;
  std::array<Part, kParts> parts_;
  std::size_t part_ = 0;
  std::size_t used_ = 0;  ///< bytes of the part
};

}  // namespace meshloom::kernels::cuda
