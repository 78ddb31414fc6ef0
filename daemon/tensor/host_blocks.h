// SPDX-License-Identifier: Apache-2.0
// HostBlocks: blocks of elements from the host to the device, for files and messages.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/host_buffer.h"

namespace meshloom {

/// HostBlocks is the way in, as HostPieces is the way out: the host fills a block while the device
/// copies the one before. A block travels as it is, dense and in its own dtype, and the device puts
/// it where it belongs. On the CPU it is filled where it is read, and nothing is copied. Takes
/// memory for two blocks of the largest size, on the host, and for one on the device. Lives no
/// longer than its context.
class HostBlocks {
 public:
  /// The end of it waits until the device has copied every block.
  explicit HostBlocks(ExecutionContext& context) : context_(context) {}
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  ExecutionContext& context() const { return context_; }

  /// `fill` writes the elements of a row-major block to host memory; then `use` is given the block
  /// in memory of the context's device, which keeps it for work that `use` gives to the context's
  /// stream. Waits only until the device has copied the block before the last one. Passes on what
  /// `fill` and `use` throw; the next call begins anew.
  void to_device(DType dtype, const Shape& shape,
                 const std::function<void(std::span<std::byte>)>& fill,
                 const std::function<void(const TensorView& block)>& use);

 private:
  ExecutionContext& context_;
  std::vector<std::byte> block_;  ///< on the CPU, which needs no other memory
  std::array<HostBuffer, 2> buffers_;
  std::size_t next_ = 0;                ///< the buffer that is filled next
  std::shared_ptr<Storage> on_device_;  ///< where a block arrives; work in the stream has an order
};

}  // namespace meshloom
