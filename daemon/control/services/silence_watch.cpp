// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/silence_watch.h"

#include <algorithm>

namespace meshloom::control {

SilenceWatch::SilenceWatch(std::chrono::milliseconds limit)
    : limit_(limit),
      ticker_(std::clamp(limit / 4, std::chrono::milliseconds(10), std::chrono::milliseconds(1000)),
              [this] { look(); }) {}

void SilenceWatch::look() {
  const std::lock_guard lock(mutex_);
  for (Call* call : calls_) {
    if (!call->waiting_) continue;
    if (call->waited_ + (Call::Clock::now() - call->since_) >= limit_) call->client_.cut_off();
  }
}

SilenceWatch::Call::Call(SilenceWatch& watch, CutOff& client) : watch_(watch), client_(client) {
  const std::lock_guard lock(watch_.mutex_);
  watch_.calls_.insert(this);
}

SilenceWatch::Call::~Call() {
  const std::lock_guard lock(watch_.mutex_);
  watch_.calls_.erase(this);
}

void SilenceWatch::Call::begin_wait() {
  const std::lock_guard lock(watch_.mutex_);
  waiting_ = true;
  since_ = Clock::now();
}

void SilenceWatch::Call::end_wait(std::int64_t bytes) {
  const std::lock_guard lock(watch_.mutex_);
  waiting_ = false;
  waited_ += Clock::now() - since_;
  bytes_ += bytes;
  if (bytes_ < kLeastBytes) return;
  bytes_ = 0;
  waited_ = {};
}

}  // namespace meshloom::control
