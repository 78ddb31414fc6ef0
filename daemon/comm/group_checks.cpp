// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/group_checks.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/error.h"

namespace meshloom::comm {

void CallBuffers::check_buffer(const TensorView& view, const char* what) {
  check(view.contiguous(), "{}: {} of shape {} is not contiguous (strides {})", collective_, what,
        view.shape, view.strides);
  if (view.numel() == 0) return;
  check_memory(view.device, what);
  check(view.data != nullptr, "{}: {} has no memory", collective_, what);
}

void CallBuffers::check_memory(const Device& memory, const char* what) {
  // The texts are made for what is refused alone.
  if (first_ != nullptr && memory == memory_) return;
  if (first_ != nullptr)
    throw InvalidArgument(fmt::format(
        "{}: {} is in the memory of {}, {} in that of {}; the buffers of a call lie all in host "
        "memory or all in that of the group's device",
        collective_, first_, to_string(memory_), what, to_string(memory)));
  if (memory != kCpuDevice && (!device_ || memory != device_->device))
    throw InvalidArgument(fmt::format(
        "{}: {} is in the memory of {}, this group takes host memory{}", collective_, what,
        to_string(memory), device_ ? " or that of " + to_string(device_->device) : ""));
  first_ = what;
  memory_ = memory;
}

void CallBuffers::check_parts(std::span<const TensorView> parts, int size, DType dtype,
                              const char* what) {
  check(static_cast<int>(parts.size()) == size, "{}: {} {} for {} ranks", collective_, parts.size(),
        what, size);
  for (const TensorView& part : parts) {
    check_buffer(part, what);
    check(part.dtype == dtype, "{}: {} are {} and {}", collective_, what, dtype_name(part.dtype),
          dtype_name(dtype));
  }
}

void check_same_size(const TensorView& a, const TensorView& b, const char* collective) {
  check(a.numel() == b.numel() && a.dtype == b.dtype,
        "{}: this rank's own parts are {} {} and {} {}", collective, dtype_name(a.dtype), a.shape,
        dtype_name(b.dtype), b.shape);
}

void check_reducible(DType dtype, ReduceOp op, const char* collective) {
  if (dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2)
    throw Unimplemented(fmt::format("{}: no reduction of {}", collective, dtype_name(dtype)));
  check(op != ReduceOp::kAvg || dtype_is_floating(dtype),
        "{}: avg of {}, which is no floating dtype", collective, dtype_name(dtype));
}

void check_peer(const char* collective, int peer, int rank, int size, int tag) {
  check(peer >= 0 && peer < size && peer != rank, "{}: peer {} of rank {} in a group of {}",
        collective, peer, rank, size);
  check(tag >= 0 && tag < (1 << 29), "{}: tag {} is outside 0 .. 2^29 - 1", collective, tag);
}

void check_partition(const std::vector<std::vector<int>>& parts, int size) {
  std::vector<int> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  bool whole = static_cast<int>(all.size()) == size;
  for (std::size_t i = 0; whole && i < all.size(); ++i) whole = all[i] == static_cast<int>(i);
  check(whole, "split: the parts do not hold each of {} ranks once ({})", size,
        fmt::join(all, ", "));
}

const std::vector<int>& part_of(const std::vector<std::vector<int>>& parts, int rank) {
  for (const auto& part : parts)
    if (std::find(part.begin(), part.end(), rank) != part.end()) return part;
  throw InternalError(fmt::format("split: no part holds rank {}", rank));
}

void copy_bytes(const TensorView& to, const TensorView& from) {
  if (to.data != from.data && from.bytes() > 0) std::memcpy(to.data, from.data, from.bytes());
}

}  // namespace meshloom::comm
