// SPDX-License-Identifier: Apache-2.0
// RunSession with the ranks: verbs become commands, answers become results.
#include <algorithm>
#include <thread>

#include "daemon/base/as_error.h"
#include "daemon/base/states.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/net/status.h"
#include "daemon/control/ranks/rank_error.h"
#include "daemon/control/runs/run_session.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/checkpoint/manifest.h"
#include "daemon/train/gradient_window.h"
#include "daemon/train/run_mesh.h"
#include "daemon/train/stop_points.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::int64_t kLeaseStateSeconds = std::int64_t{7} * 24 * 3600;
constexpr const char* kStateDamaged = "STATE_DAMAGED";

/// Of a verb that the ranks do not have.
const char* why_missing(bool skip, bool refused, bool begun) {
  if (skip) return "never arrived";
  if (refused) return "was refused";
  return begun ? "did not reach the ranks" : "was cancelled";
}

}  // namespace

void RunSession::set_state(v1::RunState state) {
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
  spdlog::info("run {}: {}", id_,
               v1::RunState_Name(state).substr(std::string("RUN_STATE_").size()));
}

bool RunSession::make_on_ranks() {
  std::optional<v1::SavedState> own;
  try {
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        own = states_.newest_readable();
        if (!own && !states_.empty()) throw states_.none_readable();
      }
      try {
        create_on_ranks(own ? &*own : nullptr);
        return true;
      } catch (const Error& error) {
        // Where the files of the saved state are to blame an older one may be sound.
        const bool damaged =
            error.kind() == ErrorKind::kDataLoss || error.reason() == train::kCheckpointNotFound;
        if (!own || !damaged) throw;
        skip_state(own->name(), error);
      }
    }
  } catch (...) {
    const Error error = base::as_error(std::current_exception());
    spdlog::error("run {} cannot be made: {}", id_, error.what());
    const std::lock_guard lock(mutex_);
    if (!end_) *run_.mutable_cause() = to_details(error);
    return false;
  }
}

bool RunSession::make_ready() {
  if (!make_on_ranks()) return false;
  set_state(v1::RUN_STATE_READY);
  begin_waiting_samples();
  return true;
}

void RunSession::create_on_ranks(const v1::SavedState* own) {
  v1::CreateRunCommand command;
  {
    const std::lock_guard lock(mutex_);
    *command.mutable_config() = run_.resolved();
    command.set_data_dir(world_.data_dir.string());
    command.set_dropout(run_.spec().dropout());
    if (own) {
      command.set_state_folder(states_.folder_of(*own).string());
    } else if (!run_.spec().state().empty()) {
      command.set_without_optimizer(run_.spec().without_optimizer());
    }
  }
  command.set_model_folder(world_.admission.model_folder(command.config()).string());
  if (command.state_folder().empty() && !run_.spec().state().empty())
    command.set_state_folder(states_.folder_of(world_.store.state(run_.spec().state())).string());
  texts_.clear();
  const v1::CreateRunResult made = ranks_.create(std::move(command)).get();
  const std::lock_guard lock(mutex_);
  run_.set_step(made.step_count());
  run_.set_plan(made.plan());
  run_.set_vocab_size(made.vocab_size());
  run_.set_context_length(made.context_length());
  for (const std::string& note : made.notes()) add_note(note);
  limits_ = {made.vocab_size(), made.context_length()};
  const v1::LossLimits& limits = made.loss_limits();
  rules_ = {{limits.vocab_size(), limits.positions(), limits.tokens(), limits.micro_batch_size()},
            train::mesh_layout(run_.resolved().mesh())};
  // What else than a damaged state began this epoch is over; why the run ends is not.
  if (!end_ && run_.cause().info().reason() != kStateDamaged) run_.clear_cause();
}

