// SPDX-License-Identifier: Apache-2.0
// RunSnapshot: weights of a run in the memory of its ranks, for as long as somebody holds them.
#pragma once

#include <memory>
#include <string>

#include "daemon/control/ranks/run_client.h"

namespace meshloom::control {

/// The ranks keep the weights that the run has when it is made, and drop them with it: who holds it
/// draws from these, whatever has become of the name that a client gave them. Any thread may let it
/// go.
class RunSnapshot {
 public:
  using Memory = std::shared_ptr<const void>;

  /// `key` is one that the run has given to no other snapshot; `memory` is held along. Throws what
  /// Executor::submit throws.
  RunSnapshot(const RunClient& ranks, std::string key, Memory memory);
  ~RunSnapshot();
  RunSnapshot(const RunSnapshot&) = delete;
  RunSnapshot& operator=(const RunSnapshot&) = delete;

  const std::string& key() const { return key_; }
  /// Waits until the ranks have it. Throws what they refuse it with.
  void wait() const { kept_.get(); }

 private:
  const RunClient ranks_;
  const std::string key_;
  const Memory memory_;
  const Answer<void> kept_;
};

}  // namespace meshloom::control
