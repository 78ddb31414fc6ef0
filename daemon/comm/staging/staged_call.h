// SPDX-License-Identifier: Apache-2.0
// StagedCall: a call on device memory, and the same call on a block of pinned host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/comm/flight/algorithms.h"
#include "daemon/comm/group_device.h"
#include "kernels/base/parallel_for.h"

namespace meshloom::comm {

/// Owns what a Call only views, so that it can be begun later. Each buffer in device memory has a
/// twin in one block; an input that is an output too has that one's. Buffers in host memory
/// stay as they are.
class StagedCall {
 public:
  StagedCall(const Call& call, int rank);

  /// Returns the size of the block that it needs; 0 for a call on host memory.
  std::size_t block_bytes() const { return block_bytes_; }
  /// Gives the device what is to be copied before the call, to a block that stays until
  /// copy_back's copies are done. Returns the bytes.
  std::uint64_t copy_out(const GroupDevice& device, Threads threads, std::byte* block);
  /// Gives the device what is to be copied after the call. Returns the bytes.
  std::uint64_t copy_back(const GroupDevice& device, Threads threads) const;
  /// Returns the call on host memory, after copy_out; valid as long as this.
  Call host_call() const;

 private:
  /// Piece holds neighbouring elements in both memories.
  struct Piece {
    TensorView device;   ///< of one dim
    std::size_t at = 0;  ///< in the block
  };

  bool reads_inputs(int rank) const;
  bool writes_outputs(int rank) const;
  /// Returns the output that is the same memory as this input, or the input that is the same as
  /// this output: of the same number, the first, or this rank's. Null if there is none.
  static const TensorView* find_same(const TensorView& view, std::size_t number, int rank,
                                     const std::vector<TensorView>& others);
  void lay_out(int rank);
  static void add_piece(std::vector<Piece>& pieces, const TensorView& view, std::size_t at);

  Call call_;  ///< without its buffers
  /// The device's until copy_out, then their twins.
  std::vector<TensorView> inputs_, outputs_;
  std::vector<std::size_t> input_places_, output_places_;  ///< of the twins in the block
  std::vector<Piece> out_, back_;
  std::size_t block_bytes_ = 0;
  std::byte* block_ = nullptr;
};

}  // namespace meshloom::comm
