// SPDX-License-Identifier: Apache-2.0
// StoreOwners: whose objects are, as the stores of a daemon know it.
#pragma once

#include "daemon/control/runs/run_manager.h"
#include "daemon/control/services/gate.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/model_store.h"
#include "daemon/control/stores/plan_store.h"
#include "daemon/control/stores/upload_store.h"

namespace meshloom::control {

/// The stores outlive it.
class StoreOwners final : public ObjectOwners {
 public:
  struct Stores {
    const JobStore& jobs;
    const RunManager& runs;
    const UploadStore& uploads;
    const ModelStore* models = nullptr;  ///< null: there are none, and no plans
    const PlanStore* plans = nullptr;
  };
  explicit StoreOwners(const Stores& stores) : stores_(stores) {}

  std::optional<Ownership> find(ObjectKind kind, const std::string& id) const override;
  bool is_repeat(const RequestKey& key) const override;

 private:
  const Stores stores_;
};

}  // namespace meshloom::control
