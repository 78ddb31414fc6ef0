// SPDX-License-Identifier: Apache-2.0
// What a rank's worker makes runs with: the training engine, or a stand-in in tests.
#pragma once

#include <functional>
#include <memory>

#include "daemon/train/run/run.h"

namespace meshloom::control {

class RunFactory {
 public:
  virtual ~RunFactory() = default;
  /// Every rank calls it with equal arguments, in step (train::Run::create).
  virtual std::unique_ptr<train::Run> create(const v1::RunConfig& resolved,
                                             const train::RunOptions&) = 0;

  /// Runs a verb that all ranks run, such that it ends alike on all of them (train::run_in_step).
  virtual void run_in_step(const std::function<void()>& verb) { verb(); }
  /// Recoveries of the ranks so far (see comm/failure.h).
  virtual std::uint64_t recoveries() const { return 0; }
  /// Joins the recovery from another rank's failure and throws what it ended with.
  virtual void join_recovery() {}
};

}  // namespace meshloom::control
