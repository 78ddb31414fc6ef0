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
#include "daemon/control/ranks/run_client.h"
#include "daemon/control/runs/run_snapshot.h"
#include "daemon/control/runs/verb.h"
#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/state_dir.h"
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
  /// Asks the ranks to leave it before its end; false where it is too late. Empty: it is not left.
  std::function<bool()> stop = nullptr;
};

/// By which a verb is stopped from the moment on that it is about to be launched. Any thread may
/// call any method.
class VerbStop {
 public:
  /// False where it is too late, or the verb is not left before its end.
  bool request() {
    const std::lock_guard lock(mutex_);
    if (launched_) return stop_ && stop_();
    requested_ = true;
    return true;
  }
  /// The ranks have the verb, whose VerbInFlight::stop this is. False where a stop was requested
  /// before, and comes too late: the ranks have carried the verb out already.
  bool launched(std::function<bool()> stop) {
    const std::lock_guard lock(mutex_);
    launched_ = true;
    stop_ = std::move(stop);
    return !requested_ || (stop_ && stop_());
  }

 private:
  std::mutex mutex_;
  std::function<bool()> stop_;
  bool launched_ = false, requested_ = false;
};

/// What verbs that name files need to know of their run.
struct VerbPlace {
  const StateDir& state;
  std::string run;
  std::int64_t epoch = 0;
  const RunClient::BatchRules& rules;
  TransientUploads& uploads;
  const RunStore& store;
  /// Makes a state that the ranks have written durable, and returns it complete. Throws where the
  /// disk is full.
  std::function<v1::SavedState(v1::SavedState saved)> keep_state;
  /// Nobody else saves or deletes weights of this name until the result is let go. Throws
  /// AlreadyExists (WEIGHTS_EXIST) for one that is taken.
  std::function<Hold(const std::string& name)> claim_weights;
  /// Begins to keep the run's weights in memory, for who calls them `name`. Throws
  /// ResourceExhausted (TOO_MANY_SNAPSHOTS, MEMORY_ESTIMATE).
  std::function<std::shared_ptr<const RunSnapshot>(const std::string& name)> keep_snapshot;
  /// Throws ResourceExhausted (STATES_FULL) where there is no room for the record of a state.
  std::function<void(const v1::SaveStateRequest& request)> check_state_room;
  /// As Admission::hold_upload.
  std::function<MemoryUnits(std::int64_t bytes)> hold_upload;
  /// As Admission::tokenize_reference.
  std::function<train::TokenizedText(v1::DataReference* reference)> tokenize;
  /// The run has these weights from here on; returns them complete. `snapshot`: of those in memory.
  std::function<v1::SavedWeights(v1::SavedWeights saved,
                                 std::shared_ptr<const RunSnapshot> snapshot)>
      keep_weights;
};

/// Gives the ranks the verb's commands. Throws AlreadyExists for the name of a state or of weights
/// that is taken, NotFound for a state that is not there, ResourceExhausted where the verb's upload
/// takes too much memory, which it then is not taken for, or there is no room for what a run saves,
/// and what Executor::submit throws: the
/// ranks have then heard nothing. A batch that does not fit the run is a verb that fails in its
/// turn; gradients that it should have added are poisoned.
/// The verb's data are moved out of it.
VerbInFlight launch(const RunClient& run, Verb& verb, const VerbPlace& place);

}  // namespace meshloom::control
