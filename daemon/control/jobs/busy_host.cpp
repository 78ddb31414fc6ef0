// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/busy_host.h"

#include <fmt/format.h>

namespace meshloom::control {

std::optional<BusyHost::Finding> BusyHost::add(double seconds, const train::CoreTimes& times) {
  if (!(seconds > 0.0) || !(times.ran > 0.0)) return std::nullopt;
  ++steps_;
  seconds_ += seconds;
  times_.ran += times.ran;
  times_.waited += times.waited;
  if (steps_ < kLeastSteps || seconds_ < kLeastSeconds) return std::nullopt;
  const Finding finding{steps_, seconds_, (times_.ran + times_.waited) / times_.ran};
  const bool waits_much = times_.waited >= kLeastWaiting * seconds_;
  *this = BusyHost();
  return waits_much && finding.factor >= kBusyFactor ? std::optional(finding) : std::nullopt;
}

std::string busy_host_note(const BusyHost::Finding& finding) {
  return fmt::format(
      "{}: in {} steps of {:.1f} s together the threads of a rank had a core in {:.0f} % of the "
      "time in which they could have computed. Other programs have its cores, or there are more "
      "ranks and threads than cores",
      kBusyHost, finding.steps, finding.seconds, 100.0 / finding.factor);
}

}  // namespace meshloom::control
