// SPDX-License-Identifier: Apache-2.0
// SharedSegments: how the ranks of a group name pieces of their memory to each other.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "daemon/comm/symm_collectives/collective_pad.h"
#include "daemon/comm/symm_mem/host_symmetric_memory.h"

namespace meshloom::comm {

/// A rank writes the name of a segment to its table before it tells the first share in it; a peer
/// maps the segment when it first meets such a share, without the owner's help, and keeps it until
/// the owner uses the entry for another one. Used by the rank's training thread.
class SharedSegments {
 public:
  /// `pads`, `ways`, how the peers' pads were opened, and `names`, what errors call them, are by
  /// rank.
  SharedSegments(std::shared_ptr<HostSymmetricMemory> memory, int rank,
                 std::vector<CollectivePad> pads, std::vector<Sharing> ways,
                 std::vector<int> names);

  /// Returns nothing where the bytes do not lie in one segment of this rank's symmetric memory, or
  /// the table is full. `data` may be null for no bytes.
  std::optional<Share> share(const void* data, std::size_t bytes);
  /// Returns the memory of a peer's share, which is not inline, and of which `bytes` are used.
  /// Null: its descriptor is still on its way. Throws CommError (SYMM_MEM_UNAVAILABLE) where the
  /// segment cannot be mapped.
  std::byte* resolve(int peer, const Share& share, std::size_t bytes);

 private:
  struct Told {
    std::weak_ptr<Segment> segment;
    const std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::uint32_t version = 0;
  };
  struct Opened {
    std::shared_ptr<Segment> segment;
    std::uint32_t version = 0;
  };

  Told* find(const std::byte* data, std::size_t bytes);
  Told* tell(const std::shared_ptr<Segment>& segment);

  std::shared_ptr<HostSymmetricMemory> memory_;
  int rank_;
  std::vector<CollectivePad> pads_;
  std::vector<Sharing> ways_;
  std::vector<int> names_;
  std::vector<Told> told_;                   ///< by entry of the own table
  std::vector<std::vector<Opened>> opened_;  ///< by peer and entry
};

}  // namespace meshloom::comm
