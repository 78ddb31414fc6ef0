// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/symmetric_buffer.h"

#include "daemon/comm/symm_mem/symmetric_errors.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

void check_bounds(bool fits, const std::string& text) {
  if (!fits) throw InvalidArgument("symmetric memory: " + text, "SYMM_MEM_BOUNDS");
}

}  // namespace

void SymmetricBuffer::check_contiguous(const TensorView& view, const char* what) const {
  check_bounds(view.device == device_ && view.contiguous(),
               fmt::format("the {} {} is not contiguous memory of the {}", what, view.shape,
                           device_ == kCpuDevice ? "CPU" : "buffer's device"));
}

std::size_t SymmetricBuffer::bytes(int rank) const {
  check_rank(rank, size(), "a peer's memory");
  return bytes_[static_cast<std::size_t>(rank)];
}

TensorView SymmetricBuffer::view(int rank, const Shape& shape, DType dtype,
                                 std::int64_t offset) const {
  const std::size_t room = bytes(rank);
  const auto width = static_cast<std::int64_t>(dtype_size(dtype));
  check_bounds(offset >= 0, fmt::format("the offset {} is negative", offset));
  const std::int64_t elements = static_cast<std::int64_t>(room) / width;
  const std::int64_t count = numel(shape);
  check_bounds(offset <= elements && count <= elements - offset,
               fmt::format("{} elements of {} at offset {} exceed the {} bytes of rank {}", count,
                           dtype_name(dtype), offset, room, rank));
  std::byte* const data = begin(rank);
  check_bounds(reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(width) == 0,
               fmt::format("the memory of rank {} is not aligned for {}", rank, dtype_name(dtype)));
  return make_view(data + offset * width, dtype, shape, device_);
}

void SymmetricBuffer::get(const TensorView& destination, int rank, std::int64_t offset) const {
  check_contiguous(destination, "destination");
  copy(destination, view(rank, destination.shape, destination.dtype, offset));
}

void SymmetricBuffer::put(const TensorView& source, int rank, std::int64_t offset) const {
  check_contiguous(source, "source");
  copy(view(rank, source.shape, source.dtype, offset), source);
}

}  // namespace meshloom::comm
