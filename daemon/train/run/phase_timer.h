// SPDX-License-Identifier: Apache-2.0
// PhaseTimer: where the seconds of a step go.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/tensor/execution_context.h"

namespace meshloom::train {

/// PhaseSeconds are seconds by phase: data, forward, backward, reduce, optimizer, checkpoint.
using PhaseSeconds = std::map<std::string, double>;

/// Adds up phases as the device comes to them: it may be behind the host, which waits for it only
/// when the seconds are asked for.
class Phases {
 public:
  explicit Phases(ExecutionContext& context) : context_(context) {}
  Phases(const Phases&) = delete;
  Phases& operator=(const Phases&) = delete;

  /// Returns the seconds since clear(). Waits for the device.
  const PhaseSeconds& seconds();
  void clear();

 private:
  friend class PhaseTimer;
  struct Stretch {
    const char* phase = nullptr;
    std::unique_ptr<Event> begin, end;
  };
  std::unique_ptr<Event> mark();
  void drop_stretches();

  ExecutionContext& context_;
  PhaseSeconds seconds_;
  std::vector<Stretch> stretches_;  ///< not in seconds_ yet
  std::vector<std::unique_ptr<Event>> spare_;
};

/// Adds its life to a phase (a string literal). Its end throws nothing: where the device takes no
/// mark any more, what the device does next says so, and this time is left out.
class PhaseTimer {
 public:
  PhaseTimer(Phases& phases, const char* phase)
      : phases_(phases), phase_(phase), begin_(phases.mark()) {}
  ~PhaseTimer();
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  Phases& phases_;
  const char* phase_;
  std::unique_ptr<Event> begin_;
};

}  // namespace meshloom::train
