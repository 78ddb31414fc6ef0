// SPDX-License-Identifier: Apache-2.0
// RunStore: the runs that clients drive, as they are to be found after a restart.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "daemon/control/stores/journaled_store.h"
#include "daemon/control/stores/request_key.h"

namespace meshloom::control {

/// All methods may be called from any thread. Ids are names without "runs/".
class RunStore final : public JournaledStore {
 public:
  /// The id of the run that a repeated request made; nothing for a new request. Throws
  /// InvalidArgument (REQUEST_ID_REUSED).
  std::optional<std::string> find_request(const RequestKey& key) const;
  /// Durable when it returns, else it throws (a full disk) and nothing has changed.
  void put(const v1::RunRecord& run, const RequestKey& request = {});
  /// For what has happened already: what cannot be written is tried again until it is.
  void put_kept(const v1::RunRecord& run);
  /// As put_kept.
  void remove(const std::string& id);
  /// All records by id.
  std::map<std::string, v1::RunRecord> all() const;
  /// A run that has not ended and whose config `uses` says so of, if there is one.
  std::optional<std::string> find_user(const ConfigTest& uses) const;
  /// The same of one whose config names the model.
  std::optional<std::string> user_of_model(const std::string& model) const;

  /// The same of a plan, by its whole name.
  std::optional<std::string> user_of_plan(const std::string& plan) const;

  void snapshot(const Ledger::Visit& append) const override;

 private:
  void apply(const v1::JournalRecord& record) override;
  void settle_after_restart() override {}  // RunManager does

  std::map<std::string, v1::RunRecord> runs_;
};

/// CLOSED or FAILED.
bool has_ended(const v1::Run& run);

}  // namespace meshloom::control
