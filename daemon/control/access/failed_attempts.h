// SPDX-License-Identifier: Apache-2.0
// FailedAttempts: how often somebody has shown a wrong token of late.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <string>

namespace meshloom::control {

/// Counts for each source, such as an address, what failed in the last second. Any thread may call
/// any function.
class FailedAttempts {
 public:
  static constexpr std::size_t kMostInPeriod = 5;
  static constexpr std::chrono::seconds kPeriod{1};
  /// Sources that are known at once; beyond them the one that failed longest ago is forgotten.
  static constexpr std::size_t kMostSources = 4096;
  using Clock = std::chrono::steady_clock;

  /// Whether its next attempt is refused whatever it shows.
  bool is_barred(const std::string& source, Clock::time_point now = Clock::now());
  void failed(const std::string& source, Clock::time_point now = Clock::now());

 private:
  std::mutex mutex_;
  std::map<std::string, std::deque<Clock::time_point>> failures_;  ///< of each source, oldest first
};

}  // namespace meshloom::control
