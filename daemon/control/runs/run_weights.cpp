// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMostSnapshots = 8;  // in memory

template <typename Which>
void erase_if(RunWeights::List& all, const Which& which) {
  all.erase(std::remove_if(all.begin(), all.end(), which), all.end());
}

}  // namespace

RunWeights::List RunWeights::all() const {
  const std::lock_guard lock(mutex_);
  return saved_;
}

const v1::SavedWeights* RunWeights::saved_as(const std::string& name) const {
  for (const v1::SavedWeights& saved : saved_)
    if (saved.name() == name) return &saved;
  return nullptr;
}

v1::SavedWeights RunWeights::named(const std::string& name) const {
  if (const v1::SavedWeights* saved = saved_as(name)) return *saved;
  throw NotFound(fmt::format("{} do not exist", name), "WEIGHTS_NOT_FOUND", {{"weights", name}});
}

v1::SavedWeights RunWeights::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return named(name);
}

v1::SavedWeights RunWeights::drawn_locked(const std::string& name) const {
  if (const v1::SavedWeights* saved = saved_as(name)) return *saved;
  throw FailedPrecondition(fmt::format("{} are not there (any more)", name), "SNAPSHOT_STALE",
                           {{"weights", name}, {"field", "weights"}});
}

v1::SavedWeights RunWeights::drawn(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return drawn_locked(name);
}

Hold RunWeights::add_claim(const std::string& name) const {
  return parts_.uses.hold(name, "a verb that saves them or a call that deletes them");
}

Hold RunWeights::claim(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (saved_as(name) != nullptr || parts_.uses.holder_of(name))
    throw AlreadyExists(fmt::format("{} exist already; choose another name", name), "WEIGHTS_EXIST",
                        {{"weights", name}, {"field", "name"}});
  parts_.store.check_weights_room(run_);
  return add_claim(name);
}

SnapshotMemory RunWeights::hold_snapshot(const v1::RunConfig& resolved) {
  SnapshotMemory held;
  {
    const std::lock_guard lock(mutex_);
    const std::size_t kept = held_weights_->load();
    if (kept >= kMostSnapshots)
      throw ResourceExhausted(
          fmt::format("run \"{}\" keeps {} weights in memory already, the most that it may; "
                      "delete some (DeleteWeights), or wait for the samples from those deleted",
                      run_, kept),
          "TOO_MANY_SNAPSHOTS", {{"run", run_}});
    // Counted before there is memory for it: of several that ask at once none is one too many.
    ++*held_weights_;
    held.place = Hold([count = held_weights_] { --*count; });
  }
  held.units = parts_.budget.hold_snapshot(resolved);
  return held;
}

RunWeights::SnapshotPtr RunWeights::keep_snapshot(const std::string& weights,
                                                  const v1::RunConfig& resolved) {
  SnapshotMemory memory = hold_snapshot(resolved);
  std::int64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = next_snapshot_++;
  }
  return std::make_shared<const RunSnapshot>(parts_.ranks, fmt::format("{}.{}", weights, number),
                                             std::move(memory));
}

std::shared_ptr<const SnapshotMemory> RunWeights::hold_loaded(const std::string& name,
                                                              const v1::RunConfig& resolved) {
  // One of several samples of the same weights asks for memory, which the others share.
  const std::lock_guard one_at_a_time(loading_);
  {
    const std::lock_guard lock(mutex_);
    if (auto held = loaded_memory_[name].lock()) return held;
  }
  const auto held = std::make_shared<const SnapshotMemory>(hold_snapshot(resolved));
  const std::lock_guard lock(mutex_);
  std::erase_if(loaded_memory_, [](const auto& item) { return item.second.expired(); });
  loaded_memory_[name] = held;
  return held;
}

RunWeights::Drawn RunWeights::hold(const std::string& weights, const v1::RunConfig& resolved) {
  const std::string name = weights_resource(run_, weights);
  Drawn held;
  {
    const std::lock_guard lock(mutex_);
    const v1::SavedWeights saved = drawn_locked(name);
    if (saved.storage() == v1::WEIGHTS_STORAGE_MEMORY) {
      const SnapshotPtr& snapshot = snapshots_.at(name);
      held.origin.snapshot = snapshot->key();
      held.snapshot = snapshot;
      return held;
    }
    held.origin.snapshot = weights;
    held.origin.weights_folder = folder_of(weights);
    held.origin.weights_step = saved.step();
  }
  held.loaded = hold_loaded(name, resolved);
  return held;
}

std::filesystem::path RunWeights::folder_of(const std::string& weights) const {
  return parts_.dir.root() / saved_weights_folder(run_, weights);
}

void RunWeights::keep(const v1::SavedWeights& saved, SnapshotPtr snapshot) {
  if (saved.storage() == v1::WEIGHTS_STORAGE_DISK) {
    try {
      parts_.store.put_weights(saved);
    } catch (...) {
      // Else the name could not be used again.
      try_removal(saved.folder(),
                  [&] { std::filesystem::remove_all(parts_.dir.root() / saved.folder()); });
      throw;
    }
  }
  const std::lock_guard lock(mutex_);
  *saved_.Add() = saved;
  if (snapshot) snapshots_[saved.name()] = std::move(snapshot);
}

void RunWeights::remove(const std::string& name) {
  const std::string weights = parse_weights_name(name).weights;
  SnapshotPtr snapshot;  // ends without the mutex
  Hold claimed;
  {
    const std::lock_guard lock(mutex_);
    const bool on_disk = named(name).storage() == v1::WEIGHTS_STORAGE_DISK;
    erase_if(saved_, [&](const v1::SavedWeights& saved) { return saved.name() == name; });
    if (const auto kept = snapshots_.extract(name)) snapshot = std::move(kept.mapped());
    if (!on_disk) return;
    claimed = add_claim(name);
  }
  parts_.store.remove_weights(name);
  std::error_code error;
  std::filesystem::remove_all(folder_of(weights), error);
}

void RunWeights::drop_snapshots() {
  std::map<std::string, SnapshotPtr> dropped;  // end without the mutex
  const std::lock_guard lock(mutex_);
  erase_if(saved_, [](const v1::SavedWeights& saved) {
    return saved.storage() == v1::WEIGHTS_STORAGE_MEMORY;
  });
  dropped.swap(snapshots_);
}

}  // namespace meshloom::control
