// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/executor.h"

#include <algorithm>

#include "daemon/control/net/status.h"
#include "daemon/control/ranks/rank_command.h"
#include "daemon/control/ranks/rank_error.h"
#include "kernels/base/log.h"

namespace meshloom::control {

struct Executor::Pending {
  CommandInfo info;
  std::vector<std::optional<v1::RankResult>> results;
  int answered = 0;
  bool stop = false;      ///< requested
  bool too_late = false;  ///< for that

  bool complete() const { return answered == static_cast<int>(results.size()); }
};

namespace {

/// Of a command with a client's data, which travels in pieces.
constexpr std::size_t kLargestBulk = std::size_t{1} << 30;

void check_size(const v1::RankCommand& command) {
  const std::size_t bytes = command.ByteSizeLong();
  const std::size_t most =
      command.has_loss() || command.has_set_parameters() ? kLargestBulk : kLargestCommand;
  if (bytes <= most) return;
  throw ResourceExhausted(fmt::format("command {} has {} bytes, at most {} are sent to the ranks",
                                      verb_name(command), bytes, most),
                          "COMMAND_TOO_LARGE", {{"bytes", std::to_string(bytes)}});
}

}  // namespace

Executor::Executor(int world_size, Observer& observer)
    : world_size_(world_size),
      observer_(observer),
      sinks_(static_cast<std::size_t>(world_size), nullptr),
      memory_(static_cast<std::size_t>(world_size)) {}

void Executor::attach(int rank, CommandSink* sink) {
  const std::lock_guard lock(mutex_);
  sinks_.at(static_cast<std::size_t>(rank)) = sink;
}

void Executor::detach(int rank) {
  const std::lock_guard lock(mutex_);
  sinks_.at(static_cast<std::size_t>(rank)) = nullptr;
}

bool Executor::all_attached() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(sinks_.begin(), sinks_.end(),
                     [](const auto* sink) { return sink != nullptr; });
}

void Executor::send_to_all(const v1::RankCommand& command) {
  const auto shared = std::make_shared<const v1::RankCommand>(command);
  for (CommandSink* sink : sinks_)
    if (sink) sink->send(shared);
}

Executor::Ticket Executor::submit(v1::RankCommand command) {
  return submit_together({std::move(command)}).front();
}

std::vector<Executor::Ticket> Executor::submit_together(std::vector<v1::RankCommand> commands) {
  for (auto& command : commands) deadlines_.set(&command);
  std::vector<Ticket> tickets;
  const std::lock_guard lock(mutex_);
  // Refused before one has a seq, so that no rank waits for a command that others cannot be sent.
  for (const auto& command : commands) check_size(command);
  for (auto& command : commands) {
    std::vector<v1::RankCommand> one;
    one.push_back(std::move(command));
    tickets.push_back(submit_locked(std::move(one)));
  }
  return tickets;
}

Executor::Ticket Executor::submit_parts(std::vector<v1::RankCommand> parts) {
  check_internal(parts.size() == sinks_.size(), "{} parts for {} ranks", parts.size(),
                 sinks_.size());
  deadlines_.set(&parts.front());
  for (auto& part : parts) {
    part.set_deadline_ms(parts.front().deadline_ms());
    check_size(part);
  }
  const std::lock_guard lock(mutex_);
  return submit_locked(std::move(parts));
}

Executor::Ticket Executor::submit_locked(std::vector<v1::RankCommand> parts) {
  if (fatal_) throw *fatal_;
  if (stopping_) throw Unavailable("the daemon is stopping", "STOPPING");
  const auto missing = std::find(sinks_.begin(), sinks_.end(), nullptr);
  if (missing != sinks_.end())
    throw Unavailable(
        fmt::format("rank {} of {} has not joined yet", missing - sinks_.begin(), world_size_),
        "RANKS_MISSING");
  auto pending = std::make_shared<Pending>();
  pending->info = {verb_name(parts.front()), parts.front().deadline_ms()};
  pending->results.resize(sinks_.size());
  const std::int64_t seq = next_seq_++;
  pending_[seq] = pending;
  std::vector<CommandPtr> commands;
  for (v1::RankCommand& part : parts) {
    part.set_seq(seq);
    part.set_epoch(epoch_);
    commands.push_back(std::make_shared<const v1::RankCommand>(std::move(part)));
  }
  // Rank 0 last: the others' messages travel while its thread wakes up.
  for (std::size_t rank = sinks_.size(); rank-- > 0;)
    sinks_[rank]->send(commands.size() == 1 ? commands.front() : commands[rank]);
  return pending;
}

