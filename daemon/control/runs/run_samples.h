// SPDX-License-Identifier: Apache-2.0
// RunSamples: the samples of a run that wait for the ranks, or for the epoch behind its loss.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/jobs/memory_budget.h"
#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/jobs/tokenization.h"
#include "daemon/control/runs/operations.h"
#include "daemon/control/runs/run_sample.h"
#include "daemon/control/runs/run_weights.h"
#include "daemon/control/runs/waiting_memory.h"

namespace meshloom::control {

/// It is thread safe and takes its own mutex, with which it counts what waits (WaitingMemory) and
/// makes operations. Memory is asked for, samples begin and operations fail without it.
class RunSamples {
 public:
  using ProgressPtr = std::shared_ptr<SampleProgress>;
  /// These outlive it.
  struct Parts {
    Operations& operations;
    WaitingMemory& waiting;
    SampleScheduler& scheduler;
    Tokenization& tokenization;
    MemoryBudget& budget;
    RunWeights& weights;
  };
  struct Waiting {
    std::string operation;
    SampleOrder order;
    ProgressPtr progress;
    MemoryUnits memory;
  };
  /// What an order is checked against.
  struct Model {
    std::int64_t step = 0;
    std::int64_t context_length = 0;
    std::int64_t seq_len = 0;  ///< the longest of Forward; 0: any
  };

  /// `run` is an id.
  RunSamples(const Parts& parts, std::string run, std::string client)
      : parts_(parts), run_(std::move(run)), client_(std::move(client)) {}

  /// Throws FailedPrecondition (WEIGHTS_STALE, SNAPSHOT_STALE), InvalidArgument for what Forward
  /// cannot take.
  void check(const SampleOrder& order, const Model& model) const;
  /// Makes an operation of the order's epoch, which waits. Throws ResourceExhausted (RESULTS_FULL).
  v1::Operation add(const SampleOrder& order, const ProgressPtr& progress);
  /// Makes one of a sample that waits until it is taken. Throws ResourceExhausted (RESULTS_FULL,
  /// VERBS_FULL).
  v1::Operation add_waiting(SampleOrder order, const ProgressPtr& progress);
  /// Returns what waits, oldest first; some may have been cancelled.
  std::vector<Waiting> take_waiting();
  /// Gives the order the memory that drawing takes, and the weights that have its name now. Throws
  /// ResourceExhausted, FailedPrecondition (SNAPSHOT_STALE).
  void hold_memory(SampleOrder& order, const v1::RunConfig& resolved);
  /// Begins to draw for an operation, which fails with what is thrown.
  void begin(const std::string& operation, SampleOrder order, const ProgressPtr& progress);
  /// The sample of this operation has found the weights lost: it ends with fail().
  void add_lost(const std::string& operation);
  /// Fails all that wait, and all that are lost.
  void fail(const Error& error);

 private:
  /// Counts one more that waits. The mutex is held.
  MemoryUnits hold_waiting(const SampleOrder& order);
  v1::Operation add_locked(const SampleOrder& order, const ProgressPtr& progress);

  const Parts parts_;
  const std::string run_, client_;
  std::mutex mutex_;
  std::int64_t next_ = 1;
  std::vector<Waiting> waiting_;  ///< for the ranks, oldest first
  std::vector<std::string> lost_;
};

}  // namespace meshloom::control
