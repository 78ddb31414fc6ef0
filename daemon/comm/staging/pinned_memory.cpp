// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/staging/pinned_memory.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/backend.h"

namespace meshloom::comm {
namespace {

constexpr std::size_t kLeastBlock = 256;

std::size_t size_class_of(std::size_t bytes) {
  return static_cast<std::size_t>(std::countr_zero(std::bit_ceil(std::max(bytes, kLeastBlock))));
}

}  // namespace

PinnedMemory::PinnedMemory(const GroupDevice& device, Threads threads)
    : device_(device), source_(device.backend->make_source(MemoryKind::kHost, threads)) {}

PinnedMemory::~PinnedMemory() {
  if (!lent_.empty()) mark().event->wait();
  // Which segment an abandoned block lies in does not matter: the process is about to end.
  if (abandoned_) return;
  for (const Segment& segment : segments_) source_->release(segment.data, segment.bytes);
}

PinnedMemory::Block PinnedMemory::take(std::size_t bytes) {
  if (bytes == 0) return {};
  const std::size_t size_class = size_class_of(bytes);
  std::vector<std::byte*>& free = free_[size_class];
  if (free.empty()) add_blocks(size_class);
  std::byte* const data = free.back();
  free.pop_back();
  return {data, std::size_t{1} << size_class};
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
  // What the stream was given before the mark is done, whoever asked for that.
  for (; came && !lent_.empty() && lent_.front().mark <= mark.number; lent_.pop_front()) {
    const Block& block = lent_.front().block;
    free_[size_class_of(block.bytes)].push_back(block.data);
  }
}

void PinnedMemory::add_blocks(std::size_t size_class) {
  const std::size_t block = std::size_t{1} << size_class;
  const std::size_t grain = source_->granularity();
  const std::size_t bytes = (block + grain - 1) / grain * grain;
  std::byte* const data = source_->acquire(bytes);
  segments_.push_back({data, bytes});
  // From the end, so that the first block is taken first.
  for (std::size_t at = bytes / block; at-- > 0;) free_[size_class].push_back(data + at * block);
}

}  // namespace meshloom::comm
