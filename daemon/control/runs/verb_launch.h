// SPDX-License-Identifier: Apache-2.0
// From verbs of clients to commands of the ranks.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "daemon/control/host/hold.h"
#include "daemon/control/host/memory_units.h"
#include "daemon/control/jobs/memory_budget.h"
#include "daemon/control/ranks/run_client.h"
#include "daemon/control/runs/operations.h"
#include "daemon/control/runs/run_states.h"
#include "daemon/control/runs/run_weights.h"
#include "daemon/control/runs/verb.h"
#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/transient_uploads.h"

namespace meshloom::control {

/// A verb that the ranks have, or know to be missing.
struct VerbInFlight {
  std::string operation;
  std::int64_t seq = 0;
  bool adds_gradients = false;
  bool drops_gradients = false;
  /// Why the ranks have no gradients of it, which they were told by `poison`; empty: they were not.
  std::string missing = "";
  std::optional<std::int64_t> loaded_step = std::nullopt;  ///< at which the run then stands
  std::int64_t upload_bytes = 0;                           ///< that it has taken
  MemoryUnits upload_memory = {};                          ///< of these
  Hold weights = {};                                       ///< the name that it saves them under
  /// Waits for the ranks. Throws what the verb throws. Called once.
  std::function<v1::VerbResult()> finish = nullptr;
  /// Asks the ranks to leave it before its end; false where it is too late. Null: it is not left.
  std::shared_ptr<Operations::Stoppable> stop = nullptr;
};

/// By which a verb is stopped from the moment on that it is about to be launched. Any thread may
/// call any method.
class VerbStop final : public Operations::Stoppable {
 public:
  /// False where it is too late, or the verb is not left before its end.
  bool request_stop() override {
    const std::lock_guard lock(mutex_);
    if (launched_) return stop_ && stop_->request_stop();
    requested_ = true;
    return true;
  }
  /// The ranks have the verb, whose VerbInFlight::stop this is. False where a stop was requested
  /// before, and comes too late: the ranks have carried the verb out already.
  bool launched(std::shared_ptr<Operations::Stoppable> stop) {
    const std::lock_guard lock(mutex_);
    launched_ = true;
    stop_ = std::move(stop);
    return !requested_ || (stop_ && stop_->request_stop());
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Operations::Stoppable> stop_;
  bool launched_ = false, requested_ = false;
};

/// What a verb asks of who launches it.
class VerbRun {
 public:
  virtual ~VerbRun() = default;
  /// Does what Tokenization::tokenize_reference does. The thread that launches calls it.
  virtual train::TokenizedText tokenize(v1::DataReference* reference) = 0;
  /// Fills in the step at which the ranks have saved weights. Whoever calls VerbInFlight::finish
  /// calls it.
  virtual v1::SavedWeights at_step(v1::SavedWeights saved) const = 0;
};

/// Where a verb is launched. The references outlive its answer, but for `resolved` and `rules`.
struct LaunchContext {
  const RunClient& ranks;
  const std::string& run;  ///< its id
  std::int64_t epoch = 0;
  const v1::RunConfig& resolved;
  const RunClient::BatchRules& rules;
  MemoryBudget& budget;
  TransientUploads& uploads;
  const RunStore& store;
  RunStates& states;
  RunWeights& weights;
  VerbRun& caller;
};

/// Gives the ranks the verb's commands. Throws AlreadyExists for the name of a state or of weights
/// that is taken, NotFound for a state that is not there, ResourceExhausted where the verb's upload
/// takes too much memory, which it then is not taken for, or there is no room for what a run saves,
/// and what Executor::submit throws: the ranks have then heard nothing. A batch that does not fit
/// the run is a verb that fails in its turn; gradients that it should have added are poisoned. The
/// verb's data are moved out of it.
VerbInFlight launch(const LaunchContext& context, Verb& verb);

}  // namespace meshloom::control