void RunSession::skip_state(const std::string& name, const Error& damage) {
  const Error cause =
      DataLoss(fmt::format("{} was skipped, since it cannot be read: {}", name, damage.what()),
               kStateDamaged, {{"run", id_}, {"state", name}});
  spdlog::error("run {}: {}", id_, cause.what());
  states_.mark_damaged(name, damage);
  {
    const std::lock_guard lock(mutex_);
    if (states_.newest_readable()) begin_epoch(cause);
  }
  persist();
}

VerbInFlight RunSession::poison(const MissingGradients& missing) {
  try {
    ranks_.poison(missing.cause);
  } catch (const Error& error) {
    spdlog::debug("run {}: its gradients are not poisoned: {}", id_, error.what());
  }
  // No operation waits for it: it keeps its place among the answers alone.
  VerbInFlight known{"", missing.seq};
  known.missing = missing.cause;
  known.finish = [] { return v1::VerbResult(); };
  return known;
}

VerbPlace RunSession::place() {
  return {world_.state,
          id_,
          run_.epoch(),
          rules_,
          world_.uploads,
          world_.store,
          [this](v1::SavedState saved) { return states_.keep(std::move(saved)); },
          [this](const std::string& name) { return weights_.claim(name); },
          [this](const std::string& name) { return weights_.keep_snapshot(name, resolved()); },
          [this](const v1::SaveStateRequest& request) { states_.check_room(request); },
          [this](std::int64_t bytes) { return world_.admission.hold_upload(bytes); },
          [this](v1::DataReference* reference) { return tokenize(reference); },
          [this](v1::SavedWeights saved, std::shared_ptr<const RunSnapshot> snapshot) {
            {
              // Answers come in the order of the verbs: this is the step behind those before it.
              const std::lock_guard lock(mutex_);
              saved.set_step(run_.step());
            }
            weights_.keep(saved, std::move(snapshot));
            return saved;
          }};
}

train::TokenizedText RunSession::tokenize(v1::DataReference* reference) {
  const auto alive = [this](const std::string&, std::uint64_t, std::uint64_t) {
    const std::lock_guard lock(mutex_);
    if (end_) throw closed_error();
    if (world_.stopping) throw Unavailable("the daemon is stopping", "STOPPING");
    if (world_.executor.fatal()) throw Unavailable("a rank was lost", "RANKS_LOST");
  };
  // The ranks open data once, too, and so many at a time.
  constexpr std::size_t kMostKnown = 8;
  v1::DataConfig given = reference->data();
  given.clear_identity();
  const std::string key = given.SerializeAsString();
  for (const KnownText& known : texts_) {
    if (known.key != key) continue;
    const v1::DataIdentity identity = reference->data().identity();
    const bool has_identity = reference->data().has_identity();
    *reference->mutable_data() = known.data;
    if (has_identity) *reference->mutable_data()->mutable_identity() = identity;
    return known.text;
  }
  KnownText known{key, {}, world_.admission.tokenize_reference(resolved(), reference, alive)};
  // Losses of a verb are told by tokens alone, and these have the size of the vocabulary.
  known.text.token_bytes.clear();
  known.data = reference->data();
  known.data.clear_identity();
  if (texts_.size() == kMostKnown) texts_.pop_front();
  return texts_.emplace_back(std::move(known)).text;
}

void RunSession::start_next(const VerbQueue::Taken& taken) {
  Verb& verb = *taken.verb;
  const bool refused = verb.operation.empty();
  const std::int64_t seq = id_of(verb.request).seq();
  std::vector<VerbInFlight> started;
  if (taken.gap) started.push_back(poison(*taken.gap));
  const bool skip = std::holds_alternative<v1::SkipRequest>(verb.request);
  const auto stop = std::make_shared<VerbStop>();
  const bool begun =
      !refused && world_.operations.begin(verb.operation, may_be_left(verb.request)
                                                              ? [stop] { return stop->request(); }
                                                              : std::function<bool()>());
  bool launched = false;
  if (begun) {
    try {
      started.push_back(launch(ranks_, verb, place()));
      launched = true;
      // Who has cancelled it meanwhile was told that its gradients do not count.
      if (!stop->launched(started.back().stop) && adds_gradients(verb.request))
        started.push_back(
            poison({seq, fmt::format("verb {} ({}) was cancelled", seq, name_of(verb.request))}));
    } catch (...) {
      world_.operations.fail(verb.operation, to_details(std::current_exception()));
    }
  }
  if ((!launched || skip) && adds_gradients(verb.request))
    started.push_back(poison({seq, fmt::format("verb {} ({}) {}", seq, name_of(verb.request),
                                               why_missing(skip, refused, begun))}));
  queue_.add_in_flight(std::move(started));
}

