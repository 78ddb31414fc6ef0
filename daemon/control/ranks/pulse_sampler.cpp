// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/pulse_sampler.h"

namespace meshloom::control {
namespace {

std::int64_t milliseconds(AwakeClock::Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

}  // namespace

v1::Heartbeat PulseSampler::sample(AwakeClock::Clock::time_point now) {
  const AwakeClock::Duration awake = clock_.observe(now);
  comm::TrainingPulse::Reading reading = pulse_.read();
  if (reading.progress != last_.progress) moved_ = awake;
  if (reading.transport != last_.transport) entered_ = awake;
  last_ = std::move(reading);
  v1::Heartbeat heartbeat;
  heartbeat.set_progress(last_.progress);
  heartbeat.set_seq(last_.command);
  if (last_.command == 0) return heartbeat;
  heartbeat.set_still_ms(milliseconds(awake - moved_));
  if (last_.transport % 2 == 1) heartbeat.set_transport_ms(milliseconds(awake - entered_));
  if (heartbeat.still_ms() > 0) heartbeat.set_last_collective(last_.last_collective);
  return heartbeat;
}

}  // namespace meshloom::control
