// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_session.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>
#include <variant>

#include "daemon/control/runs/run_driver.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/log.h"

namespace meshloom::control {

RunSession::RunSession(RunContext& context, v1::RunRecord record)
    : parts_(context, record.run()), life_(parts_, std::move(record)) {
  parts_.context.operations.set_owner(id(), ownership().owner);
  restore_saves();
}

void RunSession::restore_saves() {
  const auto restore = [&](const auto& saved, const char* verb, auto set) {
    if (saved.seq() == 0) return;
    auto result = std::make_shared<v1::VerbResult>();
    *set(*result) = saved;
    parts_.context.operations.restore(
        id(), operation_name(id(), saved.epoch(), std::to_string(saved.seq())), verb,
        std::move(result));
  };
  // The newest, as many as are kept of a run.
  for (const v1::SavedState& saved : parts_.states.newest(Operations::kKept))
    restore(saved, "save_state", [](v1::VerbResult& of) { return of.mutable_saved_state(); });
  for (const v1::SavedWeights& saved : parts_.weights.all())
    restore(saved, "save_weights", [](v1::VerbResult& of) { return of.mutable_saved_weights(); });
}

std::int64_t RunSession::lease_left_ms(const v1::Run& run) const {
  return has_ended(run) ? 0 : parts_.lease->left().count();
}

v1::Run RunSession::told(const RunStore::StateRoom& states) const {
  // A run that a daemon before these limits has taken must not make a list fail, either.
  constexpr std::size_t kLargestConfigs = 1 << 20;
  v1::Run seen;
  {
    const RunLifecycle::Locked life = life_.lock();
    seen = life.run();
    seen.set_next_seq(parts_.queue.next_new());
    seen.set_lease_left_ms(lease_left_ms(seen));
    *seen.mutable_weights() = parts_.weights.all();
  }
  if (const std::size_t bytes = seen.spec().ByteSizeLong() + seen.resolved().ByteSizeLong();
      bytes > kLargestConfigs) {
    seen.mutable_spec()->clear_config();
    seen.clear_resolved();
    seen.add_notes(fmt::format("its config of {} bytes is too large to be told", bytes));
  }
  parts_.states.tell(states, &seen);
  if (!life_.queued()) return seen;
  for (std::string& name : parts_.context.turn.ahead_of(seen.name()))
    seen.add_ahead(std::move(name));
  if (v1::RanksWait wait = ranks_wait(); !wait.reason().empty())
    *seen.mutable_wait() = std::move(wait);
  return seen;
}

v1::RanksWait RunSession::ranks_wait() const {
  return parts_.context.waits.wait_of(run_resource(id()));
}

RunSession::Holding RunSession::holding() const {
  const RunLifecycle::Locked life = life_.lock();
  const bool kept = parts_.lease->is_held() || parts_.context.operations.open_of(id()) > 0;
  return {client(), lease_left_ms(life.run()),
          life.run().state() == v1::RUN_STATE_READY && !life.ending() && !kept};
}

v1::Run RunSession::view() const { return told({.all = 3 << 19, .with_metadata = 1 << 20}); }

v1::Run RunSession::summary() const {
  v1::Run seen = told({.all = 16 << 10, .with_metadata = 0});
  seen.clear_resolved();
  seen.clear_notes();
  seen.clear_plan();
  return seen;
}

void RunSession::check_holder(const std::string& token) {
  life_.check_token(token);
  parts_.lease->renew();
}

bool RunSession::is_of_holder(const std::string& token) {
  if (token.empty()) return false;
  check_holder(token);
  return true;
}

Hold RunSession::hold_lease_of(const std::string& token) {
  return is_of_holder(token) ? parts_.lease->hold() : Hold();
}

v1::HeartbeatResponse RunSession::heartbeat() const {
  v1::HeartbeatResponse response;
  {
    const RunLifecycle::Locked life = life_.lock();
    life.check_not_ended();
    response.set_state(life.run().state());
    response.set_epoch(life.run().epoch());
    response.set_lease_left_ms(lease_left_ms(life.run()));
  }
  if (!life_.queued()) return response;
  if (v1::RanksWait wait = ranks_wait(); !wait.reason().empty())
    *response.mutable_wait() = std::move(wait);
  return response;
}

v1::Operation RunSession::submit(Verb::Request request) {
  VerbQueue::Arrival arrival(std::move(request));
  const RunLifecycle::Locked life = life_.lock();
  if (auto saved = finished_save(arrival.request, life.run().epoch())) return *std::move(saved);
  life.check_open(id_of(arrival.request).epoch());
  life.wake();  // also for one that is refused: those behind it go on
  return parts_.queue.submit(std::move(arrival));
}

std::optional<v1::Operation> RunSession::finished_save(const Verb::Request& request,
                                                       std::int64_t epoch) const {
  const v1::VerbId asked = id_of(request);
  std::string wanted;
  if (const auto* state = std::get_if<v1::SaveStateRequest>(&request))
    wanted = state_resource(id(), state->name());
  else if (const auto* weights = std::get_if<v1::SaveWeightsRequest>(&request))
    wanted = weights_resource(id(), weights->name());
  if (wanted.empty() || asked.epoch() >= epoch) return std::nullopt;
  Operations& operations = parts_.context.operations;
  const std::string name = operation_name(id(), asked.epoch(), std::to_string(asked.seq()));
  try {
    const Operations::Result result = operations.result(name);
    if (!result) return std::nullopt;
    const bool same =
        result->saved_state().name() == wanted || result->saved_weights().name() == wanted;
    return same ? std::optional(operations.get(name)) : std::nullopt;
  } catch (const NotFound&) {
    return std::nullopt;
  }
}

v1::Operation RunSession::sample(std::int64_t epoch, SampleOrder order) {
  const auto progress = RunSample::make_progress(order);
  order.epoch = epoch;
  order.run = std::shared_ptr<SampledRun>(shared_from_this(), &life_);
  RunSamples& samples = parts_.samples;
  v1::RunConfig resolved;
  {
    const RunLifecycle::Locked life = life_.lock();
    life.check_open(epoch);
    if (life.run().state() != v1::RUN_STATE_READY)
      return samples.add_waiting(std::move(order), progress);
    samples.check(order, life.sampled_model());
    resolved = life.run().resolved();
  }
  samples.hold_memory(order, resolved);
  v1::Operation operation;
  {
    const RunLifecycle::Locked life = life_.lock();
    life.check_open(epoch);
    operation = samples.add(order, progress);
  }
  samples.begin(operation.name(), std::move(order), progress);
  return operation;
}

std::optional<train::PromptLimits> RunSession::prompt_limits() const {
  const RunLifecycle::Locked life = life_.lock();
  life.check_not_ended();
  if (life.run().state() != v1::RUN_STATE_READY) return std::nullopt;
  return life.limits();
}

std::string RunSession::waits_for(const v1::Operation& operation) const {
  if (life_.lock().run().state() != v1::RUN_STATE_READY) {
    const std::string reason = ranks_wait().reason();
    return reason.empty() ? "the ranks, which make the run" : "the ranks, " + reason;
  }
  std::int64_t seq = 0;
  const auto slash = operation.name().rfind('/');
  std::from_chars(operation.name().data() + slash + 1,
                  operation.name().data() + operation.name().size(), seq);
  return parts_.queue.waits_for(seq);
}

void RunSession::check_times() {
  {
    const RunLifecycle::Locked life = life_.lock();
    if (has_ended(life.run()) || life.ending()) return;
    const auto now = RunLease::Clock::now();
    if (parts_.queue.end_gap(now)) life.wake();
    if (!parts_.lease->has_run_out(parts_.context.operations.open_of(id()) > 0, now)) return;
  }
  spdlog::warn("run {}: its lease has ended", id());
  close(FailedPrecondition(fmt::format("its lease of {} s has ended: no call came for it",
                                       parts_.lease->length().count()),
                           RunLifecycle::kLeaseEnded, {{"run", id()}}));
}

std::string RunSession::needed_state() const {
  const RunLifecycle::Locked life = life_.lock();
  return has_ended(life.run()) || parts_.states.newest_readable() ? "" : life.run().spec().state();
}

void RunSession::collect_states(const std::set<std::string>& needed) {
  std::string own;
  if (!life_.ended())
    if (const auto newest = parts_.states.newest_readable()) own = newest->name();
  parts_.states.remove_expired(own, needed);
}

void RunSession::drive() { RunDriver(parts_, life_).drive(); }

}  // namespace meshloom::control
