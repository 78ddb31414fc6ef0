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
#include "daemon/train/files/manifest.h"
#include "daemon/train/run/gradient_window.h"
#include "daemon/train/run/run_mesh.h"
#include "daemon/train/run/stop_points.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMostInFlight = 8;
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
        own = newest_state();
        if (!own && has_states()) throw no_state_left();
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
      command.set_state_folder((world_.state.root() / own->folder()).string());
    } else if (!run_.spec().state().empty()) {
      command.set_without_optimizer(run_.spec().without_optimizer());
    }
  }
  command.set_model_folder(world_.model_folder(command.config()).string());
  if (command.state_folder().empty() && !run_.spec().state().empty())
    command.set_state_folder(
        (world_.state.root() / world_.store.state(run_.spec().state()).folder()).string());
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
  mark_damaged(name, damage);
  {
    const std::lock_guard lock(mutex_);
    if (newest_state()) begin_epoch(cause);
  }
  persist();
}

bool RunSession::may_start() const {
  const Verb* next = sequence_.front();
  if (!next || lost_ || draining_) return false;
  // One that was refused takes nothing, and may name anything.
  const std::string upload = next->operation.empty() ? "" : upload_of(next->request);
  std::int64_t taken = 0;
  for (const VerbInFlight& other : in_flight_) taken += other.upload_bytes;
  if (!upload.empty() && taken > 0 &&
      taken + world_.uploads.size_of(run_.name(), parse_upload_name(upload)) >
          world_.most_upload_bytes)
    return false;
  return reads_files(next->request) ? in_flight_.empty() : in_flight_.size() < kMostInFlight;
}

VerbInFlight RunSession::poison(const Missing& missing) {
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
          [this](v1::SavedState saved) { return keep_state(std::move(saved)); },
          [this](const std::string& name) { return claim_weights(name); },
          [this](const std::string& name) { return keep_snapshot(name); },
          [this](const v1::SaveStateRequest& request) { check_room(request); },
          world_.hold_upload,
          [this](v1::DataReference* reference) { return tokenize(reference); },
          [this](v1::SavedWeights saved, std::shared_ptr<const RunSnapshot> snapshot) {
            return keep_weights(std::move(saved), std::move(snapshot));
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
  KnownText known{key, {}, world_.tokenize(resolved(), reference, alive)};
  // Losses of a verb are told by tokens alone, and these have the size of the vocabulary.
  known.text.token_bytes.clear();
  known.data = reference->data();
  known.data.clear_identity();
  if (texts_.size() == kMostKnown) texts_.pop_front();
  return texts_.emplace_back(std::move(known)).text;
}

void RunSession::start_next(Lock& lock) {
  const auto verb = sequence_.take();
  const bool refused = verb->operation.empty();
  const std::optional<Missing> gap = std::exchange(gap_, std::nullopt);
  const std::int64_t seq = id_of(verb->request).seq();
  const VerbPlace where = place();
  lock.unlock();
  std::vector<VerbInFlight> started;
  if (gap) started.push_back(poison(*gap));
  const bool skip = std::holds_alternative<v1::SkipRequest>(verb->request);
  const auto stop = std::make_shared<VerbStop>();
  const bool begun =
      !refused && world_.operations.begin(verb->operation, may_be_left(verb->request)
                                                               ? [stop] { return stop->request(); }
                                                               : std::function<bool()>());
  bool launched = false;
  if (begun) {
    try {
      started.push_back(launch(ranks_, *verb, where));
      launched = true;
      // Who has cancelled it meanwhile was told that its gradients do not count.
      if (!stop->launched(started.back().stop) && adds_gradients(verb->request))
        started.push_back(
            poison({seq, fmt::format("verb {} ({}) was cancelled", seq, name_of(verb->request))}));
    } catch (...) {
      world_.operations.fail(verb->operation, to_details(std::current_exception()));
    }
  }
  if ((!launched || skip) && adds_gradients(verb->request))
    started.push_back(poison({seq, fmt::format("verb {} ({}) {}", seq, name_of(verb->request),
                                               why_missing(skip, refused, begun))}));
  lock.lock();
  for (VerbInFlight& one : started) in_flight_.push_back(std::move(one));
  changed_.notify_all();
}

void RunSession::start_safely(Lock& lock) {
  const std::string operation = sequence_.front()->operation;
  try {
    start_next(lock);
  } catch (...) {
    // The ranks may have a part of it, or the verb may be taken and not begun.
    if (!lock.owns_lock()) lock.lock();
    if (!lost_) lost_ = base::as_error(std::current_exception());
    if (!operation.empty()) world_.operations.fail(operation, to_details(std::current_exception()));
  }
}

v1::ErrorDetails RunSession::details_of(const VerbInFlight& verb, const std::exception_ptr& error) {
  v1::ErrorDetails details = to_details(error);
  if (verb.adds_gradients && !missing_)
    missing_ = {verb.seq,
                fmt::format("verb {} (forward_backward) failed: {}", verb.seq, details.message())};
  if (details.info().reason() != train::kGradientsPoisoned || !missing_) return details;
  // The ranks know a cause, and not the number that its verb has for the client.
  const Missing first = *std::exchange(missing_, std::nullopt);  // the ranks have discarded them
  details.set_message(fmt::format(
      "optim_step: the gradients since the last optimizer step were discarded: {}", first.cause));
  auto& metadata = *details.mutable_info()->mutable_metadata();
  metadata["seq"] = std::to_string(first.seq);
  metadata["cause"] = first.cause;
  return details;
}

void RunSession::collect() {
  Lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !collecting_ || !in_flight_.empty(); });
    if (in_flight_.empty()) return;
    VerbInFlight& verb = in_flight_.front();  // a deque's elements stay where they are
    lock.unlock();
    std::optional<v1::VerbResult> result;
    std::exception_ptr error;
    try {
      result = verb.finish();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && loses_run(error) && !lost_) lost_ = base::as_error(error);
    const std::string operation = verb.operation;
    v1::ErrorDetails details;
    if (error) details = details_of(verb, error);
    // Who closes the run and a daemon that stops leave what is under way.
    if (details.info().reason() == train::kVerbStopped && end_)
      details = to_details(closed_error());
    else if (details.info().reason() == train::kVerbStopped && world_.stopping)
      details = to_details(Unavailable("the daemon is stopping", "STOPPING"));
    if (result) {
      if (result->has_optim_step()) run_.set_step(result->optim_step().step());
      if (verb.loaded_step) run_.set_step(*verb.loaded_step);
      if (result->has_optim_step() || verb.drops_gradients) missing_.reset();
      if (!verb.missing.empty() && !missing_) missing_ = {verb.seq, verb.missing};
    }
    in_flight_.pop_front();
    lock.unlock();
    if (result)
      world_.operations.succeed(operation,
                                std::make_shared<const v1::VerbResult>(std::move(*result)));
    else
      world_.operations.fail(operation, details);
    lock.lock();
    changed_.notify_all();
  }
}

