// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/run_store.h"

#include <algorithm>
#include <utility>

#include "daemon/base/states.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/request_log.h"
#include "daemon/control/stores/state_dir.h"
#include "kernels/base/error.h"

namespace meshloom::control {

namespace {

/// With the folder of the state dir. Journals of earlier versions have it absolute, as it was
/// before the state dir was moved.
v1::SavedWeights placed(v1::SavedWeights saved) {
  if (saved.folder().empty()) return saved;
  const WeightsName name = parse_weights_name(saved.name());
  saved.set_folder(saved_weights_folder(name.run, name.weights));
  return saved;
}

}  // namespace

bool has_ended(const v1::Run& run) { return base::is_final(run.state()); }

RunStore::RunStore() : RunStore(Limits()) {}

const RunStore::Kept* RunStore::find(const std::string& id) const {
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : &found->second;
}

RunStore::Kept* RunStore::find(const std::string& id) {
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : &found->second;
}

void RunStore::forget_folder(const std::string& folder) {
  if (!settled_ && !folder.empty()) removed_.insert(folder);
}

template <typename Item>
void RunStore::hold(SavedItems<Item>& items, const Item& item) {
  if (const Item* replaced = items.find(item.name())) forget_folder(replaced->folder());
  items.put(item);
  removed_.erase(item.folder());
}

template <typename Item>
void RunStore::drop(SavedItems<Item>& items, const std::string& name) {
  if (const Item* dropped = items.find(name)) forget_folder(dropped->folder());
  items.erase(name);
}

template <typename Item>
void RunStore::drop_all(SavedItems<Item>& items) {
  for (const auto& [number, item] : items.items()) forget_folder(item.folder());
  items.clear();
}

void RunStore::apply_run(const v1::JournalRecord& record) {
  Kept& kept = runs_[parse_run_name(record.run().run().name())];
  kept.record = record.run();
  v1::Run& run = *kept.record.mutable_run();
  if (!record.without_parts()) {
    drop_all(kept.states);
    drop_all(kept.weights);
    for (const v1::SavedState& state : run.saved()) hold(kept.states, state);
    for (const v1::SavedWeights& weights : run.weights()) hold(kept.weights, placed(weights));
  }
  run.clear_saved();
  run.clear_weights();
  removed_.erase(run.name());
}

void RunStore::apply(const v1::JournalRecord& record) {
  if (const std::string& id = record.deleted_run(); !id.empty()) {
    runs_.erase(id);
    forget_folder(run_resource(id));
  }
  if (record.has_run()) apply_run(record);
  // Of a run that a record behind these deletes there may be nothing left to be changed.
  if (record.has_saved_state())
    if (Kept* run = find(parse_state_name(record.saved_state().name()).run))
      hold(run->states, record.saved_state());
  if (!record.deleted_state().empty())
    if (Kept* run = find(parse_state_name(record.deleted_state()).run))
      drop(run->states, record.deleted_state());
  if (record.has_saved_weights())
    if (Kept* run = find(parse_weights_name(record.saved_weights().name()).run))
      hold(run->weights, placed(record.saved_weights()));
  if (!record.deleted_weights().empty())
    if (Kept* run = find(parse_weights_name(record.deleted_weights()).run))
      drop(run->weights, record.deleted_weights());
}

std::set<std::string> RunStore::take_removed() {
  const std::lock_guard lock(mutex_);
  settled_ = true;
  return std::exchange(removed_, {});
}

std::map<std::string, std::set<std::string>> RunStore::folders() const {
  std::map<std::string, std::set<std::string>> folders;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, run] : runs_) {
    std::set<std::string>& of_run = folders[id];
    for (const auto& [number, state] : run.states.items()) of_run.insert(state.folder());
    for (const auto& [number, weights] : run.weights.items()) of_run.insert(weights.folder());
  }
  return folders;
}

