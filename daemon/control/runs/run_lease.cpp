// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_lease.h"

#include <algorithm>

namespace meshloom::control {

void RunLease::renew() {
  const std::lock_guard lock(mutex_);
  renewed_ = Clock::now();
}

Hold RunLease::hold() {
  const std::lock_guard lock(mutex_);
  ++holds_;
  return Hold([lease = shared_from_this()] {
    const std::lock_guard release(lease->mutex_);
    --lease->holds_;
    lease->renewed_ = Clock::now();
  });
}

bool RunLease::is_held() const {
  const std::lock_guard lock(mutex_);
  return holds_ > 0;
}

bool RunLease::has_run_out(bool busy, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (holds_ > 0 || busy) renewed_ = now;
  return now - renewed_ >= length_;
}

std::chrono::milliseconds RunLease::left() const {
  const std::lock_guard lock(mutex_);
  const auto left = length_ - (Clock::now() - renewed_);
  return std::max(std::chrono::milliseconds(0),
                  std::chrono::duration_cast<std::chrono::milliseconds>(left));
}

}  // namespace meshloom::control
