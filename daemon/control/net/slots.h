// SPDX-License-Identifier: Apache-2.0
// A bound on how many calls or connections of a kind are served at once, in all and for one client.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "kernels/base/error.h"

namespace meshloom::control {

/// No client takes more than three quarters, so that one that takes all that it can get leaves
/// some to the others. All methods may be called from any thread.
class Slots {
 public:
  Slots(std::string what, int most) : what_(std::move(what)), most_(most) {}
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  /// Held while one is served; given back at the end of the scope. Must not outlive its Slots.
  class Slot {
   public:
    Slot(Slot&& other) noexcept
        : slots_(std::exchange(other.slots_, nullptr)), client_(std::move(other.client_)) {}
    Slot& operator=(Slot&& other) noexcept {
      std::swap(slots_, other.slots_);
      std::swap(client_, other.client_);
      return *this;
    }
    ~Slot() {
      if (slots_) slots_->give_back(client_);
    }

   private:
    friend class Slots;
    Slot(Slots* slots, std::string client) : slots_(slots), client_(std::move(client)) {}
    Slots* slots_;
    std::string client_;
  };

  /// Nothing if all are taken, or the client's share is. `client`: see client_of().
  std::optional<Slot> try_take(const std::string& client) {
    const std::lock_guard lock(mutex_);
    const auto held = held_.find(client);
    if (used_ >= most_ || (held != held_.end() && held->second >= most_of_one())) return {};
    ++used_;
    ++held_[client];
    return Slot(this, client);
  }

  /// Throws ResourceExhausted (TOO_MANY_CALLS) instead.
  Slot take(const std::string& client) {
    if (auto slot = try_take(client)) return std::move(*slot);
    throw ResourceExhausted(
        fmt::format("{} {} are served at once, {} of them for one address; try again later", most_,
                    what_, most_of_one()),
        "TOO_MANY_CALLS", {{"client", client}});
  }

  int most() const { return most_; }
  int most_of_one() const { return most_ - most_ / 4; }

 private:
  void give_back(const std::string& client) {
    const std::lock_guard lock(mutex_);
    --used_;
    const auto held = held_.find(client);
    if (--held->second == 0) held_.erase(held);
  }

  const std::string what_;
  const int most_;
  std::mutex mutex_;
  int used_ = 0;
  std::map<std::string, int> held_;  ///< by client
};

}  // namespace meshloom::control
