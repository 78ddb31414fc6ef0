// SPDX-License-Identifier: Apache-2.0
// Whether the ranks wait for cores: what a job says where other programs have them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/train/run/core_times.h"

namespace meshloom::control {

/// Looks at the steps of one attempt, some seconds of them at a time.
class BusyHost {
 public:
  /// Of that many steps and seconds at least a finding is made.
  static constexpr std::int64_t kLeastSteps = 5;
  static constexpr double kLeastSeconds = 3.0;
  /// Where the cores are free a thread that can run does nearly always: more than this many times
  /// the time in which threads had a core is no chance.
  static constexpr double kBusyFactor = 2.5;
  /// So many threads wait for a core on average. A rank that sleeps until others have sent their
  /// part computes little and waits little, whatever the factor of that.
  static constexpr double kLeastWaiting = 0.5;

  struct Finding {
    std::int64_t steps = 0;
    double seconds = 0.0;
    double factor = 0.0;  ///< of the time in which threads could run over that in which they did
  };
  /// A step is done: its seconds, and the times of the rank whose threads waited most in these; a
  /// step in which none ran counts for nothing. Returns a finding where the host is busy.
  std::optional<Finding> add(double seconds, const train::CoreTimes& times);

 private:
  std::int64_t steps_ = 0;
  double seconds_ = 0.0;    ///< of the steps since the last look
  train::CoreTimes times_;  ///< in these
};

/// How notes about it begin, by which the first is found.
inline constexpr const char* kBusyHost = "the host is busy";
/// For the user of the job.
std::string busy_host_note(const BusyHost::Finding& finding);

}  // namespace meshloom::control
