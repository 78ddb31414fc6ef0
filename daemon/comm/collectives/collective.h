// SPDX-License-Identifier: Apache-2.0
// Collective: one operation in flight, a state machine over sends and receives.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/comm/collectives/scratch_pool.h"
#include "daemon/comm/process_group.h"
#include "daemon/comm/transport/transfers.h"
#include "daemon/comm/transport/transport.h"

namespace meshloom::comm {

/// What a collective gets from its group.
struct CollectiveContext {
  Transport& transport;
  ScratchPool& scratch;
  std::uint64_t& bytes_sent;
  Threads threads;
  int tag = 0;  ///< this collective's own; tag + 1 is its too
  /// For the first message between two ranks; without kind for what is no collective. In every
  /// collective each rank signs a message to the next one of the group, be it empty: so where two
  /// ranks differ, some neighbours do, and see it.
  Signature signature = {};
};

/// Destroying one that is not done gives its transfers up.
class Collective {
 public:
  virtual ~Collective() = default;
  /// Moves on as far as it goes without waiting; true when done. Called after
  /// Transport::progress().
  virtual bool advance() = 0;
  /// Grows whenever something arrived or left.
  virtual std::uint64_t progress() const = 0;
  /// Ranks of the group it waits for.
  virtual std::vector<int> missing() const = 0;
};

}  // namespace meshloom::comm
