// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_driver.h"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/base/as_error.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/net/status.h"
#include "daemon/control/ranks/rank_error.h"
#include "daemon/control/ranks/rank_messages.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/run/run_mesh.h"
#include "daemon/train/run/stop_points.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::int64_t kLeaseStateSeconds = std::int64_t{7} * 24 * 3600;

Error stopping_error() { return Unavailable("the daemon is stopping", "STOPPING"); }

/// Says what became of a verb that the ranks do not have.
const char* why_missing(bool skip, bool refused, bool begun) {
  if (skip) return "never arrived";
  if (refused) return "was refused";
  return begun ? "did not reach the ranks" : "was cancelled";
}

}  // namespace

RunDriver::RunDriver(RunParts& parts, RunLifecycle& life)
    : parts_(parts),
      context_(parts.context),
      life_(life),
      resolved_(life.lock().run().resolved()) {}

void RunDriver::drive() {
  if (life_.begin_driving()) finish(make_ready() && carry_out());
}

bool RunDriver::make_on_ranks() {
  try {
    while (true) {
      const std::optional<v1::SavedState> own = parts_.states.newest_readable();
      if (!own && !parts_.states.empty()) throw parts_.states.none_readable();
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
    spdlog::error("run {} cannot be made: {}", parts_.id, error.what());
    life_.set_cause(error);
    return false;
  }
}

bool RunDriver::make_ready() {
  if (!make_on_ranks()) return false;
  life_.set_state(v1::RUN_STATE_READY);
  begin_waiting_samples();
  return true;
}

void RunDriver::create_on_ranks(const v1::SavedState* own) {
  v1::CreateRunCommand command;
  std::string first_state;
  {
    const RunLifecycle::Locked locked = life_.lock();
    const v1::RunSpec& spec = locked.run().spec();
    command.set_dropout(spec.dropout());
    if (!own) first_state = spec.state();
    if (!first_state.empty()) command.set_without_optimizer(spec.without_optimizer());
  }
  *command.mutable_config() = resolved_;
  train::RunFolders folders{context_.data_dir, context_.folders.model_folder(resolved_)};
  if (own)
    folders.state = parts_.states.folder_of(*own);
  else if (!first_state.empty())
    folders.state = parts_.states.folder_of(context_.store.state(first_state));
  set_folders(folders, command.mutable_folders());
  texts_.clear();
  const v1::CreateRunResult made = parts_.ranks.create(std::move(command)).get();
  const v1::LossLimits& limits = made.loss_limits();
  rules_ = {{limits.vocab_size(), limits.positions(), limits.tokens(), limits.micro_batch_size()},
            train::mesh_layout(resolved_.mesh())};
  life_.set_made(made);
}

void RunDriver::skip_state(const std::string& name, const Error& damage) {
  const Error cause =
      DataLoss(fmt::format("{} was skipped, since it cannot be read: {}", name, damage.what()),
               RunLifecycle::kStateDamaged, {{"run", parts_.id}, {"state", name}});
  spdlog::error("run {}: {}", parts_.id, cause.what());
  parts_.states.mark_damaged(name, damage);
  life_.skip_damaged(cause);
}

void RunDriver::begin_waiting_samples() {
  std::vector<RunSamples::Waiting> samples = parts_.samples.take_waiting();
  for (RunSamples::Waiting& sample : samples) {
    if (!context_.operations.is_open(sample.operation)) continue;  // it was cancelled
    try {
      if (context_.stopping) throw stopping_error();
      {
        const RunLifecycle::Locked locked = life_.lock();
        locked.check_open(sample.order.epoch);
        parts_.samples.check(sample.order, locked.sampled_model());
      }
      parts_.samples.hold_memory(sample.order, resolved_);
      parts_.samples.begin(sample.operation, std::move(sample.order), sample.progress);
    } catch (...) {
      context_.operations.fail(sample.operation, to_details(std::current_exception()));
    }
  }
}

VerbInFlight RunDriver::poison(const MissingGradients& missing) const {
  try {
    parts_.ranks.poison(missing.cause);
  } catch (const Error& error) {
    spdlog::debug("run {}: its gradients are not poisoned: {}", parts_.id, error.what());
  }
  // No operation waits for it: it keeps its place among the answers alone.
  VerbInFlight known{"", missing.seq};
  known.missing = missing.cause;
  known.finish = [] { return v1::VerbResult(); };
  return known;
}

void RunDriver::check_goes_on() const {
  const RunLifecycle::Locked locked = life_.lock();
  if (locked.ending()) throw life_.closed_error();
  if (context_.stopping) throw stopping_error();
  if (context_.executor.fatal()) throw Unavailable("a rank was lost", "RANKS_LOST");
}

train::TokenizedText RunDriver::tokenize(v1::DataReference* reference) {
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
  const auto alive = [this](const std::string&, std::uint64_t, std::uint64_t) { check_goes_on(); };
  KnownText known{key, {}, context_.tokenization.tokenize_reference(resolved_, reference, alive)};
  // Losses of a verb are told by tokens alone, and these have the size of the vocabulary.
  known.text.token_bytes.clear();
  known.data = reference->data();
  known.data.clear_identity();
  if (texts_.size() == kMostKnown) texts_.pop_front();
  return texts_.emplace_back(std::move(known)).text;
}

void RunDriver::start(const RunLifecycle::Next& next) {
  Verb& verb = *next.taken.verb;
  const bool refused = verb.operation.empty();
  const std::int64_t seq = id_of(verb.request).seq();
  std::vector<VerbInFlight> started;
  if (next.taken.gap) started.push_back(poison(*next.taken.gap));
  const bool skip = std::holds_alternative<v1::SkipRequest>(verb.request);
  const auto stop = std::make_shared<VerbStop>();
  const bool begun = !refused && context_.operations.begin(
                                     verb.operation, may_be_left(verb.request) ? stop : nullptr);
  bool launched = false;
  if (begun) {
    try {
      started.push_back(
          launch({parts_.ranks, parts_.id, next.epoch, resolved_, rules_, context_.budget,
                  context_.uploads, context_.store, parts_.states, parts_.weights, *this},
                 verb));
      launched = true;
      // Who has cancelled it meanwhile was told that its gradients do not count.
      if (!stop->launched(started.back().stop) && adds_gradients(verb.request))
        started.push_back(
            poison({seq, fmt::format("verb {} ({}) was cancelled", seq, name_of(verb.request))}));
    } catch (...) {
      context_.operations.fail(verb.operation, to_details(std::current_exception()));
    }
  }
  if ((!launched || skip) && adds_gradients(verb.request))
    started.push_back(poison({seq, fmt::format("verb {} ({}) {}", seq, name_of(verb.request),
                                               why_missing(skip, refused, begun))}));
  parts_.queue.add_in_flight(std::move(started));
}

void RunDriver::start_safely(const RunLifecycle::Next& next) {
  const std::string operation = next.taken.verb->operation;
  try {
    start(next);
  } catch (...) {
    // The ranks may have a part of it, or the verb may be taken and not begun.
    life_.lose(std::current_exception());
    if (!operation.empty())
      context_.operations.fail(operation, to_details(std::current_exception()));
  }
}

void RunDriver::collect() {
  while (VerbInFlight* verb = parts_.queue.wait_for_oldest()) {
    const std::string operation = verb->operation;
    std::shared_ptr<v1::VerbResult> result;
    std::exception_ptr error;
    try {
      result = std::make_shared<v1::VerbResult>(verb->finish());
    } catch (...) {
      error = std::current_exception();
    }
    if (result) {
      set_step(*verb, *result);
      parts_.queue.finish_oldest(*result);
      context_.operations.succeed(operation, std::move(result));
    } else {
      context_.operations.fail(operation, fail_oldest(error));
    }
    life_.wake();
  }
}

v1::SavedWeights RunDriver::at_step(v1::SavedWeights saved) const {
  // Answers come in the order of the verbs: this is the step behind those before it.
  saved.set_step(life_.lock().run().step());
  return saved;
}

void RunDriver::set_step(const VerbInFlight& verb, const v1::VerbResult& result) {
  if (result.has_optim_step()) life_.set_step(result.optim_step().step());
  if (verb.loaded_step) life_.set_step(*verb.loaded_step);
}

v1::ErrorDetails RunDriver::fail_oldest(const std::exception_ptr& error) {
  // Before the verb leaves the queue: nothing is begun behind it on weights that are lost.
  if (loses_run(error)) life_.lose(error);
  v1::ErrorDetails details = parts_.queue.fail_oldest(error);
  if (details.info().reason() != train::kVerbStopped) return details;
  // Who closes the run and a daemon that stops leave what is under way.
  if (life_.lock().ending()) return to_details(life_.closed_error());
  return context_.stopping ? to_details(stopping_error()) : details;
}

bool RunDriver::carry_out() {
  parts_.queue.begin_collecting();
  std::thread collector([this] { collect(); });
  const auto stop_collecting = [&](const void*) {
    parts_.queue.end_collecting();
    collector.join();  // it takes the answers of all that have begun
  };
  const std::unique_ptr<const void, decltype(stop_collecting)> joined(this, stop_collecting);
  using Act = RunLifecycle::Act;
  bool made = true;
  while (made) {
    const RunLifecycle::Next next = life_.wait_for_next();
    if (next.act == Act::kEnd) break;
    if (next.act == Act::kMake) {
      life_.set_state(v1::RUN_STATE_RECOVERING);
      made = make_ready();
    } else if (next.act == Act::kSave) {
      life_.end_drain(save_last("lease", kLeaseStateSeconds));
    } else {
      start_safely(next);
    }
  }
  parts_.queue.stop_in_flight();  // what is long ends between two micro batches
  return made;
}

bool RunDriver::save_last(const std::string& name, std::int64_t ttl_seconds) {
  try {
    v1::SavedState saved;
    v1::WriteStateCommand command;
    {
      const RunLifecycle::Locked locked = life_.lock();
      saved.set_epoch(locked.run().epoch());
      saved.set_next_seq(parts_.queue.next());
      saved.set_step(locked.run().step());
    }
    const std::string state = fmt::format("{}-{}", name, saved.step());
    saved.set_name(state_resource(parts_.id, state));
    saved.set_ttl_seconds(ttl_seconds);
    saved.set_create_time(base::now_rfc3339());
    saved.set_folder(saved_state_folder(parts_.id, state, saved.epoch(), saved.next_seq()));
    command.set_folder(parts_.states.folder_of(saved).string());
    parts_.ranks.write_state(std::move(command)).get();
    parts_.states.keep(std::move(saved));
    spdlog::info("run {}: saved as {}", parts_.id, state);
    return true;
  } catch (const Error& error) {
    spdlog::error("run {}: its last state is not saved: {}", parts_.id, error.what());
    life_.add_note(RunLifecycle::kNotSaved + std::string(error.what()));
    return false;
  }
}

void RunDriver::finish(bool made) {
  const RunLifecycle::Ending ending = life_.ending();
  if (context_.executor.fatal()) return;  // the next daemon begins it anew
  if (made && ending.save && !ending.lost)
    save_last(ending.closed ? "lease" : "stop", ending.closed ? kLeaseStateSeconds : 0);
  if (ending.save && (ending.lost || !made))
    life_.add_note(RunLifecycle::kNotSaved +
                   std::string(ending.lost ? "its weights were lost" : "it was not made"));
  life_.end_saving();
  parts_.weights.drop_snapshots();
  if (made) {
    try {
      parts_.ranks.remove().get();
    } catch (const Error& error) {
      spdlog::warn("run {} was not deleted from the ranks: {}", parts_.id, error.what());
    }
  }
  if (!ending.closed && made) {
    const RunLifecycle::Locked locked = life_.lock();
    parts_.queue.fail_waiting(stopping_error());
    parts_.samples.fail(stopping_error());
    return;
  }
  life_.end_as(made || ending.closed ? v1::RUN_STATE_CLOSED : v1::RUN_STATE_FAILED);
}

}  // namespace meshloom::control