v1::RankResult Executor::wait(const Ticket& ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ticket->complete() || fatal_.has_value(); });
  if (!ticket->complete()) throw *fatal_;
  v1::RankResult merged = *ticket->results[0];
  for (const auto& result : ticket->results) {
    if (result->has_error()) throw_error(*result);
    merged.set_memory_bytes(std::max(merged.memory_bytes(), result->memory_bytes()));
    merged.set_peak_memory_bytes(std::max(merged.peak_memory_bytes(), result->peak_memory_bytes()));
    if (merged.has_apply_gradients() && result->has_apply_gradients()) {
      const v1::CoreTimes& times = result->apply_gradients().core_times();
      v1::ApplyGradientsResult& step = *merged.mutable_apply_gradients();
      if (times.waited() > step.core_times().waited()) *step.mutable_core_times() = times;
    }
  }
  return merged;
}

bool Executor::request_stop(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  if (ticket->too_late || ticket->complete() || fatal_) return false;
  ticket->stop = true;
  return true;
}

bool Executor::is_stopped(std::int64_t seq, bool last) {
  const std::lock_guard lock(mutex_);
  const auto found = pending_.find(seq);
  if (found == pending_.end()) return false;
  Pending& pending = *found->second;
  pending.too_late = pending.too_late || last;
  return pending.stop;
}

std::optional<CommandInfo> Executor::unanswered(std::int64_t seq) const {
  const std::lock_guard lock(mutex_);
  const auto found = pending_.find(seq);
  if (found == pending_.end()) return std::nullopt;
  return found->second->info;
}

void Executor::set_epoch(std::int64_t epoch) {
  const std::lock_guard lock(mutex_);
  epoch_ = std::max(epoch_, epoch);
}

std::int64_t Executor::epoch() const {
  const std::lock_guard lock(mutex_);
  return epoch_;
}

Executor::Recoveries Executor::recoveries() const {
  const std::lock_guard lock(mutex_);
  return recoveries_;
}

MemoryUse Executor::memory_of(int rank) const {
  const std::lock_guard lock(mutex_);
  return memory_.at(static_cast<std::size_t>(rank));
}

void Executor::complete(const v1::RankResult& result) {
  if (result.error_scope() == v1::ERROR_SCOPE_RANKS) fail(to_error(result.error()));
  const std::lock_guard lock(mutex_);
  const auto found = pending_.find(result.seq());
  const bool known_rank = result.rank() >= 0 && result.rank() < world_size_;
  if (found == pending_.end() || !known_rank) return;
  Pending& pending = *found->second;
  auto& slot = pending.results[static_cast<std::size_t>(result.rank())];
  if (slot) return;
  slot = result;
  memory_[static_cast<std::size_t>(result.rank())] = {result.memory_bytes(),
                                                      result.peak_memory_bytes()};
  if (++pending.answered == world_size_) {
    pending_.erase(found);
    changed_.notify_all();
  }
}

void Executor::recover(std::uint64_t epoch, const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (fatal_ || stopping_ || epoch < recoveries_.count) return;
  recoveries_ = {epoch + 1, cause};
  spdlog::error("the ranks recover: {}", cause);
  std::vector<v1::RankCommand> command(1);
  command[0].mutable_recover()->set_epoch(epoch);
  command[0].mutable_recover()->set_cause(cause);
  try {
    submit_locked(std::move(command));
  } catch (const Error& error) {
    // A rank is not there, which ends the daemon by itself.
    spdlog::error("no recover command: {}", error.what());
  }
}

void Executor::stop() {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  stopping_ = true;
  v1::RankCommand command;
  command.set_seq(next_seq_++);
  command.set_epoch(epoch_);
  command.mutable_stop();
  send_to_all(command);
  changed_.notify_all();
}

bool Executor::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void Executor::fail(const Error& cause) {
  std::unique_lock lock(mutex_);
  if (fatal_) return;
  fatal_ = cause;
  v1::RankCommand command;
  command.mutable_abort()->set_cause(cause.what());
  send_to_all(command);
  changed_.notify_all();
  lock.unlock();
  spdlog::critical("the ranks are out of step and stop: {}", cause.what());
  observer_.ranks_failed(cause);
}

std::optional<Error> Executor::fatal() const {
  const std::lock_guard lock(mutex_);
  return fatal_;
}

}  // namespace meshloom::control
