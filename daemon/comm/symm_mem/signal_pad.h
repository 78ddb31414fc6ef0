// SPDX-License-Identifier: Apache-2.0
// SignalPad: the flags of one rank of a group, in memory that all ranks of the group map.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace meshloom::comm {

/// It has for every channel and peer three lines of 64 bytes, so that no two ranks write to one.
/// Each has one writer and only grows: nothing is ever cleared, so no reset can race with the next
/// signal. A flag is published by a release store on itself and read by an acquire load, which
/// orders the data that was written before it (and which ThreadSanitizer sees).
class SignalPad {
 public:
  using Flag = std::atomic<std::uint64_t>;
  static_assert(Flag::is_always_lock_free, "a lock would not be shared between processes");

  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t bytes(int channels, int ranks) {
    return 3 * kLine * static_cast<std::size_t>(channels) * static_cast<std::size_t>(ranks);
  }

  SignalPad() = default;
  /// `memory` is zero when it is new, which is "no signal yet".
  SignalPad(std::byte* memory, int ranks) : memory_(memory), ranks_(ranks) {}

  /// Puts of `peer` to the owner of this pad; written by the peer.
  Flag& put(int channel, int peer) const { return flag(channel, peer, 0); }
  /// Returns the count of puts by `peer` that the owner took; written by the owner.
  Flag& taken(int channel, int peer) const { return flag(channel, peer, 1); }
  /// Returns the barrier to which `peer` has come; written by the peer.
  Flag& met(int channel, int peer) const { return flag(channel, peer, 2); }

  /// Returns the value of a count in a generation: later generations are greater than all of
  /// earlier ones.
  static std::uint64_t value(std::uint64_t generation, std::uint64_t count) {
    return (generation << 40) | count;
  }

 private:
  Flag& flag(int channel, int peer, std::size_t which) const {
    const auto slot = static_cast<std::size_t>(channel) * static_cast<std::size_t>(ranks_) +
                      static_cast<std::size_t>(peer);
    return *reinterpret_cast<Flag*>(memory_ + (3 * slot + which) * kLine);
  }

  std::byte* memory_ = nullptr;
  int ranks_ = 0;
};

}  // namespace meshloom::comm
