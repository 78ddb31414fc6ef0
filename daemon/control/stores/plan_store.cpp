// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/plan_store.h"

#include <span>

#include "daemon/base/sha256.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/access/sharing.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/request_log.h"
#include "kernels/base/error.h"
#include "v1/plan.pb.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMostPlans = 10'000;

}  // namespace

const v1::StoredPlan& PlanStore::stored(const std::string& id) const {
  const auto found = plans_.beginning_with(id, 2);
  if (found.empty())
    throw NotFound(fmt::format("plan \"{}\" does not exist", id), "PLAN_NOT_FOUND", {{"plan", id}});
  if (found.size() > 1 && found[0]->id() != id)
    throw InvalidArgument(fmt::format("several plans begin with \"{}\"; give more digits", id),
                          "PLAN_AMBIGUOUS", {{"plan", id}});
  return *found[0];
}

const v1::StoredPlan& PlanStore::own(const std::string& id, const RequestKey& key) const {
  const v1::StoredPlan& found = stored(id);
  if (!key.by.is_admin() && found.owner() != key.by.owner())
    throw NotFound(fmt::format("plan \"{}\" does not exist", id), "PLAN_NOT_FOUND", {{"plan", id}});
  return found;
}

std::optional<Ownership> PlanStore::ownership(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = plans_.beginning_with(id, 1);
  return found.empty() ? std::nullopt : std::optional(ownership_of(*found[0]));
}

v1::StoredPlan PlanStore::share(const std::string& id, const std::string& with, bool take_back,
                                const RequestKey& key) {
  const std::lock_guard deciding(change_mutex_);
  if (const auto first = find_request(key)) return *first;
  v1::JournalRecord record;
  v1::StoredPlan& plan = *record.mutable_plan();
  {
    const std::lock_guard lock(mutex_);
    plan = own(id, key);
  }
  if (with.empty())
    plan.set_shared(!take_back);
  else
    share_with(with, take_back, plan.mutable_shared_with());
  if (const auto request = RequestLog::record_of(key, plan_resource(plan.id())))
    *record.mutable_request() = *request;
  const v1::StoredPlan shared = plan;
  commit(record);
  return shared;
}

v1::StoredPlan PlanStore::get(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return stored(id);
}

std::optional<v1::StoredPlan> PlanStore::find_request(const RequestKey& key) const {
  const auto found = ledger().find_request(key);
  if (!found) return std::nullopt;
  const std::string id = parse_plan_name(found->resource());
  if (found->gone())
    throw NotFound(fmt::format("plan \"{}\" of this request was deleted", id), "PLAN_DELETED",
                   {{"plan", id}});
  return get(id);
}

v1::StoredPlan PlanStore::create(v1::StoredPlan plan, const RequestKey& key) {
  const std::lock_guard deciding(change_mutex_);
  if (const auto first = find_request(key)) return *first;
  v1::PlanFile named;
  *named.mutable_mesh() = plan.mesh();
  *named.mutable_plan() = plan.plan();
  const std::string bytes = deterministic_bytes(named);
  base::Sha256 digest;
  digest.update(std::as_bytes(std::span(bytes)));
  plan.set_owner(key.by.owner());
  // Whoever creates what another has created is told nothing of that.
  if (!plan.owner().empty()) digest.update(std::as_bytes(std::span(plan.owner())));
  plan.set_id(digest.hex());
  v1::JournalRecord record;
  {
    const std::lock_guard lock(mutex_);
    if (const v1::StoredPlan* same = plans_.find(plan.id())) {
      plan = *same;
    } else if (plans_.size() >= kMostPlans) {
      throw ResourceExhausted(fmt::format("{} plans are kept, no more are taken", plans_.size()),
                              "TOO_MANY_PLANS");
    } else {
      plan.set_create_time(base::now_rfc3339());
      *record.mutable_plan() = plan;
    }
  }
  const auto request = RequestLog::record_of(key, plan_resource(plan.id()));
  if (request) *record.mutable_request() = *request;
  if (record.has_plan() || request) commit(record);
  return plan;
}

std::pair<std::vector<v1::StoredPlan>, std::int64_t> PlanStore::list(
    std::int64_t position, int size, const IsShown& is_shown) const {
  const std::lock_guard lock(mutex_);
  return plans_.page(position, size, [&](const v1::StoredPlan& plan) {
    return !is_shown || is_shown(ownership_of(plan)) ? std::optional(plan) : std::nullopt;
  });
}

void PlanStore::remove(const std::string& id, const RequestKey& key) {
  const std::lock_guard deciding(change_mutex_);
  if (ledger().find_request(key)) return;
  v1::JournalRecord record;
  {
    const std::lock_guard lock(mutex_);
    record.set_deleted_plan(own(id, key).id());
  }
  const std::string& whole = record.deleted_plan();
  if (const auto user = uses_->user_of_plan(whole))
    throw FailedPrecondition(fmt::format("plan \"{}\" is used by {}", id, *user), "PLAN_IN_USE",
                             {{"plan", id}, {"used_by", *user}});
  if (auto request = RequestLog::record_of(key, plan_resource(whole))) {
    request->set_gone(true);
    *record.mutable_request() = *request;
  }
  commit(record, Ledger::Need::kRefusableUrgent);
}

v1::StoredPlan PlanStore::get_held(const std::string& id, const std::string& user, Hold* hold) {
  // Not between a removal's look at the users and its end.
  const std::lock_guard deciding(change_mutex_);
  const std::lock_guard lock(mutex_);
  const v1::StoredPlan plan = stored(id);
  *hold = uses_->hold(plan_resource(plan.id()), user);
  return plan;
}

void PlanStore::apply(const v1::JournalRecord& record) {
  plans_.erase(record.deleted_plan());
  if (record.has_plan()) plans_.put(record.plan());
}

void PlanStore::snapshot(const Ledger::Visit& append) const {
  std::vector<v1::JournalRecord> records;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& item : plans_.items()) *records.emplace_back().mutable_plan() = item.second;
  }
  for (const v1::JournalRecord& record : records) append(record);
}

}  // namespace meshloom::control
