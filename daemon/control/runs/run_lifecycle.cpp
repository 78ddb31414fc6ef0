// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_lifecycle.h"

#include <fmt/format.h>

#include <utility>

#include "daemon/base/as_error.h"
#include "daemon/base/states.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/access/sharing.h"
#include "daemon/control/net/caller.h"
#include "daemon/control/net/secret.h"
#include "daemon/control/net/status.h"
#include "daemon/control/ranks/rank_error.h"
#include "daemon/control/runs/run_token.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

Error drained_error() { return FailedPrecondition("the daemon is drained", "DRAINED"); }

}  // namespace

RunLifecycle::RunLifecycle(RunParts& parts, v1::RunRecord record)
    : parts_(parts), record_(std::move(record)), run_(*record_.mutable_run()) {
  run_.clear_weights();
}

v1::RunRecord RunLifecycle::restarted(v1::RunRecord record,
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

RunSamples::Model RunLifecycle::Locked::sampled_model() const {
  return {run().step(), limits().context_length, run().resolved().training().seq_len()};
}

bool RunLifecycle::ended() const {
  const std::lock_guard lock(mutex_);
  return has_ended();
}

bool RunLifecycle::queued() const {
  const std::lock_guard lock(mutex_);
  return run_.state() == v1::RUN_STATE_QUEUED || run_.state() == v1::RUN_STATE_RECOVERING;
}

void RunLifecycle::check_token(const std::string& token) const {
  const std::string digest = token_digest(token);
  const std::lock_guard lock(mutex_);
  if (same_secret(digest, record_.token_digest())) return;
  throw FailedPrecondition(
      fmt::format("this is not the token of run \"{}\": send the one that CreateRun returned as "
                  "metadata \"{}\"",
                  parts_.id, kRunTokenKey),
      "TOKEN_INVALID", {{"run", parts_.id}});
}

void RunLifecycle::share(const std::string& with, bool take_back) {
  {
    const std::lock_guard lock(mutex_);
    share_with(with, take_back, record_.mutable_run()->mutable_shared_with());
  }
  persist();
}

void RunLifecycle::replace_token(const std::string& digest) {
  {
    const std::lock_guard lock(mutex_);
    record_.set_token_digest(digest);
  }
  persist();
}

Error RunLifecycle::recovered_error(const std::string& cause, std::int64_t next) const {
  const auto state = parts_.states.newest_readable();
  const std::string from = state ? fmt::format("from {} (step {})", state->name(), state->step())
                           : !parts_.states.empty()
                               ? "from none of its saved states, which are damaged"
                               : "from its initial weights";
  return Aborted(fmt::format("{}; run \"{}\" begins anew {}, epoch {}, next number {}", cause,
                             parts_.id, from, run_.epoch(), next),
                 "RUN_RECOVERED",
                 {{"run", parts_.id},
                  {"state", state ? state->name() : ""},
                  {"step", std::to_string(state ? state->step() : 0)},
                  {"epoch", std::to_string(run_.epoch())},
                  {"next_seq", std::to_string(next)}});
}

void RunLifecycle::check_not_ended() const {
  if (!has_ended() && !end_ && run_.state() != v1::RUN_STATE_CLOSING) return;
  const v1::ErrorDetails& cause = run_.cause();
  // A client goes on from the state that it is told, which is not there yet.
  if (!has_ended() && end_ && end_->save)
    throw Unavailable(
        fmt::format("run \"{}\" is being saved, then it is closed: {}", parts_.id, cause.message()),
        "LEASE_ENDING", {{"run", parts_.id}});
  const bool lease = cause.info().reason() == kLeaseEnded;
  const auto state = parts_.states.newest_readable();
  throw FailedPrecondition(fmt::format("run \"{}\" is closed{}", parts_.id,
                                       cause.message().empty() ? "" : ": " + cause.message()),
                           lease ? kLeaseEnded : "RUN_CLOSED",
                           {{"run", parts_.id},
                            {"state", state ? state->name() : ""},
                            {"next_seq", std::to_string(state ? state->next_seq() : 1)}});
}

void RunLifecycle::check_open(std::int64_t epoch) const {
  check_not_ended();
  if (epoch == run_.epoch()) return;
  if (epoch > 0 && epoch < run_.epoch())
    throw recovered_error(fmt::format("epoch {} has ended", epoch), parts_.queue.next_new());
  throw InvalidArgument(fmt::format("epoch {} is not the run's, which is {}", epoch, run_.epoch()),
                        "EPOCH_UNKNOWN", {{"field", "id.epoch"}});
}

void RunLifecycle::explain_lost(std::int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  if (epoch > 0 && epoch < run_.epoch())
    throw recovered_error(fmt::format("epoch {} has ended with its operations", epoch),
                          parts_.queue.next_new());
}

Error RunLifecycle::closed_error() const {
  return FailedPrecondition(fmt::format("run \"{}\" was closed before", parts_.id), "RUN_CLOSED",
                            {{"run", parts_.id}});
}

void RunLifecycle::close(const std::optional<Error>& cause) {
  bool driven = false;
  {
    const std::lock_guard lock(mutex_);
    if (has_ended() || end_) return;
    end_ = End{cause.has_value()};
    run_.clear_cause();
    if (cause) *run_.mutable_cause() = to_details(*cause);
    driven = driven_;
    if (driven) base::move_to(run_, v1::RUN_STATE_CLOSING);
    changed_.notify_all();
  }
  // Durably, so that the next daemon does not begin it anew.
  if (driven) return persist();
  end_as(v1::RUN_STATE_CLOSED);  // the ranks know nothing of it
}

void RunLifecycle::give_up(const Error& cause) {
  {
    const std::lock_guard lock(mutex_);
    if (has_ended()) return;
    if (!end_) *run_.mutable_cause() = to_details(cause);
    end_ = End{false};
  }
  end_as(v1::RUN_STATE_CLOSED);
}

void RunLifecycle::drain() {
  bool driven = false;
  {
    const std::lock_guard lock(mutex_);
    driven = driven_;
    draining_ = driven && !has_ended() && !end_;
    changed_.notify_all();
  }
  if (!driven) close(drained_error());
}

void RunLifecycle::end_drain(bool saved) {
  {
    const std::lock_guard lock(mutex_);
    draining_ = false;
    if (end_) {
      end_->save = end_->save && !saved;
    } else if (saved) {
      end_ = End{false};
      *run_.mutable_cause() = to_details(drained_error());
      base::move_to(run_, v1::RUN_STATE_CLOSING);
    } else {
      note("the daemon is being drained: the run could not be saved and goes on");
    }
  }
  persist();
}

void RunLifecycle::end_as(v1::RunState state) {
  {
    const std::lock_guard lock(mutex_);
    if (!end_) end_ = End{false};  // nothing more is taken, which nobody would end
    const Error closed = closed_error();
    parts_.queue.fail_waiting(closed);
    parts_.samples.fail(closed);
    parts_.queue.forget_numbers();
  }
  set_state(state);
  RunContext& context = parts_.context;
  context.operations.close_run(parts_.id);
  context.uploads.drop_run(run_resource(parts_.id));
  context.freed = true;
  context.turn.wake();  // it may wait for the ranks
}

void RunLifecycle::set_state(v1::RunState state) {
  {
    const std::lock_guard lock(mutex_);
    if (run_.state() == v1::RUN_STATE_CLOSING) {
      // A close that came meanwhile stays, and nothing else ends the run.
      if (!base::is_final(state)) return;
      state = v1::RUN_STATE_CLOSED;
    }
    base::move_to(run_, state);
    if (has_ended()) run_.set_end_time(base::now_rfc3339());
    changed_.notify_all();
  }
  persist();
  spdlog::info("run {}: {}", parts_.id,
               v1::RunState_Name(state).substr(std::string("RUN_STATE_").size()));
}

void RunLifecycle::wake() const {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void RunLifecycle::forget() {
  parts_.states.finish_changes();
  const std::lock_guard one(persist_mutex_);
  forgotten_ = true;
}

void RunLifecycle::persist() {
  const std::lock_guard one(persist_mutex_);
  if (forgotten_) return;
  v1::RunRecord record;
  {
    const std::lock_guard lock(mutex_);
    record = record_;
    record.mutable_run()->set_next_seq(parts_.queue.next());
  }
  parts_.context.store.put_kept(record);
}

bool RunLifecycle::end_lost_sample(std::int64_t epoch, const std::string& operation,
                                   const std::exception_ptr& error) {
  Operations& operations = parts_.context.operations;
  const std::lock_guard lock(mutex_);
  if (parts_.context.stopping) return false;
  if (has_ended() || end_) {
    if (!error) return false;
    // The ranks have let the run go: what they say of it is no cause.
    operations.fail(operation, to_details(closed_error()));
    return true;
  }
  if (epoch < run_.epoch()) {
    operations.fail(operation, to_details(recovered_error(fmt::format("epoch {} has ended", epoch),
                                                          parts_.queue.next_new())));
    return true;
  }
  if (!error || !loses_run(error)) return false;
  // It waits for the next epoch, whose number and state its error names.
  if (!lost_) lost_ = base::as_error(error);
  parts_.samples.add_lost(operation);
  changed_.notify_all();
  return true;
}

bool RunLifecycle::begin_driving() {
  {
    const std::lock_guard lock(mutex_);
    if (has_ended() || end_) return false;
    driven_ = true;
    if (run_.state() != v1::RUN_STATE_QUEUED) return true;
    // At once: a run that is driven can become CLOSING, which one that is queued cannot.
    base::move_to(run_, v1::RUN_STATE_CREATING);
  }
  set_state(v1::RUN_STATE_CREATING);
  return true;
}

void RunLifecycle::set_made(const v1::CreateRunResult& made) {
  const std::lock_guard lock(mutex_);
  run_.set_step(made.step_count());
  run_.set_plan(made.plan());
  run_.set_vocab_size(made.vocab_size());
  run_.set_context_length(made.context_length());
  for (const std::string& text : made.notes()) note(text);
  limits_ = {made.vocab_size(), made.context_length()};
  // What else than a damaged state began this epoch is over; why the run ends is not.
  if (!end_ && run_.cause().info().reason() != kStateDamaged) run_.clear_cause();
}

void RunLifecycle::set_cause(const Error& cause) {
  const std::lock_guard lock(mutex_);
  if (!end_) *run_.mutable_cause() = to_details(cause);
}

void RunLifecycle::add_note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  note(text);
}

void RunLifecycle::set_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  run_.set_step(step);
}

