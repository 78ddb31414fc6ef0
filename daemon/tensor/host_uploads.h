// SPDX-License-Identifier: Apache-2.0
// HostUploads: tensors of values that the host has, such as the tokens of a batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/tensor/host_buffer.h"
#include "daemon/tensor/tensor.h"

namespace meshloom {

/// The values go by memory that the device copies from while the host goes on (MemoryKind::kHost);
/// on the CPU they are copied once, to where they are read. Keeps some such memory, each piece as
/// large as the largest values that went by it. Used by one thread; lives no longer than its
/// context.
class HostUploads {
 public:
  /// The end of it waits until the device has copied all values.
  explicit HostUploads(ExecutionContext& context) : context_(context) {}
  HostUploads(const HostUploads&) = delete;
  HostUploads& operator=(const HostUploads&) = delete;

  ExecutionContext& context() const { return context_; }

  /// Returns a tensor of these values, row-major, which may change once the call returns. Waits
  /// only until the device has copied what went before the last kBuffers tensors. Throws
  /// InvalidArgument for another number of values than the shape's.
  Tensor tensor(const Shape& shape, std::span<const std::int64_t> values) {
    return upload(shape, DType::kInt64, std::as_bytes(values));
  }
  Tensor tensor(const Shape& shape, std::span<const float> values) {
    return upload(shape, DType::kFloat32, std::as_bytes(values));
  }

 private:
  /// Two micro batches have so many tensors.
  static constexpr std::size_t kBuffers = 12;

  Tensor upload(const Shape& shape, DType dtype, std::span<const std::byte> values);

  ExecutionContext& context_;
  std::array<HostBuffer, kBuffers> buffers_;
  std::size_t next_ = 0;
};

}  // namespace meshloom
