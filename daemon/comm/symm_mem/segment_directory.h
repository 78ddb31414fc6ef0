// SPDX-License-Identifier: Apache-2.0
// SegmentDirectory: how the ranks of a group come to see each other's segments.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/comm/symm_mem/peer_exchange.h"
#include "daemon/comm/symm_mem/peer_process.h"
#include "daemon/comm/symm_mem/segment.h"
#include "daemon/comm/symm_mem/segment_mailbox.h"

namespace meshloom::comm {

/// A rank reaches the memory of another one by one of these ways.
enum class Sharing : std::uint8_t {
  kNone,
  kSameProcess,  ///< both are threads of one process and use one mapping
  kFdFolder,     ///< /proc/PID/fd/N
  kSocket,       ///< descriptors by SCM_RIGHTS over a Unix socket
};

/// Returns "none", "same process", "fd folder" or "socket".
const char* to_string(Sharing sharing);

/// SharingMode says which ways are tried.
enum class SharingMode : std::uint8_t {
  kAuto,      ///< the first that works, in the order of Sharing
  kFdFolder,  ///< this one alone, also between threads
  kSocket,
  kNone,
};

/// One gather() gave these segments. `why_not` is the same text on all ranks of the group, and
/// empty where every rank sees every segment; else there are no segments.
struct GatheredSegments {
  std::vector<std::shared_ptr<Segment>> segments;  ///< by rank; a rank that brought none: null
  std::vector<std::uint64_t> offsets, bytes;       ///< by rank, as they were given
  std::vector<Sharing> ways;                       ///< by rank; kNone for this rank itself
  std::string why_not;
};

/// One reach() gave these segments.
struct ReachedSegments {
  GatheredSegments memory;           ///< a rank whose segment cannot be reached: null
  std::vector<std::string> why_not;  ///< by rank; empty: it was reached, or brought none
};

/// Returns the processes of the ranks, by rank; null for `rank` itself and for threads of its
/// process.
std::vector<std::unique_ptr<PeerProcess>> processes_of(const GatheredSegments& all, int rank,
                                                       PeerProcess::Watch watch);

/// This rank brings such a piece to gather(): a part of a segment that it owns, or why there is
/// none.
struct SegmentPiece {
  std::shared_ptr<Segment> segment;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::string trouble;
};

/// There is one per rank, used by its training thread. A peer's segment is mapped once, whatever
/// the number of groups and pieces, and stays mapped as long as one of them is held.
class SegmentDirectory {
 public:
  explicit SegmentDirectory(SharingMode mode);

  /// Every rank of the group calls it, with none of its errors in between: a rank's own trouble
  /// travels with it. Two ranks count as being on one host only where each reads the nonce of the
  /// other's memory. Throws what the group's collectives throw.
  GatheredSegments gather(ProcessGroup& group, const SegmentPiece& mine);
  /// Does what gather() of a group does, before there is a group. Throws what the exchange throws.
  GatheredSegments gather(PeerExchange& group, const SegmentPiece& mine);
  /// Does what gather() does, but each rank keeps what it sees, whatever the others see. Owners
  /// hold their segments until all have come back from it.
  ReachedSegments reach(PeerExchange& group, const SegmentPiece& mine);

  /// Opens, without the other ranks, a segment that a peer of an earlier gather() has told of.
  /// Null, and why, where it cannot be opened, or its descriptor has not come yet.
  std::shared_ptr<Segment> open(const SegmentName& name, Sharing& way, std::string& why);
  /// Sends the descriptor of a new segment of this rank to all peers that cannot open it
  /// themselves, ahead of their need: an owner that computes serves nobody.
  void announce(const std::shared_ptr<Segment>& segment);
  /// Sends and takes descriptors that wait; never blocks.
  void pump() {
    if (mailbox_) mailbox_->pump();
  }

 private:
  struct Card;
  struct Mapped {
    std::weak_ptr<Segment> segment;
    Sharing way = Sharing::kNone;
  };
  /// Sends `mine` to those who asked for it, and takes what was sent here.
  void deliver(PeerExchange& group, const std::vector<Card>& cards,
               const std::vector<std::uint8_t>& wanted, const std::shared_ptr<Segment>& mine);
  std::shared_ptr<Segment> open_by_folder(const SegmentName& name, std::string& why);
  std::shared_ptr<Segment> open_arrived(const SegmentName& name, std::string& why);
  std::string agree(PeerExchange& group, const std::string& trouble);
  /// Exchanges bytes of the same number from each rank, in rank order.
  std::vector<std::uint8_t> exchange(PeerExchange& group, const void* mine, std::size_t bytes);

  SharingMode mode_;
  std::unique_ptr<SegmentMailbox> mailbox_;  ///< null: refused, or not wanted
  std::string no_mailbox_;
  std::map<Nonce, MailboxAddress> correspondents_;  ///< peers that once asked for a descriptor
  std::map<Nonce, Mapped> mapped_;
};

}  // namespace meshloom::comm