void RunLifecycle::lose(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (!lost_) lost_ = base::as_error(error);
}

void RunLifecycle::skip_damaged(const Error& cause) {
  {
    const std::lock_guard lock(mutex_);
    if (parts_.states.newest_readable()) begin_epoch(cause);
  }
  persist();
}

void RunLifecycle::begin_epoch(const Error& cause) {
  run_.set_epoch(run_.epoch() + 1);
  const auto state = parts_.states.newest_readable();
  const std::int64_t next = state ? state->next_seq() : 1;
  parts_.weights.drop_snapshots();
  run_.set_step(state ? state->step() : 0);
  if (!end_) *run_.mutable_cause() = to_details(cause);
  const Error recovered = recovered_error(cause.what(), next);
  parts_.queue.begin_epoch(next, recovered);
  parts_.samples.fail(recovered);
  note(fmt::format("epoch {} began: {}", run_.epoch(), cause.what()));
}

RunLifecycle::Next RunLifecycle::wait_for_next() {
  const RunContext& context = parts_.context;
  std::unique_lock lock(mutex_);
  while (true) {
    if (end_ || context.stopping || context.executor.fatal()) return {Act::kEnd};
    const bool idle = parts_.queue.none_in_flight();
    if (lost_ && idle) {
      const Error lost = *std::exchange(lost_, std::nullopt);
      begin_epoch(Error(lost.kind(), lost.reason(),
                        fmt::format("its weights were lost: {}", lost.what()), lost.metadata()));
      return {Act::kMake};
    }
    if (draining_ && idle) return {Act::kSave};
    if (!lost_ && !draining_ && parts_.queue.may_start())
      return {Act::kStart, parts_.queue.take(), run_.epoch()};
    changed_.wait(lock);
  }
}

RunLifecycle::Ending RunLifecycle::ending() const {
  const std::lock_guard lock(mutex_);
  return {end_.has_value(), end_ ? end_->save : parts_.context.stopping.load(), lost_.has_value()};
}

void RunLifecycle::end_saving() {
  const std::lock_guard lock(mutex_);
  if (end_) end_->save = false;
}

}  // namespace meshloom::control
