// SPDX-License-Identifier: Apache-2.0
// RunDriver: a run while it has the ranks: verbs become commands, answers become results.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <string>

#include "daemon/control/runs/run_lifecycle.h"
#include "daemon/control/runs/run_parts.h"
#include "daemon/control/runs/verb_launch.h"

namespace meshloom::control {

/// One thread makes it and calls drive(), which has a second thread collect answers. Made anew for
/// each time that a run has the ranks. It has no lock of its own.
class RunDriver final : private VerbRun {
 public:
  /// `life` is that of the run with these parts; both outlive it.
  RunDriver(RunParts& parts, RunLifecycle& life);
  /// Makes the run on the ranks and carries out verbs until it is closed or the daemon stops.
  void drive();

 private:
  // From its newest state that can be read, else as its spec says; false, with the cause, if it
  // cannot be made.
  bool make_on_ranks();
  bool make_ready();  ///< and takes what has waited for that
  void create_on_ranks(const v1::SavedState* own);
  void skip_state(const std::string& name, const Error& damage);
  void begin_waiting_samples();

  /// Verbs in their order until the run is to end; false if it could not be made anew.
  bool carry_out();
  void start(const RunLifecycle::Next& next);
  /// Starts a verb; if that fails where no start can, what the run holds is lost.
  void start_safely(const RunLifecycle::Next& next);
  VerbInFlight poison(const MissingGradients& missing) const;
  /// The tokens of the text that a verb names, until the run is to end.
  train::TokenizedText tokenize(v1::DataReference* reference) override;
  void check_goes_on() const;

  // By the thread that collects.
  void collect();
  v1::SavedWeights at_step(v1::SavedWeights saved) const override;
  void set_step(const VerbInFlight& verb, const v1::VerbResult& result);
  /// Returns what the client of the oldest verb in flight is told, which has failed.
  v1::ErrorDetails fail_oldest(const std::exception_ptr& error);

  /// False, with a note, if it cannot be.
  bool save_last(const std::string& name, std::int64_t ttl_seconds);
  /// After the last verb; `made`: the ranks have it.
  void finish(bool made);

  RunParts& parts_;
  RunContext& context_;
  RunLifecycle& life_;
  const v1::RunConfig resolved_;
  RunClient::BatchRules rules_;
  /// KnownText is what a reference's section `data` becomes, with the tokens of its text.
  struct KnownText {
    std::string key;
    v1::DataConfig data;
    train::TokenizedText text;
  };
  std::deque<KnownText> texts_;  ///< newest last
};

}  // namespace meshloom::control
