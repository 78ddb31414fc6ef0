// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/symmetric_buffer.h"

#include <cstring>

#include "daemon/comm/symm_mem/symmetric_errors.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

void check_bounds(bool fits, const std::string& text) {
  if (!fits) throw InvalidArgument("symmetric memory: " + text, "SYMM_MEM_BOUNDS");
}

void check_contiguous(const TensorView& view, const char* what) {
  check_bounds(view.device == kCpuDevice && view.contiguous(),
               fmt::format("the {} {} is not contiguous memory of the CPU", what, view.shape));
}

}  // namespace

std::size_t SymmetricBuffer::bytes(int rank) const {
  check_rank(rank, size(), "a peer's memory");
  return memory_.bytes[static_cast<std::size_t>(rank)];
}

TensorView SymmetricBuffer::view(int rank, const Shape& shape, DType dtype,
                                 std::int64_t offset) const {
  const std::size_t room = bytes(rank);
  const auto peer = static_cast<std::size_t>(rank);
  const auto width = static_cast<std::int64_t>(dtype_size(dtype));
  check_bounds(offset >= 0, fmt::format("the offset {} is negative", offset));
  const std::int64_t elements = static_cast<std::int64_t>(room) / width;
  const std::int64_t count = numel(shape);
  check_bounds(offset <= elements && count <= elements - offset,
               fmt::format("{} elements of {} at offset {} exceed the {} bytes of rank {}", count,
                           dtype_name(dtype), offset, room, rank));
  std::byte* const begin = memory_.segments[peer]->data() + memory_.offsets[peer];
  check_bounds(reinterpret_cast<std::uintptr_t>(begin) % static_cast<std::uintptr_t>(width) == 0,
               fmt::format("the memory of rank {} is not aligned for {}", rank, dtype_name(dtype)));
  return make_view(begin + offset * width, dtype, shape);
}

const char* SymmetricBuffer::why_no_multicast() {
  return "a host maps the memory of each rank at an address of its own; one address of all is made "
         "by the switch between devices";
}

TensorView SymmetricBuffer::multicast_view(const Shape& shape, DType dtype,
                                           std::int64_t offset) const {
  throw Unimplemented(fmt::format("symmetric memory: no multicast window of {} {} at offset {}: {}",
                                  shape, dtype_name(dtype), offset, why_no_multicast()),
                      "SYMM_MEM_NO_MULTICAST");
}

void SymmetricBuffer::get(const TensorView& destination, int rank, std::int64_t offset) const {
  check_contiguous(destination, "destination");
  const TensorView source = view(rank, destination.shape, destination.dtype, offset);
  if (source.bytes() > 0) std::memmove(destination.data, source.data, source.bytes());
}

void SymmetricBuffer::put(const TensorView& source, int rank, std::int64_t offset) const {
  check_contiguous(source, "source");
  const TensorView destination = view(rank, source.shape, source.dtype, offset);
  if (source.bytes() > 0) std::memmove(destination.data, source.data, source.bytes());
}

}  // namespace meshloom::comm
