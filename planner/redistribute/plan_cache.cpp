// SPDX-License-Identifier: Apache-2.0
#include <unordered_map>

#include "kernels/base/error.h"
#include "kernels/base/hash.h"
#include "planner/redistribute/planner.h"

namespace meshloom::planner {
namespace {

// Pairs of objects that are remembered; equal layouts in new objects are found by value.
constexpr std::size_t kMostPointerPairs = 8192;
// Plans of a generation. Shapes that never come again (prompts, last batches) must not pile up.
constexpr std::size_t kMostPlans = 4096;

struct SpecPair {
  SpecPtr from, to;

  bool operator==(const SpecPair& other) const { return *from == *other.from && *to == *other.to; }
};

struct SpecPairHash {
  std::size_t operator()(const SpecPair& pair) const {
    return static_cast<std::size_t>(hash_mix(pair.from->hash(), pair.to->hash()));
  }
};

}  // namespace

struct PlanCache::Impl {
  struct Slot {
    const DTensorSpec* from = nullptr;
    const DTensorSpec* to = nullptr;
    const RedistributePlan* plan = nullptr;
  };

  using Plans = std::unordered_map<SpecPair, PlanPtr, SpecPairHash>;

  /// What was asked for since `recent` was last full, and what only before that.
  Plans recent, older;
  /// Open addressing, at most half full. `held` keeps its objects alive, so that an address never
  /// means another layout.
  std::vector<Slot> by_pointer = std::vector<Slot>(64);
  std::vector<SpecPair> held;

  Slot& find(const DTensorSpec* from, const DTensorSpec* to) {
    const std::size_t mask = by_pointer.size() - 1;
    const auto a = reinterpret_cast<std::uintptr_t>(from), b = reinterpret_cast<std::uintptr_t>(to);
    std::size_t at = (hash_mix(hash_mix(0, a), b) >> 32) & mask;
    while (by_pointer[at].plan != nullptr &&
           (by_pointer[at].from != from || by_pointer[at].to != to))
      at = (at + 1) & mask;
    return by_pointer[at];
  }

  void forget_pointers() {
    held.clear();
    by_pointer.assign(64, Slot{});
  }

  /// The plan of equal layouts, now a recent one; null if there is none.
  PlanPtr find_equal(const SpecPair& pair) {
    if (const auto found = recent.find(pair); found != recent.end()) return found->second;
    const auto found = older.find(pair);
    if (found == older.end()) return nullptr;
    PlanPtr plan = std::move(found->second);
    older.erase(found);
    keep(pair, plan);
    return plan;
  }

  void keep(const SpecPair& pair, PlanPtr plan) {
    if (recent.size() == kMostPlans) {
      older = std::move(recent);
      recent.clear();
      forget_pointers();
    }
    recent.emplace(pair, std::move(plan));
  }

  void remember(const SpecPtr& from, const SpecPtr& to, const RedistributePlan* plan) {
    if (held.size() == kMostPointerPairs) forget_pointers();
    if ((held.size() + 1) * 2 > by_pointer.size()) {
      std::vector<Slot> old(by_pointer.size() * 2);
      old.swap(by_pointer);
      for (const Slot& slot : old)
        if (slot.plan != nullptr) find(slot.from, slot.to) = slot;
    }
    find(from.get(), to.get()) = {from.get(), to.get(), plan};
    held.push_back({from, to});
  }
};

PlanCache::PlanCache(RedistributeOptions options)
    : options_(std::move(options)), impl_(std::make_unique<Impl>()) {}

PlanCache::~PlanCache() = default;

const RedistributePlan& PlanCache::plan(const SpecPtr& from, const SpecPtr& to) {
  if (const RedistributePlan* known = impl_->find(from.get(), to.get()).plan) return *known;
  check(from != nullptr && to != nullptr, "redistribute: a layout is missing");
  const SpecPair pair{from, to};
  PlanPtr plan = impl_->find_equal(pair);
  if (!plan) {
    plan = plan_redistribute(from, to, options_);
    impl_->keep(pair, plan);
  }
  impl_->remember(from, to, plan.get());
  return *plan;
}

std::size_t PlanCache::size() const { return impl_->recent.size() + impl_->older.size(); }

}  // namespace meshloom::planner
