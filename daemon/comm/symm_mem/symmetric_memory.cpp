// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/symmetric_memory.h"

#include "kernels/base/error.h"

namespace meshloom::comm {

SymmetricMemory::SymmetricMemory(const SymmetricOptions& options)
    : options_(options), directory_(options.sharing) {
  check(options.channels >= 1, "symmetric memory: {} channels", options.channels);
}

SymmetricMemory::~SymmetricMemory() = default;

std::shared_ptr<Segment> SymmetricMemory::allocate(std::size_t bytes) {
  auto segment = Segment::create(bytes);
  segments_.push_back(segment);
  directory_.announce(segment);
  return segment;
}

std::shared_ptr<Segment> SymmetricMemory::find(const void* data, std::size_t bytes) {
  std::erase_if(segments_, [](const auto& one) { return one.expired(); });
  for (const auto& one : segments_) {
    auto segment = one.lock();
    if (segment && segment->contains(data) &&
        segment->contains(static_cast<const std::byte*>(data) + bytes))
      return segment;
  }
  return nullptr;
}

SymmetricGroup& SymmetricMemory::enable(ProcessGroup& group) {
  std::unique_ptr<SymmetricGroup>& one = groups_[&group];
  // A group that could not be made must be asked again, so nothing stays of it.
  try {
    if (!one) one.reset(new SymmetricGroup(group, *this));
  } catch (...) {
    groups_.erase(&group);
    throw;
  }
  return *one;
}

SymmetricGroup* SymmetricMemory::enabled(const ProcessGroup& group) const {
  const auto found = groups_.find(&group);
  return found == groups_.end() ? nullptr : found->second.get();
}

void SymmetricMemory::disable(const ProcessGroup& group) { groups_.erase(&group); }

}  // namespace meshloom::comm
