// SPDX-License-Identifier: Apache-2.0
// Transfers: a set of sends and receives that a step of a collective waits for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/comm/transport/transport.h"

namespace meshloom::comm {

/// Cancels what is outstanding when it is destroyed.
class Transfers {
 public:
  /// `bytes_sent` is added to by every send.
  Transfers(Transport& transport, std::uint64_t& bytes_sent)
      : transport_(&transport), bytes_sent_(&bytes_sent) {}
  ~Transfers() { cancel(); }
  Transfers(Transfers&&) noexcept = default;
  Transfers& operator=(Transfers&&) = delete;

  /// Large buffers go as several messages with the same tag. Zero bytes cost nothing, unless there
  /// is a signature, which goes with the first message.
  void send(const std::byte* data, std::size_t bytes, int peer, int tag,
            const Signature* signature = nullptr);
  void recv(std::byte* data, std::size_t bytes, int peer, int tag,
            const Signature* signature = nullptr);

  /// Drops what is done; true if nothing is left. Throws SignatureDiffers, with the peer.
  bool done();
  /// Grows with every transfer that got done: how a waiter sees progress.
  std::uint64_t completed() const { return completed_; }
  /// Returns the peers whose data has not come; if all came, peers that have not taken ours.
  std::vector<int> missing() const;
  /// Cancels the newest first: see Transport::cancel.
  void cancel();

 private:
  struct Pending {
    Transport::Request request;
    int peer;
    bool receive;
  };

  Transport* transport_;
  std::uint64_t* bytes_sent_;
  std::vector<Pending> pending_;
  std::uint64_t completed_ = 0;
};

}  // namespace meshloom::comm
