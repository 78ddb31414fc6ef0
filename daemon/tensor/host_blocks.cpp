// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/host_blocks.h"

#include <utility>

namespace meshloom {

void HostBlocks::to_device(DType dtype, const Shape& shape,
                           const std::function<void(std::span<std::byte>)>& fill,
                           const std::function<void(const TensorView& block)>& use) {
  const std::size_t bytes = static_cast<std::size_t>(numel(shape)) * dtype_size(dtype);
  if (context_.device() == kCpuDevice) {
    if (block_.size() < bytes) block_.resize(bytes);
    fill(std::span(block_).first(bytes));
    use(make_view(block_.data(), dtype, shape));
    return;
  }
  HostBuffer& buffer = buffers_[std::exchange(next_, 1 - next_)];
  buffer.reserve(context_, bytes);
  fill({buffer.data(), bytes});
  if (!on_device_ || on_device_->bytes() < bytes) {
    on_device_.reset();
    on_device_ = context_.allocator().allocate(bytes);
  }
  const TensorView block = make_view(on_device_->data(), dtype, shape, context_.device());
  if (bytes > 0) {
    context_.backend().copy_from_host_async(context_.kernel_context(), block,
                                            make_view(buffer.data(), dtype, shape));
    buffer.mark_copy();
  }
  use(block);
}

}  // namespace meshloom
