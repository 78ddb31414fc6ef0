// SPDX-License-Identifier: Apache-2.0
// Hold: something that stays as it is until whoever holds it lets go.
#pragma once

#include <functional>
#include <iterator>
#include <utility>
#include <vector>

namespace meshloom::control {

/// Its release runs once, on the thread that lets go, and may take a mutex: nobody lets go with
/// that mutex held. A Hold has one owner at a time; one that was moved from holds nothing.
class Hold {
 public:
  /// It holds nothing.
  Hold() = default;
  /// `release` must not throw. What it has captured is destroyed right after it has run.
  explicit Hold(std::function<void()> release) { releases_.push_back(std::move(release)); }
  Hold(Hold&& other) noexcept : releases_(std::exchange(other.releases_, {})) {}
  Hold& operator=(Hold&& other) noexcept {
    auto taken = std::exchange(other.releases_, {});
    release();
    releases_ = std::move(taken);
    return *this;
  }
  ~Hold() { release(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  /// One that holds what both hold, and lets go of the second first.
  static Hold join(Hold first, Hold second) {
    first.releases_.insert(first.releases_.end(), std::make_move_iterator(second.releases_.begin()),
                           std::make_move_iterator(second.releases_.end()));
    second.releases_.clear();
    return first;
  }

  explicit operator bool() const { return !releases_.empty(); }
  /// Lets go, if it holds something.
  void release() noexcept {
    for (auto due = std::exchange(releases_, {}); !due.empty(); due.pop_back()) due.back()();
  }

 private:
  std::vector<std::function<void()>> releases_;
};

}  // namespace meshloom::control
