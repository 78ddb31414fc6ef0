// SPDX-License-Identifier: Apache-2.0
// RankWatch: which ranks are heard of, and which are stuck.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/host/awake_clock.h"
#include "daemon/control/ranks/executor.h"
#include "kernels/base/error.h"
#include "v1/rank_service.pb.h"
#include "v1/worker_service.pb.h"

namespace meshloom::control {

/// Silence, or a call of the transport, that lasts so long is named.
inline constexpr std::chrono::milliseconds kNamedAfter{1500};
/// How often rank 0 looks if it is alone; else with each heartbeat.
inline constexpr std::chrono::milliseconds kLookPeriod{400};

/// Rank 0 watches all ranks, and each other one watches rank 0. Any thread may call any method.
/// Time in which this process did not run does not count.
class RankWatch {
 public:
  using Clock = AwakeClock::Clock;
  struct Limits {
    std::chrono::milliseconds rank_timeout{10'000};  ///< silence or a stuck call: given up
    std::chrono::milliseconds join_timeout{60'000};
  };

  /// `commands`, which outlive it, are those of rank 0; null elsewhere: no deadline is known.
  RankWatch(int world_size, Limits limits, const UnansweredCommands* commands,
            Clock::time_point now = Clock::now());

  /// `who` is for texts: "rank 1 (pid 12 on host)".
  void joined(int rank, const std::string& who, Clock::time_point now = Clock::now());
  void left(int rank);
  /// Whether rank 0 is the last one.
  bool others_left() const;
  /// Any sign of life, with what the rank tells if it is a heartbeat.
  void heard(int rank, const v1::Heartbeat* heartbeat = nullptr,
             Clock::time_point now = Clock::now());

  struct Findings {
    std::vector<std::string> news;  ///< troubles that began or ended, a sentence each
    std::optional<Error> fatal;     ///< a rank is given up
    bool in_trouble = false;        ///< some rank is
  };
  /// Looks at all ranks; called a few times a second, by one thread.
  Findings look(Clock::time_point now = Clock::now());

  struct Condition {
    v1::WorkerState state = v1::WORKER_STATE_READY;
    std::string trouble;  ///< empty while the state is READY
  };
  /// As the last look saw it, with times of now.
  Condition condition(int rank, Clock::time_point now = Clock::now()) const;

 private:
  using Duration = AwakeClock::Duration;
  struct Watched {
    std::string who;
    Duration heard{};
    v1::Heartbeat heartbeat;
    v1::WorkerState state = v1::WORKER_STATE_READY;
    Duration trouble_began{};
  };

  Duration silence(const Watched& rank, Clock::time_point now) const;
  v1::WorkerState state_of(const Watched& rank, Clock::time_point now) const;
  std::string trouble_of(const Watched& rank, Clock::time_point now) const;
  std::string place_of(const Watched& rank) const;
  void compare(Watched& rank, Clock::time_point now, Findings* findings);
  std::optional<Error> give_up(Clock::time_point now) const;
  std::optional<CommandInfo> command_of(const Watched& rank) const;
  std::optional<Error> missed_deadline() const;
  std::optional<Error> missing_ranks(Clock::time_point now) const;

  const int world_size_;
  const Limits limits_;
  const UnansweredCommands* const commands_;
  mutable std::mutex mutex_;
  AwakeClock clock_;
  bool all_joined_ = false;
  std::map<int, Watched> ranks_;
};

}  // namespace meshloom::control
