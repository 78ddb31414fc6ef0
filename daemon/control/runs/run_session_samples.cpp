// SPDX-License-Identifier: Apache-2.0
// RunSession and what is drawn from it: samples, and the weights that it keeps for them.
#include <algorithm>
#include <utility>

#include "daemon/base/as_error.h"
#include "daemon/base/field_error.h"
#include "daemon/control/net/status.h"
#include "daemon/control/ranks/rank_error.h"
#include "daemon/control/runs/run_session.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/config/sample_start.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMostSnapshots = 8;  // in memory

/// As it lies in memory.
std::size_t bytes_of_order(const SampleOrder& order) {
  // What follows what the sequence draws: its decoder, its part of the result.
  constexpr std::size_t kProgress = 1024;
  std::size_t bytes = sizeof order;
  for (const train::SampleStart& start : order.starts)
    bytes += sizeof start + kProgress +
             (start.prompt.capacity() + start.end_tokens.capacity()) * sizeof(std::int64_t) +
             start.params.SpaceUsedLong() + start.stop.SpaceUsedLong();
  for (const std::string& text : order.stop_strings)
    bytes += order.starts.size() * (sizeof text + text.capacity());
  return bytes;
}

}  // namespace

std::optional<train::PromptLimits> RunSession::prompt_limits() const {
  const std::lock_guard lock(mutex_);
  check_not_ended_locked();
  if (run_.state() != v1::RUN_STATE_READY) return std::nullopt;
  return limits_;
}

v1::SavedWeights RunSession::drawn_weights(const std::string& name) const {
  if (const v1::SavedWeights* saved = kept_weights(name)) return *saved;
  throw FailedPrecondition(fmt::format("{} are not there (any more)", name), "SNAPSHOT_STALE",
                           {{"weights", name}, {"field", "weights"}});
}

void RunSession::check_sample(const SampleOrder& order) const {
  const std::int64_t step =
      order.origin.snapshot.empty()
          ? run_.step()
          : drawn_weights(weights_resource(id_, order.origin.snapshot)).step();
  if (order.weights_step && *order.weights_step != step)
    throw stale_weights(*order.weights_step, step);
  const std::int64_t longest = run_.resolved().training().seq_len();
  for (const train::SampleStart& start : order.starts) {
    const auto prompt = static_cast<std::int64_t>(start.prompt.size());
    std::int64_t whole = prompt + start.params.max_tokens();
    if (!start.params.past_context()) whole = std::min(whole, limits_.context_length + 1);
    const std::int64_t scored = order.exact_log_probs ? whole : order.prompt_log_probs ? prompt : 0;
    if (longest > 0 && scored - 1 > longest)
      base::refuse_field(order.exact_log_probs ? "exact_logprobs" : "prompt_logprobs",
                         "needs Forward of {} tokens, more than the run's training.seq_len of {}",
                         scored - 1, longest);
  }
}

void RunSession::hold_memory(SampleOrder& order) {
  v1::RunConfig resolved;
  {
    const std::lock_guard lock(mutex_);
    resolved = run_.resolved();
  }
  order.memory = world_.hold_cache(resolved, order.starts);
  if (order.origin.snapshot.empty()) return;
  const std::string name = weights_resource(id_, order.origin.snapshot);
  {
    const std::lock_guard lock(mutex_);
    const v1::SavedWeights saved = drawn_weights(name);
    if (saved.storage() == v1::WEIGHTS_STORAGE_MEMORY) {
      const SnapshotPtr& snapshot = snapshots_.at(name);
      order.origin.snapshot = snapshot->key();
      order.snapshot = snapshot;
      return;
    }
    order.origin.weights_folder = weights_folder(order.origin.snapshot);
    order.origin.weights_step = saved.step();
  }
  order.loaded = hold_loaded(name);
}

v1::Operation RunSession::add_sample(std::int64_t epoch,
                                     const std::shared_ptr<SampleProgress>& progress) {
  const std::string name = operation_name(epoch, fmt::format("sample-{}", next_sample_++));
  return world_.operations.add(id_, name, "sample", progress);
}

