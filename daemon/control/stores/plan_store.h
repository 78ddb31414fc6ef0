// SPDX-License-Identifier: Apache-2.0
// PlanStore: the plans that the daemon keeps, by what they say.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/access/ownership.h"
#include "daemon/control/host/hold.h"
#include "daemon/control/stores/journaled_store.h"
#include "daemon/control/stores/numbered_items.h"
#include "daemon/control/stores/request_key.h"
#include "daemon/control/stores/uses.h"
#include "v1/plan_service.pb.h"
#include "v1/stored.pb.h"

namespace meshloom::control {

/// A plan never changes. It is named by the SHA-256 of its mesh and plan, and of its owner, if that
/// is not the admins: equal ones of one owner are one.
/// All methods may be called from any thread. Ids are names without "plans/", or at least 8 digits
/// with which one of them alone begins.
class PlanStore final : public JournaledStore {
 public:
  /// `uses`: who uses plans.
  explicit PlanStore(std::shared_ptr<const Uses> uses = std::make_shared<const Uses>())
      : uses_(std::move(uses)) {}

  /// Keeps a plan that was checked; `plan.id` is filled in. The same again gives the first one.
  /// Throws ResourceExhausted (TOO_MANY_PLANS).
  v1::StoredPlan create(v1::StoredPlan plan, const RequestKey& key);
  /// The plan that a repeated request made; nothing for a new request. Throws NotFound
  /// (PLAN_DELETED), InvalidArgument (REQUEST_ID_REUSED).
  std::optional<v1::StoredPlan> find_request(const RequestKey& key) const;
  /// Throws NotFound (PLAN_NOT_FOUND), InvalidArgument (PLAN_AMBIGUOUS).
  v1::StoredPlan get(const std::string& id) const;
  /// Of the plan that is told to whom it is shown; nothing if there is none.
  std::optional<Ownership> ownership(const std::string& id) const;
  /// Lets `with` use it, or no more; empty: everybody.
  v1::StoredPlan share(const std::string& id, const std::string& with, bool take_back,
                       const RequestKey& key);
  /// Up to `size` after position (0 at first), oldest first; the position to go on from, 0 at the
  /// end.
  std::pair<std::vector<v1::StoredPlan>, std::int64_t> list(
      std::int64_t position, int size, const IsShown& is_shown = nullptr) const;
  /// Throws FailedPrecondition (PLAN_IN_USE).
  void remove(const std::string& id, const RequestKey& key);

  /// The plan, which is not removed before `hold` is let go.
  v1::StoredPlan get_held(const std::string& id, const std::string& user, Hold* hold);

  void snapshot(const Ledger::Visit& append) const override;

 private:
  void apply(const v1::JournalRecord& record) override;
  void settle_after_restart() override {}
  // With mutex_ held.
  const v1::StoredPlan& stored(const std::string& id) const;
  /// The same if its owner asks, or an admin does.
  const v1::StoredPlan& own(const std::string& id, const RequestKey& key) const;

  NumberedItems<v1::StoredPlan> plans_;
  const std::shared_ptr<const Uses> uses_;
};

}  // namespace meshloom::control
