// SPDX-License-Identifier: Apache-2.0
// RunSnapshot: weights of a run in the memory of its ranks, for as long as somebody holds them.
#pragma once

#include <string>

#include "daemon/control/host/hold.h"
#include "daemon/control/host/memory_units.h"
#include "daemon/control/ranks/run_client.h"

namespace meshloom::control {

/// What weights take that ranks keep: a place among those that their run may keep, and bytes, which
/// are given back first.
struct SnapshotMemory {
  Hold place;
  MemoryUnits units;
};

/// The ranks keep the weights that the run has when it is made, and drop them with it: who holds it
/// draws from these, whatever has become of the name that a client gave them. Any thread may let it
/// go.
class RunSnapshot {
 public:
  /// `key` is one that the run has given to no other snapshot; `memory` is held along. Throws what
  /// Executor::submit throws.
  RunSnapshot(const RunClient& ranks, std::string key, SnapshotMemory memory);
  ~RunSnapshot();
  RunSnapshot(const RunSnapshot&) = delete;
  RunSnapshot& operator=(const RunSnapshot&) = delete;

  const std::string& key() const { return key_; }
  /// Waits until the ranks have it. Throws what they refuse it with.
  void wait() const { kept_.get(); }

 private:
  const RunClient ranks_;
  const std::string key_;
  const SnapshotMemory memory_;
  const Answer<void> kept_;
};

}  // namespace meshloom::control
