// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/goodput_clock.h"

#include <algorithm>

#include "daemon/base/goodput.h"
#include "daemon/base/timestamp.h"

namespace meshloom::control {
namespace {

const char* cause_of(v1::JobState state, v1::PauseCode pause) {
  switch (state) {
    case v1::JOB_STATE_QUEUED: return "queue";
    case v1::JOB_STATE_HELD: return "held";
    case v1::JOB_STATE_PAUSED: return pause == v1::PAUSE_CODE_DRAIN ? "drained" : "paused";
    case v1::JOB_STATE_PREPARING: return "start";
    // What an attempt has done since it was counted last was not saved, or the daemon was away.
    default: return "recovery";
  }
}

const char* name_of(GoodputClock::Cause cause) {
  switch (cause) {
    case GoodputClock::Cause::kStart: return "start";
    case GoodputClock::Cause::kTokenize: return "tokenize";
    case GoodputClock::Cause::kValidation: return "validation";
    case GoodputClock::Cause::kSample: return "sample";
    default: return "save";
  }
}

}  // namespace

void count_state(v1::JobState state, v1::PauseCode pause, double now, v1::Goodput* goodput) {
  const double passed = goodput->until() > 0 ? std::max(now - goodput->until(), 0.0) : 0.0;
  if (passed > 0) base::add_lost(cause_of(state, pause), passed, goodput);
  goodput->set_until(now);
}

GoodputClock::GoodputClock(const v1::Goodput& before)
    : goodput_(before), saved_productive_(before.productive()) {
  // What has passed since then was not its own.
  count_state(v1::JOB_STATE_PREPARING, {}, base::now_seconds(), &goodput_);
}

v1::Goodput GoodputClock::now() {
  const auto now = Clock::now();
  const double passed = std::chrono::duration<double>(now - since_).count();
  since_ = now;
  if (cause_ == Cause::kProductive)
    goodput_.set_productive(goodput_.productive() + passed);
  else
    base::add_lost(name_of(cause_), passed, &goodput_);
  goodput_.set_until(base::now_seconds());
  return goodput_;
}

void GoodputClock::enter(Cause cause) {
  now();
  cause_ = cause;
}

void GoodputClock::saved() { saved_productive_ = now().productive(); }

v1::Goodput GoodputClock::now_without_lost_steps() {
  v1::Goodput goodput = now();
  base::add_lost("recovery", goodput.productive() - saved_productive_, &goodput);
  goodput.set_productive(saved_productive_);
  return goodput;
}

}  // namespace meshloom::control