void RunStore::snapshot(const Ledger::Visit& append) const {
  std::vector<std::string> ids;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& item : runs_) ids.push_back(item.first);
  }
  // One by one, so that others do not wait for all of them. What is put or removed meanwhile is
  // appended behind.
  for (const std::string& id : ids) {
    Kept kept;
    {
      const std::lock_guard lock(mutex_);
      if (const Kept* run = find(id)) kept = *run;
    }
    if (!kept.record.has_run()) continue;
    v1::JournalRecord record;
    *record.mutable_run() = std::move(kept.record);
    append(record);
    for (const auto& [number, state] : kept.states.items()) {
      v1::JournalRecord part;
      *part.mutable_saved_state() = state;
      append(part);
    }
    for (const auto& [number, weights] : kept.weights.items()) {
      v1::JournalRecord part;
      *part.mutable_saved_weights() = weights;
      append(part);
    }
  }
}

std::optional<std::string> RunStore::find_request(const RequestKey& key) const {
  const auto found = ledger().find_request(key);
  if (!found) return std::nullopt;
  const std::string id = parse_run_name(found->resource());
  // Another may have its name.
  if (found->gone())
    throw NotFound(fmt::format("run \"{}\" of this request was deleted", id), "RUN_DELETED",
                   {{"run", id}});
  return id;
}

void RunStore::change(const v1::JournalRecord& record, Ledger::Need need) {
  const std::lock_guard one(change_mutex_);
  commit(record, need);
}

void RunStore::put_as(const v1::RunRecord& run, const RequestKey& request, Ledger::Need need) {
  v1::JournalRecord record;
  *record.mutable_run() = run;
  record.mutable_run()->mutable_run()->clear_saved();
  record.mutable_run()->mutable_run()->clear_weights();
  record.set_without_parts(true);
  if (const auto told = RequestLog::record_of(request, run.run().name()))
    *record.mutable_request() = *told;
  change(record, need);
}

void RunStore::put(const v1::RunRecord& run, const RequestKey& request) {
  put_as(run, request, Ledger::Need::kRefusable);
}

void RunStore::put_kept(const v1::RunRecord& run) { put_as(run, {}, Ledger::Need::kKept); }

void RunStore::remove(const std::string& id) {
  v1::JournalRecord record;
  record.set_deleted_run(id);
  change(record, Ledger::Need::kKept);
}

std::map<std::string, v1::RunRecord> RunStore::all() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, v1::RunRecord> records;
  for (const auto& [id, kept] : runs_) {
    v1::RunRecord& record = records[id];
    record = kept.record;
    for (const auto& [number, weights] : kept.weights.items())
      *record.mutable_run()->add_weights() = weights;
  }
  return records;
}

void RunStore::put_state(const v1::SavedState& state) {
  v1::JournalRecord record;
  *record.mutable_saved_state() = state;
  change(record, Ledger::Need::kRefusable);
}

void RunStore::put_state_kept(const v1::SavedState& state) {
  v1::JournalRecord record;
  *record.mutable_saved_state() = state;
  change(record, Ledger::Need::kKept);
}

void RunStore::remove_state(const std::string& name) {
  v1::JournalRecord record;
  record.set_deleted_state(name);
  change(record, Ledger::Need::kKept);
}

std::optional<v1::SavedState> RunStore::find_state(const std::string& name) const {
  const std::string id = parse_state_name(name).run;
  const std::lock_guard lock(mutex_);
  const Kept* run = find(id);
  const v1::SavedState* state = run ? run->states.find(name) : nullptr;
  return state ? std::optional(*state) : std::nullopt;
}

v1::SavedState RunStore::state(const std::string& name) const {
  if (auto found = find_state(name)) return *std::move(found);
  throw NotFound(fmt::format("{} does not exist", name), "STATE_NOT_FOUND", {{"state", name}});
}

std::optional<v1::SavedState> RunStore::newest_readable_state(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const Kept* run = find(id);
  if (!run) return std::nullopt;
  const auto& states = run->states.items();
  const auto newest = std::find_if(states.rbegin(), states.rend(),
                                   [](const auto& item) { return !item.second.has_damage(); });
  if (newest == states.rend()) return std::nullopt;
  std::optional<v1::SavedState> told = newest->second;
  told->clear_user_metadata();
  return told;
}

std::int64_t RunStore::count_states(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const Kept* run = find(id);
  return run ? static_cast<std::int64_t>(run->states.size()) : 0;
}

