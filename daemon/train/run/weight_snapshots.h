// SPDX-License-Identifier: Apache-2.0
// WeightSnapshots: weights of a run as they were, to draw from after it has trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/train/run/model_state.h"

namespace meshloom::train {

/// One rank holds these parts of the snapshots of weights, in the dtype that the model computes in.
/// Nothing is copied until the run's weights are about to be overwritten; equal snapshots share a
/// copy. Every rank makes the same calls in the same order; none has collectives. Not thread-safe.
class WeightSnapshots {
 public:
  /// Weights is a snapshot, which lives as long as it has a name or somebody holds it.
  struct Weights {
    std::int64_t step = 0;       ///< optimizer steps behind them
    std::vector<Tensor> values;  ///< by parameter; empty while the run's own are the same
    Tensor scratch;              ///< of the largest, once there are values
  };
  using Handle = std::shared_ptr<Weights>;

  /// `state`, and `disk`, which load() reads, outlive this.
  WeightSnapshots(ModelState& state, base::Disk& disk) : state_(state), disk_(disk) {}

  /// Keeps the weights as they are now, those of `step`. Throws AlreadyExists.
  void keep(const std::string& name, std::int64_t step);
  /// Loads the weights of a Hugging Face folder, as they were at `step`: read once for all that
  /// hold them, and anew once another folder is in its place. If it throws, nothing has changed.
  Handle load(const std::filesystem::path& folder, std::int64_t step);
  /// Drops the name; nothing for a name that is not there.
  void drop(const std::string& name);
  /// Throws FailedPrecondition (SNAPSHOT_STALE).
  Handle find(const std::string& name) const;

  /// Tells whether before_write() takes memory: the same on every rank.
  bool to_be_copied() const { return !current_.expired(); }
  /// The run's weights are about to be overwritten. If it throws, nothing has changed.
  void before_write();
  /// Grows with every before_write(): equal numbers, equal weights.
  std::int64_t writes() const { return writes_; }

  /// The model computes with these weights from here on; null: with the run's own, which have to
  /// be in place for everything but drawing and scoring.
  void use(const Handle& weights);

 private:
  /// LoadedKey has folder, step, and what tells the folder from a later one of the same name.
  using LoadedKey = std::tuple<std::filesystem::path, std::int64_t, std::string>;

  Tensor value(std::size_t i) const { return state_.optimizer().parameters()[i].parameter->value; }
  /// Exchanges the run's weights with a snapshot's.
  void exchange(Weights& weights);

  /// Takes the values of all parameters.
  void fill(Weights& weights, std::vector<Tensor> values);

  ModelState& state_;
  base::Disk& disk_;
  std::map<std::string, Handle> names_;
  std::map<LoadedKey, std::weak_ptr<Weights>> loaded_;
  std::weak_ptr<Weights> current_;  ///< the snapshot of the weights as they are, if there is one
  Handle in_place_;                 ///< whose values the model has; its own then hold the run's
  std::int64_t writes_ = 0;
};

}  // namespace meshloom::train