v1::Operation RunSession::sample(std::int64_t epoch, SampleOrder order) {
  const auto progress = RunSample::make_progress(order);
  {
    const std::lock_guard lock(mutex_);
    check_open(epoch);
    if (run_.state() != v1::RUN_STATE_READY) {
      MemoryUnits memory = hold_waiting(order);
      v1::Operation operation = add_sample(epoch, progress);
      waiting_samples_.push_back(
          {epoch, operation.name(), std::move(order), progress, std::move(memory)});
      return operation;
    }
    check_sample(order);
  }
  hold_memory(order);
  v1::Operation operation;
  {
    const std::lock_guard lock(mutex_);
    check_open(epoch);
    operation = add_sample(epoch, progress);
  }
  begin_sample(epoch, operation.name(), std::move(order), progress);
  return operation;
}

void RunSession::begin_sample(std::int64_t epoch, const std::string& operation, SampleOrder order,
                              const std::shared_ptr<SampleProgress>& progress) {
  order.lost_with_run = [session = weak_from_this(), epoch,
                         operation](const std::exception_ptr& error) {
    const auto run = session.lock();
    return run && run->take_lost_sample(epoch, operation, error);
  };
  try {
    RunSample::start(world_.scheduler, world_.operations, id_, operation, std::move(order),
                     progress);
  } catch (...) {
    world_.operations.fail(operation, to_details(std::current_exception()));
    throw;
  }
}

MemoryUnits RunSession::hold_waiting(const SampleOrder& order) {
  const std::size_t bytes = bytes_of_order(order);
  try {
    return world_.waiting.take(id_, client_, bytes);
  } catch (const ResourceExhausted&) {
    // Those that were cancelled make room.
    const std::size_t cancelled = std::erase_if(waiting_samples_, [&](const WaitingSample& sample) {
      return !world_.operations.is_open(sample.operation);
    });
    if (cancelled == 0) throw;
  }
  return world_.waiting.take(id_, client_, bytes);
}

void RunSession::begin_waiting_samples() {
  std::vector<WaitingSample> samples;
  {
    const std::lock_guard lock(mutex_);
    samples.swap(waiting_samples_);
  }
  for (WaitingSample& sample : samples) {
    if (!world_.operations.is_open(sample.operation)) continue;  // it was cancelled
    try {
      if (world_.stopping) throw Unavailable("the daemon is stopping", "STOPPING");
      {
        const std::lock_guard lock(mutex_);
        check_open(sample.epoch);
        check_sample(sample.order);
      }
      hold_memory(sample.order);
      begin_sample(sample.epoch, sample.operation, std::move(sample.order), sample.progress);
    } catch (...) {
      world_.operations.fail(sample.operation, to_details(std::current_exception()));
    }
  }
}

bool RunSession::take_lost_sample(std::int64_t epoch, const std::string& operation,
                                  const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (world_.stopping) return false;
  if (has_ended() || end_) {
    if (!error) return false;
    // The ranks have let the run go: what they say of it is no cause.
    world_.operations.fail(operation, to_details(closed_error()));
    return true;
  }
  if (epoch < run_.epoch()) {
    world_.operations.fail(operation,
                           to_details(recovered_error(fmt::format("epoch {} has ended", epoch))));
    return true;
  }
  if (!error || !loses_run(error)) return false;
  if (!lost_) lost_ = base::as_error(error);
  lost_samples_.push_back(operation);
  changed_.notify_all();
  return true;
}

void RunSession::fail_lost_samples(const Error& error) {
  const v1::ErrorDetails details = to_details(error);
  for (const WaitingSample& sample : std::exchange(waiting_samples_, {}))
    world_.operations.fail(sample.operation, details);
  for (const std::string& operation : std::exchange(lost_samples_, {}))
    world_.operations.fail(operation, details);
}

Hold RunSession::claim(const std::string& name) const {
  return world_.uses.hold(name, "a verb that saves them or a call that deletes them");
}

Hold RunSession::claim_weights(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (kept_weights(name) != nullptr || world_.uses.holder_of(name))
    throw AlreadyExists(fmt::format("{} exist already; choose another name", name), "WEIGHTS_EXIST",
                        {{"weights", name}, {"field", "name"}});
  world_.store.check_weights_room(id_);
  return claim(name);
}

