// SPDX-License-Identifier: Apache-2.0
// RunSession for clients: verbs, the lease, views.
#include "daemon/control/runs/run_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "daemon/base/states.h"
#include "daemon/control/net/secret.h"
#include "daemon/control/net/status.h"
#include "daemon/control/runs/run_token.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

std::chrono::seconds gap_timeout_of(const v1::RunSpec& spec) {
  return std::chrono::seconds(spec.has_gap_timeout_seconds() ? spec.gap_timeout_seconds() : 60);
}

std::chrono::seconds lease_of(const v1::RunSpec& spec) {
  return std::chrono::seconds(spec.has_lease_seconds() ? spec.lease_seconds() : 600);
}

}  // namespace

RunSession::RunSession(RunWorld& world, v1::RunRecord record)
    : world_(world),
      id_(parse_run_name(record.run().name())),
      client_(record.run().client()),
      ranks_(world.executor, id_),
      record_(std::move(record)),
      run_(*record_.mutable_run()),
      states_(world.store, world.state, world.uptime, id_),
      weights_({world.admission, world.store, world.state, ranks_}, id_,
               std::move(*run_.mutable_weights())),
      queue_({world.operations, world.waiting, world.uploads, states_, world.most_upload_bytes},
             {id_, client_}, run_.next_seq(), gap_timeout_of(run_.spec())),
      lease_(std::make_shared<RunLease>(lease_of(run_.spec()))) {
  run_.clear_weights();
  restore_saves();
}

v1::Run RunSession::told(const RunStore::StateRoom& states) const {
  // A run that a daemon before these limits has taken must not make a list fail, either.
  constexpr std::size_t kLargestConfigs = 1 << 20;
  v1::Run seen;
  {
    const std::lock_guard lock(mutex_);
    seen = run_;
    seen.set_next_seq(queue_.next_new());
    seen.set_lease_left_ms(lease_left_ms());
  }
  if (const std::size_t bytes = seen.spec().ByteSizeLong() + seen.resolved().ByteSizeLong();
      bytes > kLargestConfigs) {
    seen.mutable_spec()->clear_config();
    seen.clear_resolved();
    seen.add_notes(fmt::format("its config of {} bytes is too large to be told", bytes));
  }
  *seen.mutable_weights() = weights_.all();
  states_.tell(states, &seen);
  if (!queued()) return seen;
  for (std::string& name : world_.turn.ahead_of(seen.name())) seen.add_ahead(std::move(name));
  if (v1::RanksWait wait = ranks_wait(); !wait.reason().empty())
    *seen.mutable_wait() = std::move(wait);
  return seen;
}

v1::RanksWait RunSession::ranks_wait() const {
  return world_.wait_of ? world_.wait_of(run_resource(id_)) : v1::RanksWait();
}

RunSession::Holding RunSession::holding() const {
  const std::lock_guard lock(mutex_);
  const bool kept = lease_->is_held() || world_.operations.open_of(id_) > 0;
  return {client_, lease_left_ms(), run_.state() == v1::RUN_STATE_READY && !end_ && !kept};
}

v1::Run RunSession::view() const { return told({.all = 3 << 19, .with_metadata = 1 << 20}); }

v1::Run RunSession::summary() const {
  v1::Run seen = told({.all = 16 << 10, .with_metadata = 0});
  seen.clear_resolved();
  seen.clear_notes();
  seen.clear_plan();
  return seen;
}

v1::RunConfig RunSession::resolved() const {
  const std::lock_guard lock(mutex_);
  return run_.resolved();
}

void RunSession::check_holder(const std::string& token) {
  const std::string digest = token_digest(token);
  const std::lock_guard lock(mutex_);
  if (same_secret(digest, record_.token_digest())) return lease_->renew();
  throw FailedPrecondition(
      fmt::format("this is not the token of run \"{}\": send the one that CreateRun returned as "
                  "metadata \"{}\"",
                  id_, kRunTokenKey),
      "TOKEN_INVALID", {{"run", id_}});
}

void RunSession::replace_token(const std::string& digest) {
  {
    const std::lock_guard lock(mutex_);
    record_.set_token_digest(digest);
  }
  persist();
}

v1::HeartbeatResponse RunSession::heartbeat() const {
  v1::HeartbeatResponse response;
  {
    const std::lock_guard lock(mutex_);
    check_not_ended_locked();
    response.set_state(run_.state());
    response.set_epoch(run_.epoch());
    response.set_lease_left_ms(lease_left_ms());
  }
  if (!queued()) return response;
  if (v1::RanksWait wait = ranks_wait(); !wait.reason().empty())
    *response.mutable_wait() = std::move(wait);
  return response;
}

bool RunSession::ended() const {
  const std::lock_guard lock(mutex_);
  return has_ended();
}

Error RunSession::recovered_error(const std::string& cause, std::int64_t next) const {
  const auto state = states_.newest_readable();
  const std::string from = state ? fmt::format("from {} (step {})", state->name(), state->step())
                           : !states_.empty() ? "from none of its saved states, which are damaged"
                                              : "from its initial weights";
  return Aborted(fmt::format("{}; run \"{}\" begins anew {}, epoch {}, next number {}", cause, id_,
                             from, run_.epoch(), next),
                 "RUN_RECOVERED",
                 {{"run", id_},
                  {"state", state ? state->name() : ""},
                  {"step", std::to_string(state ? state->step() : 0)},
                  {"epoch", std::to_string(run_.epoch())},
                  {"next_seq", std::to_string(next)}});
}

void RunSession::check_not_ended() const {
  const std::lock_guard lock(mutex_);
  check_not_ended_locked();
}

