// SPDX-License-Identifier: Apache-2.0
// RunLease: how long a run goes on without a call of its client.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>

#include "daemon/control/host/hold.h"

namespace meshloom::control {

/// It is thread safe and takes its own mutex, under which it calls nothing. A hold keeps it alive.
class RunLease : public std::enable_shared_from_this<RunLease> {
 public:
  using Clock = std::chrono::steady_clock;

  /// Begins when it is made. Make it by std::make_shared.
  explicit RunLease(std::chrono::seconds length) : length_(length), renewed_(Clock::now()) {}

  std::chrono::seconds length() const { return length_; }
  void renew();
  /// It does not run while the result is held, and begins anew when that is let go.
  Hold hold();
  bool is_held() const;
  /// Renews it if it is held or the run is `busy`; else whether its time is over.
  bool has_run_out(bool busy, Clock::time_point now);
  std::chrono::milliseconds left() const;  ///< never below 0

 private:
  const std::chrono::seconds length_;
  mutable std::mutex mutex_;
  Clock::time_point renewed_;
  int holds_ = 0;
};

}  // namespace meshloom::control
