// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/failed_attempts.h"

#include <algorithm>

namespace meshloom::control {

bool FailedAttempts::is_barred(const std::string& source, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(source);
  if (found == failures_.end()) return false;
  std::deque<Clock::time_point>& times = found->second;
  while (!times.empty() && now - times.front() >= kPeriod) times.pop_front();
  if (times.empty())
    failures_.erase(found);
  else
    return times.size() >= kMostInPeriod;
  return false;
}

void FailedAttempts::failed(const std::string& source, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (failures_.size() >= kMostSources && !failures_.contains(source)) {
    std::erase_if(failures_, [&](const auto& item) { return now - item.second.back() >= kPeriod; });
    if (failures_.size() >= kMostSources)
      failures_.erase(std::min_element(failures_.begin(), failures_.end(),
                                       [](const auto& one, const auto& other) {
                                         return one.second.back() < other.second.back();
                                       }));
  }
  std::deque<Clock::time_point>& times = failures_[source];
  times.push_back(now);
  if (times.size() > kMostInPeriod) times.pop_front();
}

}  // namespace meshloom::control
