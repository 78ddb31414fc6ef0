// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/host_symmetric_memory.h"

#include "daemon/comm/symm_mem/host_symmetric_group.h"
#include "kernels/base/error.h"

namespace meshloom::comm {

HostSymmetricMemory::HostSymmetricMemory(const SymmetricOptions& options)
    : options_(options), directory_(options.sharing) {
  check(options.channels >= 1, "symmetric memory: {} channels", options.channels);
}

std::shared_ptr<std::byte> HostSymmetricMemory::allocate(std::size_t bytes) {
  std::shared_ptr<Segment> segment = make_segment(bytes);
  std::byte* const data = segment->data();
  return {std::move(segment), data};
}

std::shared_ptr<Segment> HostSymmetricMemory::make_segment(std::size_t bytes) {
  auto segment = Segment::create(bytes);
  segments_.push_back(segment);
  directory_.announce(segment);
  return segment;
}

std::shared_ptr<Segment> HostSymmetricMemory::find(const void* data, std::size_t bytes) {
  std::erase_if(segments_, [](const auto& one) { return one.expired(); });
  for (const auto& one : segments_) {
    auto segment = one.lock();
    if (segment && segment->contains(data) &&
        segment->contains(static_cast<const std::byte*>(data) + bytes))
      return segment;
  }
  return nullptr;
}

std::unique_ptr<SymmetricGroup> HostSymmetricMemory::make_group(ProcessGroup& group) {
  return std::make_unique<HostSymmetricGroup>(group, *this);
}

}  // namespace meshloom::comm
