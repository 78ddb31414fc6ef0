// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/phase_timer.h"

#include <utility>

#include "kernels/base/log.h"

namespace meshloom::train {

const PhaseSeconds& Phases::seconds() {
  for (const Stretch& one : stretches_) seconds_[one.phase] += one.end->seconds_since(*one.begin);
  drop_stretches();
  return seconds_;
}

void Phases::clear() {
  drop_stretches();
  seconds_.clear();
}

void Phases::drop_stretches() {
  for (Stretch& one : stretches_) {
    spare_.push_back(std::move(one.begin));
    spare_.push_back(std::move(one.end));
  }
  stretches_.clear();
}

std::unique_ptr<Event> Phases::mark() {
  std::unique_ptr<Event> event;
  if (spare_.empty()) {
    event = context_.backend().make_event();
  } else {
    event = std::move(spare_.back());
    spare_.pop_back();
  }
  event->record(context_.kernel_context().stream);
  return event;
}

PhaseTimer::~PhaseTimer() {
  try {
    std::unique_ptr<Event> end = phases_.mark();
    phases_.stretches_.push_back({phase_, std::move(begin_), std::move(end)});
  } catch (const std::exception& error) {
    spdlog::debug("the time of phase {} is not told: {}", phase_, error.what());
  }
}

}  // namespace meshloom::train
