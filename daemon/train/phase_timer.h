// SPDX-License-Identifier: Apache-2.0
// PhaseTimer: where the seconds of a step go.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace meshloom::train {

/// Seconds by phase: data, forward, backward, reduce, optimizer, checkpoint.
using PhaseSeconds = std::map<std::string, double>;

/// Adds the seconds of its life to a phase.
class PhaseTimer {
 public:
  PhaseTimer(PhaseSeconds& phases, const char* phase)
      : seconds_(phases[phase]), start_(std::chrono::steady_clock::now()) {}
  ~PhaseTimer() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace meshloom::train
