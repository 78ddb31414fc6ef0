// SPDX-License-Identifier: Apache-2.0
// LocalAdmission: whether what clients ask for can be carried out by this daemon.
#pragma once

#include <utility>

#include "daemon/control/host/bounded_calls.h"
#include "daemon/control/host/daemon_service.h"
#include "daemon/control/jobs/local_config_resolver.h"
#include "daemon/control/jobs/local_memory_budget.h"
#include "daemon/control/jobs/local_model_folders.h"
#include "daemon/control/jobs/local_resources.h"
#include "daemon/control/jobs/local_source_loader.h"
#include "daemon/control/jobs/local_tokenization.h"

namespace meshloom::control {

/// Owns the four that look at requests, who share a limit of the time that a call into the file
/// systems takes and one count of memory, and the one that loads models. Must not be destroyed
/// while hanging() is true. `store` and `state` outlive it.
class LocalAdmission final : public DaemonService {
 public:
  LocalAdmission(const JobStore& store, const StateDir& state, LocalResources resources)
      : resources_(std::move(resources)),
        calls_(resources_.resolve_timeout, kMostCalls),
        memory_(
            resources_.hosts, [] { return base::memory_limit(); }, resources_.devices),
        folders_(resources_, calls_),
        budget_(store, folders_, memory_, calls_),
        tokenization_(state, resources_, folders_, calls_),
        resolver_(store, state, resources_, folders_, memory_, calls_),
        sources_(state, budget_, resources_.threads) {}
  LocalAdmission(const LocalAdmission&) = delete;
  LocalAdmission& operator=(const LocalAdmission&) = delete;

  const LocalResources& resources() const { return resources_; }
  LocalConfigResolver& resolver() { return resolver_; }
  LocalModelFolders& folders() { return folders_; }
  LocalMemoryBudget& budget() { return budget_; }
  LocalTokenization& tokenization() { return tokenization_; }
  LocalSourceLoader& sources() { return sources_; }

  /// All that wait for files or models are let go. Does not wait.
  void request_stop() override {
    calls_.stop();
    sources_.request_stop();
  }
  /// Threads that nobody waits for any more still use this.
  bool hanging() const { return calls_.running() > 0 || sources_.hanging(); }

 private:
  static constexpr int kMostCalls = 64;

  const LocalResources resources_;
  BoundedCalls calls_;  ///< into the file systems that requests name
  MemoryAdmission memory_;
  LocalModelFolders folders_;
  LocalMemoryBudget budget_;
  LocalTokenization tokenization_;
  LocalConfigResolver resolver_;
  LocalSourceLoader sources_;
};

}  // namespace meshloom::control
