// SPDX-License-Identifier: Apache-2.0
// SegmentMailbox: descriptors of segments by SCM_RIGHTS, where the fd folder of a process is
// closed.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "daemon/comm/symm_mem/segment.h"

namespace meshloom::comm {

/// A mailbox takes messages at this address; it is plain data that peers are told.
struct MailboxAddress {
  Nonce secret{};      ///< messages without it are thrown away: any local user can send one
  char name[16] = {};  ///< of an abstract Unix socket, which is gone with the process
  std::uint32_t name_bytes = 0;  ///< 0: there is no mailbox
};

/// SegmentMailbox is a datagram socket. A message arrives in the moment in which it is sent, so the
/// owner need not serve anybody later; what a full queue refuses waits here for the next pump().
/// Used by one thread.
class SegmentMailbox {
 public:
  /// Throws IoError where sockets are refused.
  SegmentMailbox();
  SegmentMailbox(const SegmentMailbox&) = delete;
  SegmentMailbox& operator=(const SegmentMailbox&) = delete;

  const MailboxAddress& address() const { return address_; }

  /// Sends the descriptor of a segment that this process owns, unless it waits already.
  void post(const MailboxAddress& to, std::shared_ptr<const Segment> segment);
  /// Sends what waits and takes in what came; never blocks.
  void pump();
  /// Tells whether a message still waits for room in a peer's queue.
  bool pending() const { return !waiting_.empty(); }
  /// Returns the descriptor of the segment with this nonce; none if none came.
  base::UniqueFd take(const Nonce& nonce);

 private:
  struct Outgoing {
    MailboxAddress to;
    std::shared_ptr<const Segment> segment;
  };
  bool send(const Outgoing& one);
  bool receive();

  base::UniqueFd socket_;
  MailboxAddress address_;
  std::deque<Outgoing> waiting_;
  std::map<Nonce, base::UniqueFd> arrived_;
};

}  // namespace meshloom::comm
