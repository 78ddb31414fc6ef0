// SPDX-License-Identifier: Apache-2.0
// RunWeights: the weights that a run has saved, in the memory of the ranks and on disk.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/host/hold.h"
#include "daemon/control/jobs/memory_budget.h"
#include "daemon/control/runs/run_snapshot.h"
#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/state_dir.h"
#include "daemon/control/stores/uses.h"

namespace meshloom::control {

/// It is thread safe and takes its own mutexes. The budget is asked for memory, weights become
/// durable, files are removed and snapshots end without the one by which readers wait. `resolved`
/// is the run's config. Names are whole: "runs/RUN/weights/NAME".
class RunWeights {
 public:
  using SnapshotPtr = std::shared_ptr<const RunSnapshot>;
  using List = google::protobuf::RepeatedPtrField<v1::SavedWeights>;
  /// These outlive it.
  struct Parts {
    MemoryBudget& budget;
    RunStore& store;
    const StateDir& dir;
    const Uses& uses;  ///< of names that are being saved or deleted
    const RunClient& ranks;
  };

  /// `run` is an id; `saved`: on disk, by an earlier daemon.
  RunWeights(const Parts& parts, std::string run, List saved)
      : parts_(parts), run_(std::move(run)), saved_(std::move(saved)) {}

  List all() const;
  /// The folder is absolute; `weights` is the last part of a name.
  std::filesystem::path folder_of(const std::string& weights) const;
  /// Throws NotFound (WEIGHTS_NOT_FOUND).
  v1::SavedWeights find(const std::string& name) const;
  /// Finds what a sample is to draw from. Throws FailedPrecondition (SNAPSHOT_STALE).
  v1::SavedWeights drawn(const std::string& name) const;

  /// Nobody else saves or deletes weights of this name until the result is let go. Throws
  /// AlreadyExists (WEIGHTS_EXIST) for one that is taken, ResourceExhausted (WEIGHTS_FULL).
  Hold claim(const std::string& name);
  /// Begins to keep the run's weights in memory, for who calls them `weights`, a last part of a
  /// name. Throws ResourceExhausted (TOO_MANY_SNAPSHOTS, MEMORY_ESTIMATE).
  SnapshotPtr keep_snapshot(const std::string& weights, const v1::RunConfig& resolved);
  /// The run has them from here on; `snapshot`: those of weights in memory. Those on disk are
  /// durable when it returns; where it throws instead their files are gone.
  void keep(const v1::SavedWeights& saved, SnapshotPtr snapshot);
  /// Samples that draw from them go on. Throws as find.
  void remove(const std::string& name);
  /// Nothing is kept in memory from here on; samples that draw from such weights have them still.
  void drop_snapshots();

  /// What a sample draws from, and what is held until it has: weights in memory, or the memory of
  /// weights on disk.
  struct Drawn {
    RunClient::SampleOrigin origin;
    SnapshotPtr snapshot = nullptr;
    std::shared_ptr<const SnapshotMemory> loaded = nullptr;
  };
  /// Holds the weights that have the name (its last part) at this moment. Throws as drawn, and
  /// ResourceExhausted as keep_snapshot where they lie on disk.
  Drawn hold(const std::string& weights, const v1::RunConfig& resolved);

 private:
  const v1::SavedWeights* saved_as(const std::string& name) const;  ///< null: there are none
  v1::SavedWeights named(const std::string& name) const;            ///< as find, with the mutex
  v1::SavedWeights drawn_locked(const std::string& name) const;
  /// Until it is let go the name is taken.
  Hold add_claim(const std::string& name) const;
  SnapshotMemory hold_snapshot(const v1::RunConfig& resolved);
  /// One copy for all that draw from the same weights on disk at the same time.
  std::shared_ptr<const SnapshotMemory> hold_loaded(const std::string& name,
                                                    const v1::RunConfig& resolved);

  const Parts parts_;
  const std::string run_;
  std::mutex loading_;  ///< while memory of weights on disk is asked for; taken before mutex_
  mutable std::mutex mutex_;
  List saved_;
  /// Weights in memory, by their name; samples hold what they draw from as well.
  std::map<std::string, SnapshotPtr> snapshots_;
  std::int64_t next_snapshot_ = 1;
  std::map<std::string, std::weak_ptr<const SnapshotMemory>> loaded_memory_;  ///< of those on disk
  /// How many weights have memory or have asked for it. It grows with the mutex held; they may
  /// outlive the run.
  const std::shared_ptr<std::atomic<std::size_t>> held_weights_ =
      std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace meshloom::control
