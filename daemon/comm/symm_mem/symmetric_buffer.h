// SPDX-License-Identifier: Apache-2.0
// SymmetricBuffer: the same tensor of every rank of a group, as seen from one of them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/base/tensor_view.h"

namespace meshloom::comm {

/// SymmetricGroup::rendezvous gives such a buffer. It keeps the memory of all ranks mapped, also
/// after a peer has let go of its own. Ranks may have pieces of different sizes. Nothing here waits
/// or tells anyone: the group's signals order reads and writes. Calls throw InvalidArgument
/// (SYMM_MEM_RANK for ranks, SYMM_MEM_BOUNDS for the rest) before any memory is touched.
class SymmetricBuffer {
 public:
  virtual ~SymmetricBuffer() = default;
  SymmetricBuffer(const SymmetricBuffer&) = delete;
  SymmetricBuffer& operator=(const SymmetricBuffer&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(bytes_.size()); }
  /// Returns the bytes of the piece of `rank`.
  std::size_t bytes(int rank) const;

  /// Returns a row-major window on the memory of `rank`, `offset` elements of `dtype` behind its
  /// begin. It lives as long as this buffer.
  TensorView view(int rank, const Shape& shape, DType dtype, std::int64_t offset = 0) const;
  /// Returns a window on the memory of all ranks at once: what is stored there is stored on each,
  /// and a load gives the sum over them. Throws Unimplemented (SYMM_MEM_NO_MULTICAST) where the
  /// group has no such address, SymmetricGroup::has_multicast().
  virtual TensorView multicast_view(const Shape& shape, DType dtype,
                                    std::int64_t offset = 0) const = 0;
  /// Copies from the memory of `rank`, `offset` elements behind its begin, to a contiguous view,
  /// which may be memory of this buffer too.
  void get(const TensorView& destination, int rank, std::int64_t offset = 0) const;
  /// Copies a contiguous view there.
  void put(const TensorView& source, int rank, std::int64_t offset = 0) const;

 protected:
  /// `bytes` are those of the pieces, by rank; `device` is where all of them lie.
  SymmetricBuffer(int rank, std::vector<std::uint64_t> bytes, Device device)
      : rank_(rank), bytes_(std::move(bytes)), device_(device) {}

  /// Returns where the piece of `rank` begins, in this process.
  virtual std::byte* begin(int rank) const = 0;
  /// Copies contiguous views of one size on the device, which may overlap.
  virtual void copy(const TensorView& destination, const TensorView& source) const = 0;

 private:
  void check_contiguous(const TensorView& view, const char* what) const;

  int rank_;
  std::vector<std::uint64_t> bytes_;
  Device device_;
};

}  // namespace meshloom::comm
