// SPDX-License-Identifier: Apache-2.0
// CollectivePad: what a rank shows the other ranks of its group about its collectives.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/comm/signature.h"
#include "daemon/comm/symm_mem/segment.h"
#include "kernels/base/integer_math.h"
#include "planner/communication_sizes.h"

namespace meshloom::comm {

/// A share says where the data lies that a rank has for one peer.
struct Share {
  /// This says that the data lies in the inline memory of the slot, which is read without an
  /// answer.
  static constexpr std::uint32_t kInline = 0xffffffff;

  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;    ///< of all slices
  std::uint32_t segment = 0;  ///< index in the owner's table, or kInline
  std::uint32_t version = 0;  ///< how often the entry of the table was written
};

/// Flags only grow: a value is the generation (recoveries of the group so far), the number of the
/// collective and how many of its slices are meant. So nothing is ever cleared.
struct FlagValue {
  static constexpr int kSliceBits = 20, kNumberBits = 34;
  static constexpr std::uint64_t kMostSlices = (std::uint64_t{1} << kSliceBits) - 2;
  static constexpr std::uint64_t kMostGenerations = std::uint64_t{1}
                                                    << (64 - kSliceBits - kNumberBits);

  static constexpr std::uint64_t of(std::uint64_t generation, std::uint64_t number,
                                    std::uint64_t slices) {
    return (generation << (kSliceBits + kNumberBits)) | (number << kSliceBits) | slices;
  }
  /// Returns the number of collectives in a value of `generation`; 0 in one of an earlier
  /// generation.
  static constexpr std::uint64_t number(std::uint64_t value, std::uint64_t generation) {
    const std::uint64_t first = of(generation, 0, 0);
    return value < first ? 0 : (value - first) >> kSliceBits;
  }
};

/// CollectivePad is the memory of one rank in one group, mapped by all: written by its owner alone
/// and read by the others. A collective uses the slot of its number; a slot is used again once
/// every rank has finished the collective before. Flags are published by a release store on
/// themselves and read by an acquire load, each on a line of its own.
class CollectivePad {
 public:
  using Flag = std::atomic<std::uint64_t>;
  static_assert(Flag::is_always_lock_free, "a lock would not be shared between processes");

  static constexpr std::uint64_t kSlots = 8;
  static constexpr std::uint32_t kTableEntries = 256;
  static constexpr std::size_t kInlineBytes = planner::kOneShotBytes;

  struct Head {
    Flag arrived;            ///< 1 + slices that are there to be read
    Signature signature;     ///< of the collective, without pair_bytes
    std::uint32_t ring = 0;  ///< slices that the staging memory holds in turn; 0: all lies in place
    std::uint32_t stride = 0;  ///< bytes from one slice in the ring to the next
  };

  CollectivePad() = default;
  /// `memory` is zero when it is new.
  CollectivePad(std::byte* memory, int ranks) : memory_(memory), ranks_(ranks) {}

  static std::size_t bytes(int ranks) { return kLine + kTableBytes + kSlots * slot_bytes(ranks); }

  /// Returns how many collectives the owner has finished, without a gap.
  Flag& finished() const { return at<Flag>(0); }
  /// Returns the segments of the owner that shares point to.
  SegmentName* table() const { return &at<SegmentName>(kLine); }

  Head& head(std::uint64_t number) const { return at<Head>(slot(number)); }
  std::byte* inline_data(std::uint64_t number) const { return memory_ + slot(number) + kLine; }
  /// Returns how many slices of the peers' data the owner needs no more.
  Flag& consumed(std::uint64_t number) const {
    return at<Flag>(slot(number) + kLine + kInlineBytes);
  }
  /// Returns the shares by peer.
  Share* shares(std::uint64_t number) const {
    return &at<Share>(slot(number) + 2 * kLine + kInlineBytes);
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kTableBytes = kTableEntries * sizeof(SegmentName);

  static std::size_t slot_bytes(int ranks) {
    return 2 * kLine + kInlineBytes +
           round_up(sizeof(Share) * static_cast<std::size_t>(ranks), kLine);
  }
  std::size_t slot(std::uint64_t number) const {
    return kLine + kTableBytes + static_cast<std::size_t>(number % kSlots) * slot_bytes(ranks_);
  }
  template <typename T>
  T& at(std::size_t offset) const {
    return *reinterpret_cast<T*>(memory_ + offset);
  }

  std::byte* memory_ = nullptr;
  int ranks_ = 0;
};
static_assert(sizeof(CollectivePad::Head) == 56 && sizeof(Share) == 24 &&
              sizeof(SegmentName) % 64 == 0);

}  // namespace meshloom::comm
