// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/ranks_turn.h"

#include <algorithm>

namespace meshloom::control {

Hold RanksTurn::acquire(const std::string& who, Waiter& waiter) {
  return wait_for_turn(who, waiter, std::chrono::milliseconds(50));
}

Hold RanksTurn::acquire_when_woken(const std::string& who, Waiter& waiter) {
  return wait_for_turn(who, waiter, std::nullopt);
}

void RanksTurn::wake() {
  const std::lock_guard lock(mutex_);
  ++wakes_;
  changed_.notify_all();
}

Hold RanksTurn::wait_for_turn(const std::string& who, Waiter& waiter,
                              std::optional<std::chrono::milliseconds> look_up) {
  const auto enter = [&](Place at) {
    queue_.insert(at == Place::kFirst ? queue_.begin() : queue_.end(), who);
  };
  const auto leave = [&] { queue_.erase(std::find(queue_.begin(), queue_.end(), who)); };
  Place taken = waiter.place();
  std::unique_lock lock(mutex_);
  enter(taken);
  entered_[who] = std::chrono::steady_clock::now();
  while (true) {
    const std::uint64_t known = wakes_;
    lock.unlock();
    const bool over = waiter.gives_up();
    const Place now = waiter.place();
    lock.lock();
    if (now != taken) {
      leave();
      enter(taken = now);
      changed_.notify_all();
    }
    const bool mine = open_ && holder_.empty() && queue_.front() == who;
    if (over || mine) {
      leave();
      entered_.erase(who);
      if (!over) holder_ = who;
      changed_.notify_all();
      return over ? Hold() : hold_of(who);
    }
    if (wakes_ != known) continue;  // while it asked
    if (look_up)
      changed_.wait_for(lock, *look_up);
    else
      changed_.wait(lock);
  }
}

Hold RanksTurn::try_acquire(const std::string& who) {
  const std::lock_guard lock(mutex_);
  if (!open_ || !holder_.empty() || !queue_.empty()) return {};
  holder_ = who;
  return hold_of(who);
}

Hold RanksTurn::hold_of(const std::string& who) {
  return Hold([this, who] { release(who); });
}

void RanksTurn::release(const std::string& who) {
  const std::lock_guard lock(mutex_);
  if (holder_ == who) holder_.clear();
  changed_.notify_all();
}

void RanksTurn::set_open(bool open) {
  const std::lock_guard lock(mutex_);
  open_ = open;
  changed_.notify_all();
}

bool RanksTurn::is_open() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

std::string RanksTurn::holder() const {
  const std::lock_guard lock(mutex_);
  return holder_;
}

std::vector<std::string> RanksTurn::ahead_of(const std::string& who, Place place) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> ahead;
  if (holder_ == who) return ahead;
  if (!holder_.empty()) ahead.push_back(holder_);
  auto own = std::find(queue_.begin(), queue_.end(), who);
  if (own == queue_.end() && place == Place::kFirst) own = queue_.begin();
  ahead.insert(ahead.end(), queue_.begin(), own);
  return ahead;
}

std::optional<std::chrono::steady_clock::duration> RanksTurn::waited(const std::string& who) const {
  const std::lock_guard lock(mutex_);
  const auto found = entered_.find(who);
  if (found == entered_.end()) return std::nullopt;
  return std::chrono::steady_clock::now() - found->second;
}

}  // namespace meshloom::control
