// SPDX-License-Identifier: Apache-2.0
// PinnedMemory: blocks of host memory that a device copies to and from while the host goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "daemon/comm/group_device.h"
#include "kernels/base/parallel_for.h"
#include "kernels/base/segment_source.h"

namespace meshloom::comm {

/// PinnedMemory is memory of kind kHost for the calls of all groups of a rank on one device, by
/// size classes at most a quarter apart. Steady steps take the same blocks again and ask the system
/// for nothing. Used by the rank's training thread alone.
class PinnedMemory {
 public:
  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;  ///< of its size class; 0: no memory
  };
  /// Mark is a place in the device's stream, behind all that it was given before.
  struct Mark {
    std::unique_ptr<Event> event;
    std::uint64_t number = 0;  ///< of the marks of this memory
  };

  PinnedMemory(const GroupDevice& device, Threads threads);
  /// Waits for the copies of all blocks, and gives the memory back unless a block was abandoned or
  /// the device has failed.
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  /// Takes a block of at least `bytes`, aligned to 64; without memory for 0.
  Block take(std::size_t bytes);
  /// The block is used no more but for copies that the device's stream was given before: it is free
  /// once a later mark has come.
  void give_back(Block block);
  /// Somebody may still write to the block: it is neither used again nor freed.
  void abandon(Block block) { abandoned_ = abandoned_ || block.bytes > 0; }

  Mark mark();
  /// `came`: the mark's event is done.
  void give_back(Mark mark, bool came);

 private:
  struct Lent {
    Block block;
    std::uint64_t mark = 0;  ///< the first that is behind its copies
  };
  struct Segment {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  /// Makes blocks free whose copies are done, by a mark of its own where no call makes one.
  void reclaim();
  void add_blocks(std::size_t size_class);

  GroupDevice device_;
  std::unique_ptr<SegmentSource> source_;
  std::map<std::size_t, std::vector<std::byte*>> free_;  ///< by the bytes of their class
  std::deque<Lent> lent_;                                ///< in the order of the stream
  std::vector<std::unique_ptr<Event>> events_;           ///< without use
  std::vector<Segment> segments_;
  Mark own_;                 ///< of reclaim()
  std::uint64_t marks_ = 0;  ///< so far
  bool abandoned_ = false;
};

}  // namespace meshloom::comm
