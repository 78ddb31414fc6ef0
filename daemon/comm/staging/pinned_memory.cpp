// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/staging/pinned_memory.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/backend.h"
#include "kernels/base/log.h"

namespace meshloom::comm {
namespace {

constexpr std::size_t kLeastBlock = 256;

/// The bytes of the size class: four classes for each power of two.
std::size_t size_class_of(std::size_t bytes) {
  const std::size_t step = std::max(std::bit_floor(bytes) / 4, kLeastBlock);
  return (bytes + step - 1) / step * step;
}

}  // namespace

PinnedMemory::PinnedMemory(const GroupDevice& device, Threads threads)
    : device_(device), source_(device.backend->make_source(MemoryKind::kHost, threads)) {}

PinnedMemory::~PinnedMemory() {
  if (segments_.empty() || abandoned_) return;
  try {
    mark().event->wait();
  } catch (const std::exception& error) {
    spdlog::error("a copy between host and device failed: {}", error.what());
    return;
  }
  for (const Segment& segment : segments_) source_->release(segment.data, segment.bytes);
}

PinnedMemory::Block PinnedMemory::take(std::size_t bytes) {
  if (bytes == 0) return {};
  const std::size_t size_class = size_class_of(bytes);
  std::vector<std::byte*>& free = free_[size_class];
  if (free.empty()) reclaim();
  if (free.empty()) add_blocks(size_class);
  std::byte* const data = free.back();
  free.pop_back();
  return {data, size_class};
}

void PinnedMemory::reclaim() {
  if (own_.event && own_.event->done()) give_back(std::exchange(own_, {}), true);
  if (!own_.event && !lent_.empty()) own_ = mark();
}

void PinnedMemory::give_back(Block block) {
  if (block.bytes > 0) lent_.push_back({block, marks_ + 1});
}

PinnedMemory::Mark PinnedMemory::mark() {
  if (events_.empty()) events_.push_back(device_.backend->make_event());
  Mark mark{std::move(events_.back()), ++marks_};
  events_.pop_back();
  mark.event->record(device_.stream->get());
  return mark;
}

void PinnedMemory::give_back(Mark mark, bool came) {
  if (!mark.event) return;
  events_.push_back(std::move(mark.event));
  // All that the stream was given before the mark is done, whoever asked for it.
  for (; came && !lent_.empty() && lent_.front().mark <= mark.number; lent_.pop_front()) {
    const Block& block = lent_.front().block;
    free_[block.bytes].push_back(block.data);
  }
}

void PinnedMemory::add_blocks(std::size_t size_class) {
  const std::size_t grain = source_->granularity();
  const std::size_t bytes = (size_class + grain - 1) / grain * grain;
  std::byte* const data = source_->acquire(bytes);
  segments_.push_back({data, bytes});
  // From the end, so that the first block is taken first.
  for (std::size_t at = bytes / size_class; at-- > 0;)
    free_[size_class].push_back(data + at * size_class);
}

}  // namespace meshloom::comm
