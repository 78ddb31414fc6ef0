// SPDX-License-Identifier: Apache-2.0
// HostSymmetricBuffer: a SymmetricBuffer of segments that this process maps.
#pragma once

#include "daemon/comm/symm_mem/segment_directory.h"
#include "daemon/comm/symm_mem/symmetric_buffer.h"

namespace meshloom::comm {

class HostSymmetricBuffer final : public SymmetricBuffer {
 public:
  HostSymmetricBuffer(GatheredSegments memory, int rank)
      : SymmetricBuffer(rank, memory.bytes, kCpuDevice), memory_(std::move(memory)) {}

  static const char* why_no_multicast();
  TensorView multicast_view(const Shape& shape, DType dtype,
                            std::int64_t offset = 0) const override;

 private:
  std::byte* begin(int rank) const override {
    const auto r = static_cast<std::size_t>(rank);
    return memory_.segments[r]->data() + memory_.offsets[r];
  }
  void copy(const TensorView& destination, const TensorView& source) const override;

  GatheredSegments memory_;
};

}  // namespace meshloom::comm
