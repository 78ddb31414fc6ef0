// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/steady_timer.h"

#include <utility>

namespace meshloom::control {

std::int64_t SteadyTimer::set(Clock::time_point when, std::function<void()> due) {
  const std::lock_guard lock(mutex_);
  const std::int64_t number = next_++;
  const auto place = calls_.emplace(Place(when, number), std::move(due)).first;
  times_[number] = when;
  if (place == calls_.begin()) changed_.notify_all();
  return number;
}

void SteadyTimer::cancel(std::int64_t number) {
  std::function<void()> dropped;  // what it holds ends without the mutex
  const std::lock_guard lock(mutex_);
  const auto time = times_.find(number);
  if (time == times_.end()) return;
  const auto call = calls_.find({time->second, number});
  dropped = std::move(call->second);
  calls_.erase(call);
  times_.erase(time);
}

void SteadyTimer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SteadyTimer::run() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (calls_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto next = calls_.begin();
    const Clock::time_point when = next->first.first;  // a cancel may end it while this waits
    if (when > Clock::now()) {
      changed_.wait_until(lock, when);
      continue;
    }
    std::function<void()> due = std::move(next->second);
    times_.erase(next->first.second);
    calls_.erase(next);
    lock.unlock();
    due();
    due = nullptr;
    lock.lock();
  }
}

}  // namespace meshloom::control
