// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/store_owners.h"

namespace meshloom::control {

std::optional<Ownership> StoreOwners::find(ObjectKind kind, const std::string& id) const {
  switch (kind) {
    case ObjectKind::kJob: return stores_.jobs.ownership(id);
    case ObjectKind::kRun: return stores_.runs.ownership(id);
    case ObjectKind::kModel:
      return stores_.models == nullptr ? std::nullopt : stores_.models->ownership(id);
    case ObjectKind::kPlan:
      return stores_.plans == nullptr ? std::nullopt : stores_.plans->ownership(id);
    case ObjectKind::kUpload: {
      const auto holder = stores_.uploads.client_of(id);
      if (!holder) return std::nullopt;
      Ownership ownership;
      ownership.owner = owner_of_holder(*holder);
      return ownership;
    }
  }
  return std::nullopt;
}

bool StoreOwners::is_repeat(const RequestKey& key) const {
  try {
    return stores_.jobs.is_answered(key);
  } catch (const InvalidArgument&) {
    return false;  // the id is that of another request
  }
}

}  // namespace meshloom::control