void RunSession::begin_epoch(const Error& cause) {
  run_.set_epoch(run_.epoch() + 1);
  const auto state = newest_state();
  const auto verbs = sequence_.take_all();
  digests_.clear();
  gap_.reset();
  missing_.reset();
  drop_snapshots();
  sequence_ = VerbSequence(state ? state->next_seq() : 1, sequence_.gap_timeout());
  run_.set_step(state ? state->step() : 0);
  if (!end_) *run_.mutable_cause() = to_details(cause);
  const Error recovered = recovered_error(cause.what());
  fail_verbs(verbs, recovered);
  fail_lost_samples(recovered);
  add_note(fmt::format("epoch {} began: {}", run_.epoch(), cause.what()));
}

bool RunSession::begin_anew(Lock& lock) {
  const Error lost = *std::exchange(lost_, std::nullopt);
  begin_epoch(Error(lost.kind(), lost.reason(),
                    fmt::format("its weights were lost: {}", lost.what()), lost.metadata()));
  lock.unlock();
  set_state(v1::RUN_STATE_RECOVERING);
  const bool made = make_ready();
  lock.lock();
  return made;
}

bool RunSession::save_last(const std::string& name, std::int64_t ttl_seconds) {
  try {
    v1::SavedState saved;
    v1::WriteStateCommand command;
    {
      const std::lock_guard lock(mutex_);
      saved.set_epoch(run_.epoch());
      saved.set_next_seq(sequence_.next());
      saved.set_step(run_.step());
    }
    const std::string state = fmt::format("{}-{}", name, saved.step());
    saved.set_name(state_resource(id_, state));
    saved.set_ttl_seconds(ttl_seconds);
    saved.set_create_time(base::now_rfc3339());
    saved.set_folder(saved_state_folder(id_, state, saved.epoch(), saved.next_seq()));
    command.set_folder((world_.state.root() / saved.folder()).string());
    ranks_.write_state(std::move(command)).get();
    keep_state(std::move(saved));
    spdlog::info("run {}: saved as {}", id_, state);
    return true;
  } catch (const Error& error) {
    spdlog::error("run {}: its last state is not saved: {}", id_, error.what());
    const std::lock_guard lock(mutex_);
    add_note(kNotSaved + std::string(error.what()));
    return false;
  }
}

void RunSession::save_and_close(Lock& lock) {
  lock.unlock();
  const bool saved = save_last("lease", kLeaseStateSeconds);
  lock.lock();
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
  lock.unlock();
  persist();
  lock.lock();
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

bool RunSession::carry_out() {
  collecting_ = true;
  std::thread collector([this] { collect(); });
  const auto stop_collecting = [&](const void*) {
    {
      const std::lock_guard lock(mutex_);
      collecting_ = false;
      changed_.notify_all();
    }
    collector.join();  // it takes the answers of all that have begun
  };
  const std::unique_ptr<const void, decltype(stop_collecting)> joined(this, stop_collecting);
  Lock lock(mutex_);
  bool made = true;
  const auto over = [&] { return end_ || world_.stopping || world_.executor.fatal(); };
  while (made && !over()) {
    if (lost_ && in_flight_.empty())
      made = begin_anew(lock);
    else if (draining_ && in_flight_.empty())
      save_and_close(lock);
    else if (may_start())
      start_safely(lock);
    else
      changed_.wait(lock);
  }
  // What is long ends between two micro batches.
  for (const VerbInFlight& verb : in_flight_)
    if (verb.stop) verb.stop();
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
    drop_snapshots();
  }
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
