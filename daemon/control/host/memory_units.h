// SPDX-License-Identifier: Apache-2.0
// MemoryUnits: bytes that are counted as taken for as long as somebody has them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/host/hold.h"

namespace meshloom::control {

/// They go back to their count once, at the end of this or by release(), and may outlive the
/// MemoryCount. Whoever gives them back takes the mutex of the count, and no other. False: there
/// are none.
class MemoryUnits {
 public:
  MemoryUnits() = default;
  /// `hold`: it gives the bytes back. For who counts them otherwise than a MemoryCount.
  explicit MemoryUnits(Hold hold) : hold_(std::move(hold)) {}
  explicit operator bool() const { return static_cast<bool>(hold_); }
  void release() noexcept { hold_.release(); }

 private:
  Hold hold_;
};

/// Counts bytes that are taken, by account. All methods may be called from any thread.
class MemoryCount {
 public:
  struct Share {
    std::string account;
    std::int64_t bytes = 0;
  };
  /// Throws what refuses a share of an account that has `taken` bytes already. Called for
  /// one share after the other, with the mutex of the count held.
  using Check = std::function<void(const Share& share, std::int64_t taken)>;

  /// Takes all shares, each of another account, or none where `check` throws for one.
  MemoryUnits take(
      std::vector<Share> shares, const Check& check = [](const Share&, std::int64_t) {});
  /// In bytes.
  std::int64_t taken(const std::string& account) const;

 private:
  struct State {
    std::mutex mutex;
    std::map<std::string, std::int64_t> bytes;  ///< by account; none that has nothing
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace meshloom::control
