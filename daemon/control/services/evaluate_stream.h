// SPDX-License-Identifier: Apache-2.0
// Evaluate: what a call waits for, how far it is, and the loss.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "daemon/control/host/hold.h"
#include "daemon/control/jobs/config_resolver.h"
#include "daemon/control/jobs/evaluation.h"
#include "daemon/control/jobs/memory_budget.h"
#include "daemon/control/jobs/model_folders.h"
#include "daemon/control/jobs/sample_sources.h"
#include "daemon/control/jobs/tokenization.h"
#include "daemon/control/ranks/ranks_turn.h"
#include "daemon/control/runs/ranks_queue.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/state_dir.h"
#include "v1/evaluate_service.pb.h"

namespace meshloom::control {

/// What evaluations use of their daemon, which outlives them.
struct EvaluationServices {
  const JobStore& store;
  const StateDir& state;
  SampleSources sources;
  ConfigResolver& resolver;
  ModelFolders& folders;
  Tokenization& tokenization;
  MemoryBudget& budget;
  Executor& executor;
  RanksTurn& turn;
  const RanksQueue& queue;
  std::filesystem::path data_dir;
};

/// The services with what evaluations share. It outlives them.
struct EvaluationWorld : EvaluationServices {
  const std::atomic<bool>& stopping;
  std::atomic<std::int64_t>& next;  ///< number of the next one
};

/// Holds a thread of its host from its beginning to its end, while it waits for the ranks as well.
class EvaluateStream final : public Stream<v1::EvaluateResponse> {
 public:
  EvaluateStream(StreamHost& host, const Caller& caller, const EvaluationWorld& world,
                 const v1::EvaluateRequest& request)
      : Stream(host, caller, "Evaluate"), world_(world), request_(request) {}

 private:
  class Waiting;

  bool produce() override;
  v1::Evaluation evaluate();
  std::optional<v1::Job> find_job() const;
  v1::RunConfig config_for(const std::optional<v1::Job>& job) const;
  /// Models that the request, or the job, names stay as long as the call.
  Hold hold_models(const std::optional<v1::Job>& job) const;
  /// So does a checkpoint or an export of a job that is read; nothing is held for other folders.
  Hold pin_checkpoint(const std::filesystem::path& folder) const;
  /// The config, and the tokens of its text, which are made before the ranks are asked for.
  void prepare(const std::optional<v1::Job>& job, Evaluation::Work* work) const;
  /// The ranks, once it is its turn.
  Hold take_turn(const std::string& name);
  void tell_wait(const std::string& name);
  bool given_up() const { return world_.stopping || ended(); }
  /// Throws Cancelled once it is given up.
  void check_wanted() const;
  void part_done(const v1::EvaluateProgress& progress);

  const EvaluationWorld& world_;
  const v1::EvaluateRequest request_;
  std::chrono::steady_clock::time_point told_;  ///< when progress was written
};

}  // namespace meshloom::control