void RunSession::check_not_ended_locked() const {
  if (!has_ended() && !end_ && run_.state() != v1::RUN_STATE_CLOSING) return;
  const v1::ErrorDetails& cause = run_.cause();
  // A client goes on from the state that it is told, which is not there yet.
  if (!has_ended() && end_ && end_->save)
    throw Unavailable(
        fmt::format("run \"{}\" is being saved, then it is closed: {}", id_, cause.message()),
        "LEASE_ENDING", {{"run", id_}});
  const bool lease = cause.info().reason() == kLeaseEnded;
  const auto state = states_.newest_readable();
  throw FailedPrecondition(fmt::format("run \"{}\" is closed{}", id_,
                                       cause.message().empty() ? "" : ": " + cause.message()),
                           lease ? kLeaseEnded : "RUN_CLOSED",
                           {{"run", id_},
                            {"state", state ? state->name() : ""},
                            {"next_seq", std::to_string(state ? state->next_seq() : 1)}});
}

void RunSession::check_open(std::int64_t epoch) const {
  check_not_ended_locked();
  if (epoch == run_.epoch()) return;
  if (epoch > 0 && epoch < run_.epoch())
    throw recovered_error(fmt::format("epoch {} has ended", epoch), queue_.next_new());
  throw InvalidArgument(fmt::format("epoch {} is not the run's, which is {}", epoch, run_.epoch()),
                        "EPOCH_UNKNOWN", {{"field", "id.epoch"}});
}

v1::Operation RunSession::submit(Verb::Request request) {
  VerbQueue::Arrival arrival(std::move(request));
  const std::lock_guard lock(mutex_);
  if (auto saved = finished_save(arrival.request)) return *std::move(saved);
  check_open(id_of(arrival.request).epoch());
  changed_.notify_all();  // what is refused has its place in the order, too
  return queue_.submit(std::move(arrival));
}

std::optional<v1::Operation> RunSession::finished_save(const Verb::Request& request) const {
  const v1::VerbId id = id_of(request);
  std::string wanted;
  if (const auto* state = std::get_if<v1::SaveStateRequest>(&request))
    wanted = state_resource(id_, state->name());
  else if (const auto* weights = std::get_if<v1::SaveWeightsRequest>(&request))
    wanted = weights_resource(id_, weights->name());
  if (wanted.empty() || id.epoch() >= run_.epoch()) return std::nullopt;
  const std::string name = operation_name(id_, id.epoch(), std::to_string(id.seq()));
  try {
    const Operations::Result result = world_.operations.result(name);
    if (!result) return std::nullopt;
    const bool same =
        result->saved_state().name() == wanted || result->saved_weights().name() == wanted;
    return same ? std::optional(world_.operations.get(name)) : std::nullopt;
  } catch (const NotFound&) {
    return std::nullopt;
  }
}

void RunSession::close(const std::optional<Error>& cause) {
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

void RunSession::give_up(const Error& cause) {
  {
    const std::lock_guard lock(mutex_);
    if (has_ended()) return;
    if (!end_) *run_.mutable_cause() = to_details(cause);
    end_ = End{false};
  }
  end_as(v1::RUN_STATE_CLOSED);
}

void RunSession::drain() {
  bool driven = false;
  {
    const std::lock_guard lock(mutex_);
    driven = driven_;
    draining_ = driven && !has_ended() && !end_;
    changed_.notify_all();
  }
  if (!driven) close(drained_error());
}

Error RunSession::closed_error() const {
  return FailedPrecondition(fmt::format("run \"{}\" was closed before", id_), "RUN_CLOSED",
                            {{"run", id_}});
}

void RunSession::end_as(v1::RunState state) {
  {
    const std::lock_guard lock(mutex_);
    if (!end_) end_ = End{false};  // nothing more is taken, which nobody would end
    fail_waiting(closed_error());
    queue_.forget_numbers();
  }
  set_state(state);
  world_.operations.close_run(id_);
  world_.uploads.drop_run(run_resource(id_));
  world_.freed = true;
  world_.turn.wake();  // it may wait for the ranks
}

void RunSession::explain_lost(std::int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  if (epoch > 0 && epoch < run_.epoch())
    throw recovered_error(fmt::format("epoch {} has ended with its operations", epoch),
                          queue_.next_new());
}

std::string RunSession::waits_for(const v1::Operation& operation) const {
  bool ready = false;
  {
    const std::lock_guard lock(mutex_);
    ready = run_.state() == v1::RUN_STATE_READY;
  }
  if (!ready) {
    const std::string reason = ranks_wait().reason();
    return reason.empty() ? "the ranks, which make the run" : "the ranks, " + reason;
  }
  std::int64_t seq = 0;
  const auto slash = operation.name().rfind('/');
  std::from_chars(operation.name().data() + slash + 1,
                  operation.name().data() + operation.name().size(), seq);
  return queue_.waits_for(seq);
}

bool RunSession::queued() const {
  const std::lock_guard lock(mutex_);
  return run_.state() == v1::RUN_STATE_QUEUED || run_.state() == v1::RUN_STATE_RECOVERING;
}

void RunSession::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void RunSession::check_times() {
  {
    const std::lock_guard lock(mutex_);
    if (has_ended() || end_) return;
    const auto now = Clock::now();
    if (queue_.end_gap(now)) changed_.notify_all();
    if (!lease_->has_run_out(world_.operations.open_of(id_) > 0, now)) return;
  }
  spdlog::warn("run {}: its lease has ended", id_);
  close(FailedPrecondition(
      fmt::format("its lease of {} s has ended: no call came for it", lease_->length().count()),
      kLeaseEnded, {{"run", id_}}));
}

void RunSession::fail_waiting(const Error& error) {
  queue_.fail_waiting(error);
  fail_lost_samples(error);
}

}  // namespace meshloom::control
