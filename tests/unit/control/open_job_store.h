// SPDX-License-Identifier: Apache-2.0
// A store of jobs with a journal, as it is after the start of a daemon.
#pragma once

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/state_contents.h"

namespace meshloom::control {

/// `others` have their records in the same journal and outlive this.
class OpenJobStore final : public JobStore {
 public:
  OpenJobStore(const std::filesystem::path& journal, const Options& options,
               std::vector<JournaledStore*> others = {})
      : JobStore(options) {
    others.insert(others.begin(), this);
    ledger_ = open_ledger(journal, std::move(others));
  }

  using JobStore::ledger;

 private:
  std::unique_ptr<Ledger> ledger_;
};

}  // namespace meshloom::control
