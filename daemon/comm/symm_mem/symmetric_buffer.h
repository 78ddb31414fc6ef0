// SPDX-License-Identifier: Apache-2.0
// SymmetricBuffer: the same tensor of every rank of a group, as seen from one of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/comm/symm_mem/segment_directory.h"
#include "kernels/base/tensor_view.h"

namespace meshloom::comm {

/// What SymmetricGroup::rendezvous gives. It keeps the memory of all ranks mapped, also after a
/// peer has let go of its own. Ranks may have pieces of different sizes. Nothing here waits or
/// tells anyone: the group's signals order reads and writes. InvalidArgument (SYMM_MEM_RANK for
/// ranks, SYMM_MEM_BOUNDS for the rest) before any memory is touched.
class SymmetricBuffer {
 public:
  SymmetricBuffer(GatheredSegments memory, int rank) : memory_(std::move(memory)), rank_(rank) {}

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(memory_.segments.size()); }
  /// Bytes of the piece of `rank`.
  std::size_t bytes(int rank) const;

  /// A row-major window on the memory of `rank`, `offset` elements of `dtype` behind its begin. It
  /// lives as long as this buffer.
  TensorView view(int rank, const Shape& shape, DType dtype, std::int64_t offset = 0) const;
  /// A window on the memory of all ranks at once: what is stored there is stored on each, and a
  /// load gives the sum over them. Throws Unimplemented (SYMM_MEM_NO_MULTICAST) where the group has
  /// no such address, SymmetricGroup::has_multicast().
  TensorView multicast_view(const Shape& shape, DType dtype, std::int64_t offset = 0) const;
  static const char* why_no_multicast();
  /// Copies from the memory of `rank`, `offset` elements behind its begin, to a contiguous view,
  /// which may be memory of this buffer too.
  void get(const TensorView& destination, int rank, std::int64_t offset = 0) const;
  /// Copies a contiguous view there.
  void put(const TensorView& source, int rank, std::int64_t offset = 0) const;

 private:
  GatheredSegments memory_;
  int rank_;
};

}  // namespace meshloom::comm
