// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/host_uploads.h"

#include <cstring>
#include <utility>

#include "kernels/base/error.h"

namespace meshloom {

Tensor HostUploads::upload(const Shape& shape, DType dtype, std::span<const std::byte> values) {
  Tensor result = empty(context_, shape, dtype);
  const TensorView to = result.view();
  check(values.size() == to.bytes(), "upload: {} values given for shape {}",
        values.size() / dtype_size(dtype), shape);
  if (values.empty()) return result;
  if (context_.device() == kCpuDevice) {
    std::memcpy(to.data, values.data(), values.size());
    return result;
  }
  HostBuffer& buffer = buffers_[std::exchange(next_, (next_ + 1) % kBuffers)];
  buffer.reserve(context_, values.size());
  std::memcpy(buffer.data(), values.data(), values.size());
  context_.backend().copy_from_host_async(context_.kernel_context(), to,
                                          make_view(buffer.data(), dtype, shape));
  buffer.mark_copy();
  return result;
}

}  // namespace meshloom
