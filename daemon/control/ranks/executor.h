// SPDX-License-Identifier: Apache-2.0
// Executor: the one ordered queue through which every command reaches the ranks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/host/memory.h"
#include "daemon/control/ranks/command_deadlines.h"
#include "daemon/control/ranks/command_queue.h"
#include "kernels/base/error.h"
#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// What a command is, for those who watch the ranks.
struct CommandInfo {
  std::string verb;
  std::int64_t deadline_ms = 0;  ///< as in RankCommand; 0: none
};

/// Who knows the commands that are under way. Any thread may ask.
class UnansweredCommands {
 public:
  virtual ~UnansweredCommands() = default;
  /// A command that not every rank has answered.
  virtual std::optional<CommandInfo> unanswered(std::int64_t seq) const = 0;
};

/// Lives on rank 0. Jobs and generation submit through RunClient; commands run in the order of
/// their seq on every rank. Any thread may call any method.
///
/// A verb that fails on all ranks alike is the caller's to handle. A failure that leaves the ranks
/// out of step (a lost rank, a collective that timed out or was aborted) is fatal: everything that
/// waits and everything that is submitted later throws the first cause, and the observer hears of
/// it once.
class Executor final : public ResultSink, public CommandStops, public UnansweredCommands {
 public:
  class Observer {
   public:
    virtual ~Observer() = default;
    /// A failure has left the ranks out of step. Called by the thread that finds it.
    virtual void ranks_failed(const Error& cause) = 0;
  };
  struct Pending;
  using Ticket = std::shared_ptr<Pending>;

  /// `observer` outlives it.
  Executor(int world_size, Observer& observer);

  /// The sink of a rank; all have one before the first submit.
  void attach(int rank, CommandSink* sink);
  /// On return nobody uses the sink any more.
  void detach(int rank);
  bool all_attached() const;

  /// Gives the command its seq, the current epoch and a deadline by the size of its run, and sends
  /// it to every rank. Waits for no rank. Throws ResourceExhausted (COMMAND_TOO_LARGE) for one of
  /// more than kLargestCommand bytes, or of 1 GiB where it has a client's data.
  Ticket submit(v1::RankCommand command);
  /// One verb of which every rank gets a part of its own, in the order of ranks. The deadline is by
  /// that of rank 0.
  Ticket submit_parts(std::vector<v1::RankCommand> parts);
  int world_size() const { return world_size_; }
  /// Commands that no other one comes between, in their order.
  std::vector<Ticket> submit_together(std::vector<v1::RankCommand> commands);
  /// Waits until every rank has answered. Returns rank 0's result, with the largest memory of all
  /// ranks. Throws the error of the lowest rank that failed (rank_error.h). RankWatch sees to it
  /// that no wait is for ever.
  v1::RankResult wait(const Ticket& ticket);
  /// Rank 0 is to leave the command between two parts of its work, which makes it fail on all
  /// ranks. False where it comes too late: the command goes on, or has ended.
  bool request_stop(const Ticket& ticket);
  bool is_stopped(std::int64_t seq, bool last) override;
  std::optional<CommandInfo> unanswered(std::int64_t seq) const override;

  /// From here on commands carry this epoch; it never goes back.
  void set_epoch(std::int64_t epoch);

  std::int64_t epoch() const;
  /// Recoveries that were begun, and the failure that the last one was for.
  struct Recoveries {
    std::uint64_t count = 0;
    std::string last_failure;
  };
  Recoveries recoveries() const;
  /// As the rank told with its last result; zeros before the first.
  MemoryUse memory_of(int rank) const;

  // From the ranks.
  /// A result that leaves the ranks out of step is fatal before anybody who waits sees it.
  void complete(const v1::RankResult& result) override;
  /// A rank has failed alone, after `epoch` recoveries, and meets the others: sends the recover
  /// command to all, once for each epoch.
  void recover(std::uint64_t epoch, const std::string& cause);

  /// Sends the stop command; nothing is taken after it.
  void stop();
  bool stopping() const;
  void fail(const Error& cause);
  std::optional<Error> fatal() const;

 private:
  /// As many parts as ranks, or one for all.
  Ticket submit_locked(std::vector<v1::RankCommand> parts);
  void send_to_all(const v1::RankCommand& command);

  const int world_size_;
  Observer& observer_;
  CommandDeadlines deadlines_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<CommandSink*> sinks_;
  std::vector<MemoryUse> memory_;
  std::map<std::int64_t, Ticket> pending_;
  std::int64_t next_seq_ = 1;
  std::int64_t epoch_ = 0;
  Recoveries recoveries_;
  bool stopping_ = false;
  std::optional<Error> fatal_;
};

}  // namespace meshloom::control
