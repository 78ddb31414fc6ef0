// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/pinned_ring.h"

#include <algorithm>

#include "kernels/base/integer_math.h"
#include "kernels/cuda/runtime/check.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr std::size_t kRingAlignment = 256;

}  // namespace

PinnedRing::~PinnedRing() {
  if (data_ == nullptr) return;
  for (const Part& part : parts_) cudaEventDestroy(part.copied);
  cudaFreeHost(data_);
}

void PinnedRing::allocate() {
  for (Part& part : parts_)
    if (part.copied == nullptr)
      check(cudaEventCreateWithFlags(&part.copied, cudaEventDisableTiming), "a new event");
  void* data = nullptr;
  check(cudaMallocHost(&data, kParts * kPartBytes), "pinned memory for uploads");
  data_ = static_cast<std::byte*>(data);
}

void PinnedRing::next_part() {
  check(cudaEventRecord(parts_[part_].copied, stream_), "record of an event");
  parts_[part_].in_use = true;
  part_ = (part_ + 1) % kParts;
  used_ = 0;
  if (!parts_[part_].in_use) return;
  check(cudaEventSynchronize(parts_[part_].copied), "wait for uploads");
  parts_[part_].in_use = false;
}

std::span<std::byte> PinnedRing::take(std::size_t bytes) {
  if (data_ == nullptr) allocate();
  // A short rest is not worth a copy of its own.
  const std::size_t wanted = std::min(bytes, kPartBytes);
  if (used_ + wanted > kPartBytes) next_part();
  std::byte* const data = data_ + part_ * kPartBytes + used_;
  used_ += round_up(wanted, kRingAlignment);
  return {data, wanted};
}

}  // namespace meshloom::kernels::cuda
