// SPDX-License-Identifier: Apache-2.0
// CheckpointPins: who reads which checkpoints and exports, so that nobody deletes these.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "daemon/control/host/hold.h"

namespace meshloom::control {

/// By their whole names ("checkpoints/JOB/FOLDER"). Any thread may call any method.
class CheckpointPins {
 public:
  /// Until the result is let go, which may outlive this. `user` is told to who wants to delete it.
  Hold pin(const std::string& name, const std::string& user) const {
    const std::lock_guard lock(state_->mutex);
    const auto pinned = state_->users.emplace(name, user);
    return Hold([state = state_, pinned] {
      const std::lock_guard release(state->mutex);
      state->users.erase(pinned);
    });
  }
  std::optional<std::string> user_of(const std::string& name) const {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->users.find(name);
    return found == state_->users.end() ? std::nullopt : std::optional(found->second);
  }
  /// Of any whose name begins so.
  std::optional<std::string> user_below(const std::string& prefix) const {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->users.lower_bound(prefix);
    if (found == state_->users.end() || !found->first.starts_with(prefix)) return std::nullopt;
    return found->second;
  }

 private:
  struct State {
    std::mutex mutex;
    std::multimap<std::string, std::string> users;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace meshloom::control
