// SPDX-License-Identifier: Apache-2.0
// Who wants to hear that something has changed, by name.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/host/wakeable.h"

namespace meshloom::control {

class Subscribers;

/// A place among the subscribers. Once it is destroyed the subscriber is not being woken and is not
/// woken again; so it must not be destroyed by wake() itself. Outlives nothing but its owner.
class Subscription {
 public:
  Subscription() = default;
  Subscription(Subscription&&) = default;
  Subscription& operator=(Subscription&& other) noexcept {
    release();
    callback_ = std::move(other.callback_);
    return *this;
  }
  ~Subscription() { release(); }

 private:
  friend class Subscribers;
  struct Callback {
    std::mutex mutex;  ///< held while it is woken
    std::weak_ptr<Wakeable> subscriber;
  };
  explicit Subscription(std::shared_ptr<Callback> callback) : callback_(std::move(callback)) {}
  void release() {
    if (!callback_) return;
    const std::lock_guard lock(callback_->mutex);
    callback_->subscriber.reset();
  }

  std::shared_ptr<Callback> callback_;
};

/// Not synchronised: its owner's mutex is held for every method. What `mark` and `mark_all` put on
/// the list is woken by `notify` of that list, after the owner's mutex was given back.
class Subscribers {
 public:
  class Due {
   public:
    void notify() const {
      for (const auto& callback : callbacks_) {
        const std::lock_guard lock(callback->mutex);
        if (const auto subscriber = callback->subscriber.lock()) subscriber->wake();
      }
    }

   private:
    friend class Subscribers;
    std::vector<std::shared_ptr<Subscription::Callback>> callbacks_;
  };

  Subscription add(const std::string& name, std::weak_ptr<Wakeable> subscriber) {
    auto callback = std::make_shared<Subscription::Callback>();
    callback->subscriber = std::move(subscriber);
    by_name_.emplace(name, callback);
    return Subscription(std::move(callback));
  }

  void mark(const std::string& name) {
    const auto [first, last] = by_name_.equal_range(name);
    mark(first, last);
  }
  void mark_all() { mark(by_name_.begin(), by_name_.end()); }

  Due take_due() { return std::exchange(due_, {}); }

 private:
  using Map = std::multimap<std::string, std::weak_ptr<Subscription::Callback>>;
  void mark(Map::iterator first, Map::iterator last) {
    while (first != last) {
      auto callback = first->second.lock();
      if (callback) due_.callbacks_.push_back(std::move(callback));
      first = callback || !first->second.expired() ? std::next(first) : by_name_.erase(first);
    }
  }

  Map by_name_;
  Due due_;
};

}  // namespace meshloom::control
