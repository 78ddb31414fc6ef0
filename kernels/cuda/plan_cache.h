// SPDX-License-Identifier: Apache-2.0
// Plans of libraries, kept by what they were made for.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace meshloom::kernels::cuda {

/// Plans by key (`Key` has <). A plan is made once and lives as long as the cache, so that pointers
/// to it stay good. For any thread.
template <class Key, class Plan>
class PlanCache {
 public:
  /// The plan of `key`, which `create` makes at the first call. Null where `create` returned null:
  /// the library does not offer it, and is not asked again.
  template <class Create>
  Plan* find_or_create(const Key& key, Create&& create) {
    const std::lock_guard lock(mutex_);
    if (const auto found = plans_.find(key); found != plans_.end()) return found->second.get();
    std::unique_ptr<Plan> plan = create();
    return plans_.emplace(key, std::move(plan)).first->second.get();
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace meshloom::kernels::cuda