void RunSession::start_safely(const VerbQueue::Taken& taken) {
  const std::string operation = taken.verb->operation;
  try {
    start_next(taken);
  } catch (...) {
    // The ranks may have a part of it, or the verb may be taken and not begun.
    const std::lock_guard lock(mutex_);
    if (!lost_) lost_ = base::as_error(std::current_exception());
    if (!operation.empty()) world_.operations.fail(operation, to_details(std::current_exception()));
  }
}

void RunSession::collect() {
  while (VerbInFlight* verb = queue_.wait_for_oldest()) {
    const std::string operation = verb->operation;
    std::shared_ptr<v1::VerbResult> result;
    std::exception_ptr error;
    try {
      result = std::make_shared<v1::VerbResult>(verb->finish());
    } catch (...) {
      error = std::current_exception();
    }
    if (result) {
      note_step(*verb, *result);
      queue_.finish_oldest(*result);
      world_.operations.succeed(operation, std::move(result));
    } else {
      world_.operations.fail(operation, fail_oldest(error));
    }
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
}

void RunSession::note_step(const VerbInFlight& verb, const v1::VerbResult& result) {
  const std::lock_guard lock(mutex_);
  if (result.has_optim_step()) run_.set_step(result.optim_step().step());
  if (verb.loaded_step) run_.set_step(*verb.loaded_step);
}

v1::ErrorDetails RunSession::fail_oldest(const std::exception_ptr& error) {
  bool ending = false;
  {
    // Before the verb leaves the queue: nothing is begun behind it on weights that are lost.
    const std::lock_guard lock(mutex_);
    if (loses_run(error) && !lost_) lost_ = base::as_error(error);
    ending = end_.has_value();
  }
  const v1::ErrorDetails details = queue_.fail_oldest(error);
  if (details.info().reason() != train::kVerbStopped) return details;
  // Who closes the run and a daemon that stops leave what is under way.
  if (ending) return to_details(closed_error());
  if (world_.stopping) return to_details(Unavailable("the daemon is stopping", "STOPPING"));
  return details;
}

void RunSession::begin_epoch(const Error& cause) {
  run_.set_epoch(run_.epoch() + 1);
  const auto state = states_.newest_readable();
  const std::int64_t next = state ? state->next_seq() : 1;
  weights_.drop_snapshots();
  run_.set_step(state ? state->step() : 0);
  if (!end_) *run_.mutable_cause() = to_details(cause);
  const Error recovered = recovered_error(cause.what(), next);
  queue_.begin_epoch(next, recovered);
  fail_lost_samples(recovered);
  add_note(fmt::format("epoch {} began: {}", run_.epoch(), cause.what()));
}

bool RunSession::save_last(const std::string& name, std::int64_t ttl_seconds) {
  try {
    v1::SavedState saved;
    v1::WriteStateCommand command;
    {
      const std::lock_guard lock(mutex_);
      saved.set_epoch(run_.epoch());
      saved.set_next_seq(queue_.next());
      saved.set_step(run_.step());
    }
    const std::string state = fmt::format("{}-{}", name, saved.step());
    saved.set_name(state_resource(id_, state));
    saved.set_ttl_seconds(ttl_seconds);
    saved.set_create_time(base::now_rfc3339());
    saved.set_folder(saved_state_folder(id_, state, saved.epoch(), saved.next_seq()));
    command.set_folder(states_.folder_of(saved).string());
    ranks_.write_state(std::move(command)).get();
    states_.keep(std::move(saved));
    spdlog::info("run {}: saved as {}", id_, state);
    return true;
  } catch (const Error& error) {
    spdlog::error("run {}: its last state is not saved: {}", id_, error.what());
    const std::lock_guard lock(mutex_);
    add_note(kNotSaved + std::string(error.what()));
    return false;
  }
}

void RunSession::save_and_close() {
  const bool saved = save_last("lease", kLeaseStateSeconds);
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
      add_note("the daemon is being drained: the run could not be saved and goes on");
    }
  }
  persist();
}

