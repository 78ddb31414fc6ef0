// SPDX-License-Identifier: Apache-2.0
// Transport between ranks of one host over rings in shared memory: ranks that are threads, or
// forked processes.
#pragma once

#include <chrono>
#include <memory>

#include "daemon/comm/byte_ring.h"
#include "daemon/comm/failure_board.h"
#include "daemon/comm/failure_channel.h"
#include "daemon/comm/transport.h"

namespace meshloom::comm {

class RingEndpoint;

/// One ring for every ordered pair of ranks, and a board for failures, in an anonymous mapping that
/// forked children share.
class RingField {
 public:
  /// Throws ResourceExhausted naming the size.
  explicit RingField(int world_size);
  ~RingField();
  RingField(const RingField&) = delete;
  RingField& operator=(const RingField&) = delete;

  int world_size() const { return world_size_; }
  ByteRing& ring(int from, int to) const { return rings_[from * world_size_ + to]; }
  FailureBoard& board() const { return *board_; }
  Seat& seat(int rank) const { return seats_[rank]; }

 private:
  int world_size_;
  ByteRing* rings_;
  Seat* seats_;
  FailureBoard* board_;
};

/// All ranks of the field, seen from one. Groups of some ranks come by split.
struct SharedMemoryRank {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<FailureChannel> failures;
};

/// Once per rank. `timeout` is for each wait for all ranks after a failure.
SharedMemoryRank join_field(const std::shared_ptr<RingField>& field, int rank,
                            std::chrono::milliseconds timeout);

std::unique_ptr<FailureChannel> make_shared_memory_failure_channel(
    std::shared_ptr<RingField> field, std::shared_ptr<RingEndpoint> endpoint,
    std::chrono::milliseconds timeout);

}  // namespace meshloom::comm
