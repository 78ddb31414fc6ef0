// SPDX-License-Identifier: Apache-2.0
// RunSession and what survives it: its record in the journal, and its saved states.
#include <algorithm>

#include "daemon/base/states.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/net/status.h"
#include "daemon/control/runs/run_session.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/log.h"

namespace meshloom::control {
v1::RunRecord RunSession::restarted(v1::RunRecord record,
                                    const std::optional<v1::SavedState>& newest) {
  v1::Run& run = *record.mutable_run();
  if (control::has_ended(run)) return record;
  if (run.state() == v1::RUN_STATE_CLOSING) {
    const bool saved = newest && newest->epoch() == run.epoch() && newest->seq() == 0;
    if (run.cause().info().reason() == kLeaseEnded && !saved)
      keep_newest_note(kNotSaved + std::string("the daemon ended meanwhile"), run.mutable_notes());
    base::move_to(run, v1::RUN_STATE_CLOSED);
    run.set_end_time(base::now_rfc3339());
    return record;
  }
  run.clear_cause();
  run.set_epoch(run.epoch() + 1);
  run.set_next_seq(newest ? newest->next_seq() : 1);
  run.set_step(newest ? newest->step() : 0);
  if (run.state() != v1::RUN_STATE_QUEUED) base::move_to(run, v1::RUN_STATE_RECOVERING);
  return record;
}

void RunSession::restore_saves() {
  const auto restore = [&](const auto& saved, const char* verb, auto set) {
    if (saved.seq() == 0) return;
    auto result = std::make_shared<v1::VerbResult>();
    *set(*result) = saved;
    world_.operations.restore(id_, operation_name(id_, saved.epoch(), std::to_string(saved.seq())),
                              verb, std::move(result));
  };
  // The newest, as many as are kept of a run.
  for (const v1::SavedState& saved : states_.newest(Operations::kKept))
    restore(saved, "save_state", [](v1::VerbResult& of) { return of.mutable_saved_state(); });
  for (const v1::SavedWeights& saved : weights_.all())
    restore(saved, "save_weights", [](v1::VerbResult& of) { return of.mutable_saved_weights(); });
}

void RunSession::forget() {
  const std::lock_guard one(persist_mutex_);
  forgotten_ = true;
}

void RunSession::persist() {
  const std::lock_guard one(persist_mutex_);
  if (forgotten_) return;
  v1::RunRecord record;
  {
    const std::lock_guard lock(mutex_);
    record = record_;
    record.mutable_run()->set_next_seq(queue_.next());
  }
  world_.store.put_kept(record);
}

std::string RunSession::needed_state() const {
  const std::lock_guard lock(mutex_);
  return has_ended() || states_.newest_readable() ? "" : run_.spec().state();
}

void RunSession::collect_states(const std::set<std::string>& needed) {
  std::string own;
  {
    const std::lock_guard lock(mutex_);
    if (!has_ended())
      if (const auto newest = states_.newest_readable()) own = newest->name();
  }
  states_.remove_expired(own, needed);
}

}  // namespace meshloom::control