void RunSession::drive() {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (has_ended() || end_) return;
    driven_ = true;
    first = run_.state() == v1::RUN_STATE_QUEUED;
    // At once: a run that is driven can become CLOSING, which one that is queued cannot.
    if (first) base::move_to(run_, v1::RUN_STATE_CREATING);
  }
  if (first) set_state(v1::RUN_STATE_CREATING);
  finish(make_ready() && carry_out());
}

RunSession::Next RunSession::wait_for_next() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (end_ || world_.stopping || world_.executor.fatal()) return {Act::kEnd, {}};
    const bool idle = queue_.none_in_flight();
    if (lost_ && idle) {
      const Error lost = *std::exchange(lost_, std::nullopt);
      begin_epoch(Error(lost.kind(), lost.reason(),
                        fmt::format("its weights were lost: {}", lost.what()), lost.metadata()));
      return {Act::kMake, {}};
    }
    if (draining_ && idle) return {Act::kSave, {}};
    if (!lost_ && !draining_ && queue_.may_start()) return {Act::kStart, queue_.take()};
    changed_.wait(lock);
  }
}

bool RunSession::carry_out() {
  std::thread collector([this] { collect(); });
  const auto stop_collecting = [&](const void*) {
    queue_.end_collecting();
    collector.join();  // it takes the answers of all that have begun
  };
  const std::unique_ptr<const void, decltype(stop_collecting)> joined(this, stop_collecting);
  bool made = true;
  while (made) {
    const Next next = wait_for_next();
    if (next.act == Act::kEnd) break;
    if (next.act == Act::kMake) {
      set_state(v1::RUN_STATE_RECOVERING);
      made = make_ready();
    } else if (next.act == Act::kSave) {
      save_and_close();
    } else {
      start_safely(next.taken);
    }
  }
  queue_.stop_in_flight();  // what is long ends between two micro batches
  return made;
}

void RunSession::finish(bool made) {
  bool closed = false, save = false, lost = false;
  {
    const std::lock_guard lock(mutex_);
    closed = end_.has_value();
    save = closed ? end_->save : world_.stopping.load();
    lost = lost_.has_value();
  }
  if (world_.executor.fatal()) return;  // the next daemon begins it anew
  if (made && save && !lost) save_last(closed ? "lease" : "stop", closed ? kLeaseStateSeconds : 0);
  {
    const std::lock_guard lock(mutex_);
    if (save && (lost || !made))
      add_note(kNotSaved + std::string(lost ? "its weights were lost" : "it was not made"));
    if (end_) end_->save = false;
  }
  weights_.drop_snapshots();
  if (made) {
    try {
      ranks_.remove().get();
    } catch (const Error& error) {
      spdlog::warn("run {} was not deleted from the ranks: {}", id_, error.what());
    }
  }
  if (!closed && made) {
    const std::lock_guard lock(mutex_);
    fail_waiting(Unavailable("the daemon is stopping", "STOPPING"));
    return;
  }
  end_as(made || closed ? v1::RUN_STATE_CLOSED : v1::RUN_STATE_FAILED);
}

}  // namespace meshloom::control
