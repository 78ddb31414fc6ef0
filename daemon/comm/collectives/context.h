// SPDX-License-Identifier: Apache-2.0
// What the state machines over a transport get: staging memory, a transport, a signature.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/comm/flight/algorithms.h"
#include "daemon/comm/transport/transfers.h"
#include "daemon/comm/transport/transport.h"

namespace meshloom::comm {

/// ScratchPool is staging memory of collectives, kept so that a training step allocates nothing.
///
/// Used by one thread. MPI may still write to blocks of transfers that were given up: abandon()
/// before they return keeps them from being used again, and mapped as long as the process. Blocks
/// outlive the pool's handle: each returns to the pool, or is freed with the last of both.
class ScratchPool {
 public:
  using Bytes = std::vector<std::byte>;

  /// Gives its bytes back when destroyed.
  class Block {
   public:
    Block() = default;
    Block(std::shared_ptr<std::vector<Bytes>> home, Bytes bytes)
        : home_(std::move(home)), bytes_(std::move(bytes)) {}
    ~Block() { give_back(); }
    Block(Block&&) noexcept = default;
    Block& operator=(Block&& other) noexcept {
      give_back();
      home_ = std::move(other.home_);
      bytes_ = std::move(other.bytes_);
      return *this;
    }
    std::byte* data() { return bytes_.data(); }
    std::size_t size() const { return bytes_.size(); }

   private:
    void give_back() {
      if (home_ && !bytes_.empty()) home_->push_back(std::move(bytes_));
      home_.reset();
    }
    std::shared_ptr<std::vector<Bytes>> home_;
    Bytes bytes_;
  };

  /// Takes a block of at least `bytes`: the smallest kept block that is large enough, else a new
  /// one.
  Block take(std::size_t bytes) {
    std::vector<Bytes>& kept = *kept_;
    auto best = kept.end();
    for (auto it = kept.begin(); it != kept.end(); ++it)
      if (it->size() >= bytes && (best == kept.end() || it->size() < best->size())) best = it;
    if (best == kept.end()) return {kept_, Bytes(bytes)};
    Bytes found = std::move(*best);
    kept.erase(best);
    return {kept_, std::move(found)};
  }

  /// Never frees or hands out again what it has given out so far.
  void abandon() {
    // On purpose without an owner.
    new std::shared_ptr<std::vector<Bytes>>(
        std::exchange(kept_, std::make_shared<std::vector<Bytes>>()));
  }

 private:
  std::shared_ptr<std::vector<Bytes>> kept_ = std::make_shared<std::vector<Bytes>>();
};

/// Collectives use the lower half of a transport's tags, these many in turn; sends and receives of
/// the user use the upper half.
inline constexpr std::uint64_t kCollectiveTags = 1u << 28;

/// A state machine over a transport gets these.
struct CollectiveContext {
  Transport& transport;
  ScratchPool& scratch;
  std::uint64_t& bytes_sent;
  Threads threads;
  int tag = 0;  ///< this collective's own; tag + 1 is its too
  /// Goes with the first message between two ranks; without kind for sends and receives of the
  /// user. In every collective each rank signs a message to the next one of the group, be it empty:
  /// so if two ranks differ, some neighbours do, and see it.
  Signature signature = {};
};

}  // namespace meshloom::comm