SnapshotMemory RunSession::hold_snapshot() {
  SnapshotMemory held;
  v1::RunConfig resolved;
  {
    const std::lock_guard lock(mutex_);
    if (*held_weights_ >= kMostSnapshots)
      throw ResourceExhausted(
          fmt::format("run \"{}\" keeps {} weights in memory already, the most that it may; "
                      "delete some (DeleteWeights), or wait for the samples from those deleted",
                      id_, held_weights_->load()),
          "TOO_MANY_SNAPSHOTS", {{"run", id_}});
    // Counted before there is memory for it: of several that ask at once none is one too many.
    ++*held_weights_;
    held.place = Hold([count = held_weights_] { --*count; });
    resolved = run_.resolved();
  }
  held.units = world_.hold_snapshot(resolved);
  return held;
}

RunSession::SnapshotPtr RunSession::keep_snapshot(const std::string& name) {
  SnapshotMemory memory = hold_snapshot();
  std::int64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = next_snapshot_++;
  }
  return std::make_shared<const RunSnapshot>(ranks_, fmt::format("{}.{}", name, number),
                                             std::move(memory));
}

std::shared_ptr<const SnapshotMemory> RunSession::hold_loaded(const std::string& name) {
  // Of several samples of the same weights one asks for memory, which the others share.
  const std::lock_guard one_at_a_time(loading_);
  {
    const std::lock_guard lock(mutex_);
    if (auto held = loaded_memory_[name].lock()) return held;
  }
  const auto held = std::make_shared<const SnapshotMemory>(hold_snapshot());
  const std::lock_guard lock(mutex_);
  std::erase_if(loaded_memory_, [](const auto& item) { return item.second.expired(); });
  loaded_memory_[name] = held;
  return held;
}

std::filesystem::path RunSession::weights_folder(const std::string& weights) const {
  return world_.state.root() / saved_weights_folder(id_, weights);
}

v1::SavedWeights RunSession::keep_weights(v1::SavedWeights saved, SnapshotPtr snapshot) {
  if (saved.storage() == v1::WEIGHTS_STORAGE_DISK) return keep_weights_on_disk(std::move(saved));
  const std::lock_guard lock(mutex_);
  // Answers come in the order of the verbs: this is the step behind those before it.
  saved.set_step(run_.step());
  *run_.add_weights() = saved;
  snapshots_[saved.name()] = std::move(snapshot);
  return saved;
}

v1::SavedWeights RunSession::keep_weights_on_disk(v1::SavedWeights saved) {
  const std::lock_guard one(persist_mutex_);
  {
    const std::lock_guard lock(mutex_);
    saved.set_step(run_.step());
  }
  try {
    world_.store.put_weights(saved);
  } catch (...) {
    // Else the name could not be used again.
    remove_saved(saved.folder());
    throw;
  }
  const std::lock_guard lock(mutex_);
  *run_.add_weights() = saved;
  return saved;
}

v1::SavedWeights RunSession::find_weights(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return weights_named(name);
}

const v1::SavedWeights* RunSession::kept_weights(const std::string& name) const {
  for (const v1::SavedWeights& saved : run_.weights())
    if (saved.name() == name) return &saved;
  return nullptr;
}

v1::SavedWeights RunSession::weights_named(const std::string& name) const {
  if (const v1::SavedWeights* saved = kept_weights(name)) return *saved;
  throw NotFound(fmt::format("{} do not exist", name), "WEIGHTS_NOT_FOUND", {{"weights", name}});
}

void RunSession::erase_weights(const std::function<bool(const v1::SavedWeights&)>& which) {
  auto& all = *run_.mutable_weights();
  all.erase(std::remove_if(all.begin(), all.end(), which), all.end());
}

void RunSession::delete_weights(const std::string& name) {
  const std::string weights = parse_weights_name(name).weights;
  Hold claimed;
  {
    const std::lock_guard lock(mutex_);
    const bool on_disk = weights_named(name).storage() == v1::WEIGHTS_STORAGE_DISK;
    erase_weights([&](const v1::SavedWeights& saved) { return saved.name() == name; });
    snapshots_.erase(name);
    if (!on_disk) return;
    claimed = claim(name);
  }
  world_.store.remove_weights(name);
  std::error_code error;
  std::filesystem::remove_all(weights_folder(weights), error);
}

void RunSession::drop_snapshots() {
  erase_weights(
      [](const v1::SavedWeights& saved) { return saved.storage() == v1::WEIGHTS_STORAGE_MEMORY; });
  snapshots_.clear();
}

}  // namespace meshloom::control