void RunStore::visit_states(const std::string& id,
                            const std::function<void(const v1::SavedState&)>& each) const {
  const std::lock_guard lock(mutex_);
  const Kept* run = find(id);
  if (!run) return;
  for (const auto& [number, state] : run->states.items()) each(state);
}

std::pair<std::vector<v1::SavedState>, std::int64_t> RunStore::list_states(const std::string& id,
                                                                           std::int64_t position,
                                                                           int size) const {
  const std::lock_guard lock(mutex_);
  const Kept* run = find(id);
  if (!run) return {};
  return run->states.page(position, size,
                          [](const v1::SavedState& state) { return std::optional(state); });
}

void RunStore::tell_states(const StateRoom& room, v1::Run* run) const {
  const std::string id = parse_run_name(run->name());
  auto& saved = *run->mutable_saved();
  const std::lock_guard lock(mutex_);
  const Kept* kept = find(id);
  if (!kept) return;
  run->set_saved_count(static_cast<std::int64_t>(kept->states.size()));
  const auto& states = kept->states.items();
  std::size_t bytes = 0;
  bool with_metadata = true;
  for (auto item = states.rbegin(); item != states.rend(); ++item) {
    v1::SavedState state = item->second;
    with_metadata = with_metadata && bytes + state.ByteSizeLong() <= room.with_metadata;
    if (!with_metadata) state.clear_user_metadata();
    bytes += state.ByteSizeLong();
    if (bytes > room.all) break;
    *saved.Add() = std::move(state);
  }
  std::reverse(saved.pointer_begin(), saved.pointer_end());
}

void RunStore::check_state_room(const std::string& name, std::size_t bytes) const {
  const std::string id = parse_state_name(name).run;
  std::size_t of_run = bytes, of_all = bytes;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [other, kept] : runs_) {
      const v1::SavedState* replaced = other == id ? kept.states.find(name) : nullptr;
      const std::size_t stays = kept.states.bytes() - (replaced ? replaced->ByteSizeLong() : 0);
      of_all += stays;
      if (other == id) of_run += stays;
    }
  }
  const auto refuse = [&](const std::string& whose, std::size_t sum, std::size_t most) {
    throw ResourceExhausted(
        fmt::format("saved states of {} would take {} bytes with their metadata, at most {} are "
                    "kept: delete some (DeleteState), or give less user_metadata",
                    whose, sum, most),
        "STATES_FULL",
        {{"run", id}, {"bytes", std::to_string(sum)}, {"limit", std::to_string(most)}});
  };
  if (of_run > limits_.states) refuse(fmt::format("run \"{}\"", id), of_run, limits_.states);
  if (of_all > limits_.all_states) refuse("all runs", of_all, limits_.all_states);
}

void RunStore::put_weights(const v1::SavedWeights& weights) {
  v1::JournalRecord record;
  *record.mutable_saved_weights() = weights;
  change(record, Ledger::Need::kRefusable);
}

void RunStore::remove_weights(const std::string& name) {
  v1::JournalRecord record;
  record.set_deleted_weights(name);
  change(record, Ledger::Need::kKept);
}

void RunStore::check_weights_room(const std::string& id) const {
  constexpr std::size_t kOneMore = 512;
  const std::lock_guard lock(mutex_);
  const Kept* run = find(id);
  const std::size_t bytes = (run ? run->weights.bytes() : 0) + kOneMore;
  if (bytes <= limits_.weights) return;
  throw ResourceExhausted(
      fmt::format("records of the weights of run \"{}\" would take {} bytes, at most {} are kept: "
                  "delete some (DeleteWeights)",
                  id, bytes, limits_.weights),
      "WEIGHTS_FULL",
      {{"run", id}, {"bytes", std::to_string(bytes)}, {"limit", std::to_string(limits_.weights)}});
}

std::optional<std::string> RunStore::user_by_config(const ConfigTest& test) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, kept] : runs_)
    if (!has_ended(kept.record.run()) && test(kept.record.run().resolved()))
      return run_resource(id);
  return std::nullopt;
}

}  // namespace meshloom::control
