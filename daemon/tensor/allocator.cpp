// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/allocator.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"

namespace meshloom {
namespace {

constexpr std::size_t kAlignment = 64;
// A segment grows by at least this part of itself: the second step may need a little more than the
// first, in which the workspace and other lasting blocks were still to come.
constexpr std::size_t kGrowthDivisor = 128;

struct Block;

struct Segment {
  std::uint32_t id;
  std::byte* data;
  std::size_t bytes;
  Block* last;  ///< the block at its end
};

/// A piece of a segment. `before` and `after` are its neighbours in address order.
struct Block {
  Segment* segment = nullptr;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  bool free = false;
  Block* before = nullptr;
  Block* after = nullptr;
};

/// By size, then by place: the same requests always get the same addresses.
struct BySize {
  using is_transparent = void;
  bool operator()(const Block* a, const Block* b) const {
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    if (a->segment->id != b->segment->id) return a->segment->id < b->segment->id;
    return a->offset < b->offset;
  }
  bool operator()(const Block* a, std::size_t bytes) const { return a->bytes < bytes; }
};

class CachingAllocator final : public Allocator {
 public:
  explicit CachingAllocator(std::unique_ptr<SegmentSource> source)
      : source_(std::move(source)),
        guard_(source_->guard_bytes()),
        alignment_(std::max(kAlignment, guard_)) {}

  // Every storage holds a reference to the allocator, so all blocks are free here.
  ~CachingAllocator() override {
    for (auto& [id, segment] : segments_) source_->release(segment.data, segment.bytes);
  }

  std::shared_ptr<Storage> allocate(std::size_t bytes) override {
    const std::size_t wanted = std::max(round_up(bytes + guard_, alignment_), alignment_);
    Block* block;
    {
      const std::lock_guard lock(mutex_);
      block = take(wanted);
      in_use_ += block->bytes;
      peak_ = std::max(peak_, in_use_);
      if (guard_ > 0) source_->used(block->segment->data + block->offset, bytes);
    }
    return std::make_shared<Storage>(shared_from_this(), block->segment->data + block->offset,
                                     bytes, block->segment->id, block->offset, block);
  }

  AllocatorStats stats() const override {
    const std::lock_guard lock(mutex_);
    return {in_use_, peak_, segment_bytes_, acquired_};
  }

  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    peak_ = in_use_;
  }

  void trim() override {
    const std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end();) {
      Block* block = *it;
      const Segment segment = *block->segment;
      if (block->bytes != segment.bytes) {
        ++it;
        continue;
      }
      it = free_.erase(it);
      spare_.push_back(block);
      source_->release(segment.data, segment.bytes);
      segment_bytes_ -= segment.bytes;
      segments_.erase(segment.id);
    }
  }

  Device device() const override { return source_->device(); }

 private:
  void free(Storage& storage) override {
    const std::lock_guard lock(mutex_);
    auto* block = static_cast<Block*>(storage.block());
    in_use_ -= block->bytes;
    if (guard_ > 0) source_->unused(block->segment->data + block->offset, block->bytes);
    if (block->after && block->after->free) {
      free_.erase(block->after);
      absorb_next(block);
    }
    if (block->before && block->before->free) {
      block = block->before;
      free_.erase(block);
      absorb_next(block);
    }
    block->free = true;
    free_.insert(block);
  }

  Block* take(std::size_t bytes) {
    auto it = free_.lower_bound(bytes);
    Block* block;
    if (it != free_.end()) {
      block = *it;
      free_.erase(it);
    } else {
      block = more_memory(bytes);
    }
    block->free = false;
    if (block->bytes > bytes) split(block, bytes);
    return block;
  }

  /// A segment of its own. A refusal says what this allocator has.
  std::byte* acquire(std::size_t bytes) {
    try {
      return source_->acquire(bytes);
    } catch (const ResourceExhausted& error) {
      Error::Metadata metadata = error.metadata();
      metadata["in_use"] = std::to_string(in_use_);
      metadata["reserved"] = std::to_string(segment_bytes_);
      throw ResourceExhausted(fmt::format("{}; {} bytes are in use of {} that are reserved",
                                          error.what(), in_use_, segment_bytes_),
                              error.reason(), std::move(metadata));
    }
  }

  /// A block of at least `bytes` at the end of the newest segment, which grows by what its last
  /// free block lacks, or a segment of its own. The block is in no list.
  Block* more_memory(std::size_t bytes) {
    if (!segments_.empty())
      if (Block* block = grow(segments_.rbegin()->second, bytes)) return block;
    const std::size_t size = round_up(bytes, source_->granularity());
    std::byte* data = acquire(size);
    if (guard_ > 0) source_->unused(data, size);
    count_acquired(size);
    const std::uint32_t id = next_segment_++;
    Block* block = new_block();
    Segment& segment = segments_.emplace(id, Segment{id, data, size, block}).first->second;
    *block = {&segment, 0, size, false, nullptr, nullptr};
    return block;
  }

  Block* grow(Segment& segment, std::size_t bytes) {
    Block* last = segment.last;
    const std::size_t lacking = last->free ? bytes - last->bytes : bytes;
    const std::size_t size =
        round_up(std::max(lacking, segment.bytes / kGrowthDivisor), source_->granularity());
    if (!source_->extend(segment.data, segment.bytes, size)) return nullptr;
    if (guard_ > 0) source_->unused(segment.data + segment.bytes, size);
    count_acquired(size);
    if (last->free) {
      free_.erase(last);
    } else {
      Block* added = new_block();
      *added = {&segment, segment.bytes, 0, false, last, nullptr};
      last->after = added;
      segment.last = last = added;
    }
    last->bytes += size;
    segment.bytes += size;
    return last;
  }

  void count_acquired(std::size_t bytes) {
    ++acquired_;
    segment_bytes_ += bytes;
  }

  void split(Block* block, std::size_t bytes) {
    Block* rest = new_block();
    *rest = {block->segment, block->offset + bytes, block->bytes - bytes, true,
             block,          block->after};
    (rest->after ? rest->after->before : rest->segment->last) = rest;
    block->after = rest;
    block->bytes = bytes;
    free_.insert(rest);
  }

  void absorb_next(Block* block) {
    Block* next = block->after;
    block->bytes += next->bytes;
    block->after = next->after;
    (block->after ? block->after->before : block->segment->last) = block;
    spare_.push_back(next);
  }

  Block* new_block() {
    if (spare_.empty()) return &blocks_.emplace_back();
    Block* block = spare_.back();
    spare_.pop_back();
    return block;
  }

  std::unique_ptr<SegmentSource> source_;
  const std::size_t guard_;  ///< 0: nobody watches the blocks
  const std::size_t alignment_;
  mutable std::mutex mutex_;
  std::map<std::uint32_t, Segment> segments_;
  std::deque<Block> blocks_;
  std::vector<Block*> spare_;
  std::set<Block*, BySize> free_;
  std::uint32_t next_segment_ = 1;
  std::size_t in_use_ = 0;
  std::size_t peak_ = 0;
  std::size_t segment_bytes_ = 0;
  std::uint64_t acquired_ = 0;
};

}  // namespace

Storage::~Storage() {
  if (allocator_) allocator_->free(*this);
}

std::shared_ptr<Allocator> Allocator::create(std::unique_ptr<SegmentSource> source) {
  return std::make_shared<CachingAllocator>(std::move(source));
}

}  // namespace meshloom
