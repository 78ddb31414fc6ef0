// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/rank_watch.h"

#include <fmt/ranges.h>

namespace meshloom::control {
namespace {

double seconds(AwakeClock::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

RankWatch::RankWatch(int world_size, Limits limits, const UnansweredCommands* commands,
                     Clock::time_point now)
    : world_size_(world_size), limits_(limits), commands_(commands) {
  clock_.observe(now);
}

void RankWatch::joined(int rank, const std::string& who, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Watched watched;
  watched.who = who;
  watched.heard = clock_.at(now);
  ranks_[rank] = std::move(watched);
  if (static_cast<int>(ranks_.size()) == world_size_) all_joined_ = true;
}

void RankWatch::left(int rank) {
  const std::lock_guard lock(mutex_);
  ranks_.erase(rank);
}

bool RankWatch::others_left() const {
  const std::lock_guard lock(mutex_);
  return ranks_.empty() || ranks_.rbegin()->first == 0;
}

void RankWatch::heard(int rank, const v1::Heartbeat* heartbeat, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return;
  found->second.heard = std::max(found->second.heard, clock_.at(now));
  if (heartbeat != nullptr) found->second.heartbeat = *heartbeat;
}

RankWatch::Duration RankWatch::silence(const Watched& rank, Clock::time_point now) const {
  return clock_.at(now) - rank.heard;
}

v1::WorkerState RankWatch::state_of(const Watched& rank, Clock::time_point now) const {
  if (silence(rank, now) >= kNamedAfter) return v1::WORKER_STATE_SILENT;
  if (rank.heartbeat.transport_ms() >= kNamedAfter.count()) return v1::WORKER_STATE_STUCK;
  return v1::WORKER_STATE_READY;
}

std::string RankWatch::place_of(const Watched& rank) const {
  const auto command = command_of(rank);
  std::string place;
  if (command) place += fmt::format(", in {} (seq {})", command->verb, rank.heartbeat.seq());
  if (!rank.heartbeat.last_collective().empty())
    place += fmt::format(", its last collective is {}", rank.heartbeat.last_collective());
  return place;
}

std::string RankWatch::trouble_of(const Watched& rank, Clock::time_point now) const {
  if (rank.state == v1::WORKER_STATE_SILENT)
    return fmt::format("nothing was heard of it for {:.1f} s: it is frozen or cut off{}",
                       seconds(silence(rank, now)), place_of(rank));
  return fmt::format("stuck for {:.1f} s inside one call of the transport{}",
                     static_cast<double>(rank.heartbeat.transport_ms()) / 1000, place_of(rank));
}

void RankWatch::compare(Watched& rank, Clock::time_point now, Findings* findings) {
  const v1::WorkerState state = state_of(rank, now);
  if (state != rank.state) {
    const bool over = state == v1::WORKER_STATE_READY;
    if (rank.state == v1::WORKER_STATE_READY) rank.trouble_began = clock_.at(now);
    rank.state = state;
    findings->news.push_back(
        over ? fmt::format("{} is back, {:.1f} s after its trouble was seen", rank.who,
                           seconds(clock_.at(now) - rank.trouble_began))
             : fmt::format("{}: {}; it is given up after {:.1f} s", rank.who, trouble_of(rank, now),
                           seconds(limits_.rank_timeout)));
  }
  if (state != v1::WORKER_STATE_READY) findings->in_trouble = true;
}

RankWatch::Findings RankWatch::look(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const Duration awake = clock_.observe(now);
  Findings findings;
  for (auto& [number, rank] : ranks_) {
    // What was heard between a sleep of this process and this look has a stamp with the sleep in
    // it.
    rank.heard = std::min(rank.heard, awake);
    compare(rank, now, &findings);
  }
  findings.fatal = give_up(now);
  if (!findings.fatal) findings.fatal = missed_deadline();
  if (!findings.fatal) findings.fatal = missing_ranks(now);
  return findings;
}

std::optional<Error> RankWatch::give_up(Clock::time_point now) const {
  for (const auto& [number, rank] : ranks_) {
    const bool silent = silence(rank, now) >= limits_.rank_timeout;
    const bool stuck = rank.heartbeat.transport_ms() >= limits_.rank_timeout.count();
    if (!silent && !stuck) continue;
    return CommError(fmt::format("{} is given up: {}", rank.who, trouble_of(rank, now)),
                     silent ? "RANK_LOST" : "RANK_STUCK", {{"rank", std::to_string(number)}});
  }
  return std::nullopt;
}

std::optional<CommandInfo> RankWatch::command_of(const Watched& rank) const {
  if (commands_ == nullptr) return std::nullopt;
  return commands_->unanswered(rank.heartbeat.seq());
}

std::optional<Error> RankWatch::missed_deadline() const {
  for (const auto& [number, late] : ranks_) {
    const auto command = command_of(late);
    if (!command || command->deadline_ms == 0 || late.heartbeat.still_ms() < command->deadline_ms)
      continue;
    std::string places;
    for (const auto& [other, rank] : ranks_)
      places += fmt::format("; rank {}{}", other,
                            rank.heartbeat.seq() == 0 ? " is in no command" : place_of(rank));
    return DeadlineExceeded(
        fmt::format("{} is stuck: nothing moved in {} (seq {}) for {} ms, its deadline is {} ms{}",
                    late.who, command->verb, late.heartbeat.seq(), late.heartbeat.still_ms(),
                    command->deadline_ms, places),
        "COMMAND_DEADLINE", {{"rank", std::to_string(number)}, {"verb", command->verb}});
  }
  return std::nullopt;
}

std::optional<Error> RankWatch::missing_ranks(Clock::time_point now) const {
  if (all_joined_ || clock_.at(now) < limits_.join_timeout) return std::nullopt;
  std::vector<std::string> missing;
  for (int rank = 0; rank < world_size_; ++rank)
    if (!ranks_.contains(rank)) missing.push_back(std::to_string(rank));
  return DeadlineExceeded(
      fmt::format("rank{} {} of {} did not join within {:.1f} s", missing.size() == 1 ? "" : "s",
                  fmt::join(missing, ", "), world_size_, seconds(limits_.join_timeout)),
      "RANKS_MISSING", {{"missing_ranks", fmt::format("{}", fmt::join(missing, ", "))}});
}

RankWatch::Condition RankWatch::condition(int number, Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  const auto found = ranks_.find(number);
  if (found == ranks_.end() || found->second.state == v1::WORKER_STATE_READY) return {};
  return {found->second.state, trouble_of(found->second, now)};
}

}  // namespace meshloom::control
