// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/run_store.h"

#include "daemon/base/states.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/request_log.h"

namespace meshloom::control {

bool has_ended(const v1::Run& run) { return base::is_final(run.state()); }

void RunStore::apply(const v1::JournalRecord& record) {
  if (!record.deleted_run().empty()) runs_.erase(record.deleted_run());
  if (record.has_run()) runs_[parse_run_name(record.run().run().name())] = record.run();
}

void RunStore::snapshot(const Ledger::Visit& append) const {
  for (const auto& [id, run] : all()) {
    v1::JournalRecord record;
    *record.mutable_run() = run;
    append(record);
  }
}

std::optional<std::string> RunStore::find_request(const RequestKey& key) const {
  const auto found = ledger().find_request(key);
  if (!found) return std::nullopt;
  return parse_run_name(found->resource());
}

void RunStore::put(const v1::RunRecord& run, const RequestKey& request) {
  v1::JournalRecord record;
  *record.mutable_run() = run;
  if (const auto told = RequestLog::record_of(request, run.run().name()))
    *record.mutable_request() = *told;
  const std::lock_guard one(change_mutex_);
  commit(record);
}

void RunStore::put_kept(const v1::RunRecord& run) {
  v1::JournalRecord record;
  *record.mutable_run() = run;
  const std::lock_guard one(change_mutex_);
  commit(record, Ledger::Need::kKept);
}

void RunStore::remove(const std::string& id) {
  v1::JournalRecord record;
  record.set_deleted_run(id);
  const std::lock_guard one(change_mutex_);
  commit(record, Ledger::Need::kKept);
}

std::map<std::string, v1::RunRecord> RunStore::all() const {
  const std::lock_guard lock(mutex_);
  return runs_;
}

std::optional<std::string> RunStore::find_user(const ConfigTest& uses) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, run] : runs_)
    if (!has_ended(run.run()) && uses(run.run().resolved())) return id;
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
