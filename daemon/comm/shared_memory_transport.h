// SPDX-License-Identifier: Apache-2.0
// Transport between ranks of one host over rings in shared memory: ranks that are threads, or
// forked processes.
#pragma once

#include <memory>

#include "daemon/comm/byte_ring.h"
#include "daemon/comm/transport.h"

namespace meshloom::comm {

/// One ring for every ordered pair of ranks, in an anonymous mapping that forked children share.
class RingField {
 public:
  /// Throws ResourceExhausted naming the size.
  explicit RingField(int world_size);
  ~RingField();
  RingField(const RingField&) = delete;
  RingField& operator=(const RingField&) = delete;

  int world_size() const { return world_size_; }
  ByteRing& ring(int from, int to) const { return rings_[from * world_size_ + to]; }

 private:
  int world_size_;
  ByteRing* rings_;
};

/// All ranks of the field, seen from `rank`. One per rank; groups of some ranks come by split.
std::unique_ptr<Transport> make_shared_memory_transport(std::shared_ptr<RingField> field, int rank);

}  // namespace meshloom::comm
