// SPDX-License-Identifier: Apache-2.0
// Plans of libraries, kept by what they were made for.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace meshloom::kernels::cuda {

/// Plans by key (`Key` has <), at most so many: the one that was not asked for the longest goes.
/// Generation and evaluation meet new shapes as long as a process lives, and a training step needs
/// a few dozens. Whoever holds a plan keeps it. For any thread.
template <class Key, class Plan>
class PlanCache {
 public:
  static constexpr std::size_t kMostPlans = 4096;

  /// `most` is at least 1.
  explicit PlanCache(std::size_t most = kMostPlans) : most_(most) {}

  /// Returns the plan of `key`, which `create` makes where there is none. Null where `create`
  /// returned null: the library does not offer it, which is remembered like a plan.
  template <class Create>
  std::shared_ptr<Plan> find_or_create(const Key& key, Create&& create) {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(key);
    if (found != places_.end()) {
      plans_.splice(plans_.begin(), plans_, found->second);
      return found->second->second;
    }
    const std::shared_ptr<Plan> plan = create();
    plans_.emplace_front(key, plan);
    places_.emplace(key, plans_.begin());
    if (plans_.size() > most_) {
      places_.erase(plans_.back().first);
      plans_.pop_back();
    }
    return plan;
  }

 private:
  using Plans = std::list<std::pair<Key, std::shared_ptr<Plan>>>;

  std::size_t most_;
  std::mutex mutex_;
  Plans plans_;  ///< the one that was asked for last is the first
  std::map<Key, typename Plans::iterator> places_;
};

}  // namespace meshloom::kernels::cuda
