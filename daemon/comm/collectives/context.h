// SPDX-License-Identifier: Apache-2.0
// What the state machines over a transport share.
#pragma once

#include <cstdint>

#include "daemon/comm/collectives/scratch_pool.h"
#include "daemon/comm/flight/algorithms.h"
#include "daemon/comm/transport/transfers.h"
#include "daemon/comm/transport/transport.h"

namespace meshloom::comm {

/// What a collective gets from TransportAlgorithms.
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
