// SPDX-License-Identifier: Apache-2.0
// Transport: moves bytes between the ranks of a group. Every collective is made of these sends and
// receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/comm/signature.h"

namespace meshloom::comm {

/// It is nonblocking and used by one thread. Messages between two ranks with one tag arrive in the
/// order in which they were sent; the size of a receive equals that of its send, and if the one has
/// a signature, so does the other. Throws CommError for what the layer below refuses.
class Transport {
 public:
  /// Names a send or receive until `test` said true or it was cancelled.
  using Request = std::uint32_t;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// The buffer stays as it is until the request is done. Tags are 0 .. 2^30 - 1. peer != rank().
  /// `signature`, which may be null, goes with the message.
  virtual Request send(const std::byte* data, std::size_t bytes, int peer, int tag,
                       const Signature* signature) = 0;
  virtual Request recv(std::byte* data, std::size_t bytes, int peer, int tag,
                       const Signature* signature) = 0;
  /// Moves what can be moved for all requests; called before a round of tests.
  virtual void progress() = 0;
  /// Returns true once done; the request is then gone. Throws SignatureDiffers if the message has
  /// another signature than the receive, which is then given up.
  virtual bool test(Request) = 0;
  /// Gives a request up: the group is broken. Shared memory then leaves the buffer alone; MPI may
  /// still touch it until FailureChannel::quiesce().
  virtual void cancel(Request) = 0;

  /// Makes a transport among some of these ranks that cannot mix up its messages with this one's;
  /// arguments as in ProcessGroup::split. `key` is the same on all its members and differs from
  /// call to call. Every rank calls it.
  virtual std::unique_ptr<Transport> split(const std::vector<std::vector<int>>& parts,
                                           std::uint64_t key) = 0;
  /// Begins anew after a recovery (see failure.h), with no request left: nothing that was sent
  /// before arrives any more. Every rank of the transport calls it.
  virtual void renew() = 0;
};

}  // namespace meshloom::comm
