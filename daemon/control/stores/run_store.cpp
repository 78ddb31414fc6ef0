// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/run_store.h"

#include <algorithm>

#include "daemon/base/states.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/page_room.h"
#include "daemon/control/stores/request_log.h"
#include "kernels/base/error.h"

namespace meshloom::control {

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

void RunStore::apply_run(const v1::JournalRecord& record) {
  Kept& kept = runs_[parse_run_name(record.run().run().name())];
  kept.record = record.run();
  v1::Run& run = *kept.record.mutable_run();
  if (!record.without_parts()) {
    kept.states.clear();
    kept.weights.clear();
    for (const v1::SavedState& state : run.saved()) kept.states.put(state);
    for (const v1::SavedWeights& weights : run.weights()) kept.weights.put(weights);
  }
  run.clear_saved();
  run.clear_weights();
}

void RunStore::apply(const v1::JournalRecord& record) {
  if (!record.deleted_run().empty()) runs_.erase(record.deleted_run());
  if (record.has_run()) apply_run(record);
  // Of a run that a record behind these deletes there may be nothing left to be changed.
  if (record.has_saved_state())
    if (Kept* run = find(parse_state_name(record.saved_state().name()).run))
      run->states.put(record.saved_state());
  if (!record.deleted_state().empty())
    if (Kept* run = find(parse_state_name(record.deleted_state()).run))
      run->states.erase(record.deleted_state());
  if (record.has_saved_weights())
    if (Kept* run = find(parse_weights_name(record.saved_weights().name()).run))
      run->weights.put(record.saved_weights());
  if (!record.deleted_weights().empty())
    if (Kept* run = find(parse_weights_name(record.deleted_weights()).run))
      run->weights.erase(record.deleted_weights());
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
  return parse_run_name(found->resource());
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
  PageRoom room(size);
  std::vector<v1::SavedState> page;
  std::int64_t last = position;
  const auto& states = run->states.items();
  for (auto item = states.upper_bound(position); item != states.end(); ++item) {
    if (!room.take(item->second)) return {std::move(page), last};
    page.push_back(item->second);
    last = item->first;
  }
  return {std::move(page), 0};
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

std::optional<std::string> RunStore::find_user(const ConfigTest& uses) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, kept] : runs_)
    if (!has_ended(kept.record.run()) && uses(kept.record.run().resolved())) return id;
  return std::nullopt;
}

std::optional<std::string> RunStore::user_of_model(const std::string& model) const {
  // A run's config has no data, whose tokenizer could be the model's: resolve_stepped_config
  // refuses it.
  return find_user([&](const v1::RunConfig& config) { return config.model().name() == model; });
}

std::optional<std::string> RunStore::user_of_plan(const std::string& plan) const {
  return find_user([&](const v1::RunConfig& config) { return config.plan().name() == plan; });
}

}  // namespace meshloom::control
