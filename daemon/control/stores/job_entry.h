// SPDX-License-Identifier: Apache-2.0
// What the store holds of one job, and what of it may be told.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/stores/job_settings.h"
#include "daemon/control/stores/ledger.h"
#include "daemon/control/stores/notes.h"
#include "v1/job.pb.h"
#include "v1/journal.pb.h"

namespace meshloom::control {

/// What a job computes: large, and shared by all that show it.
struct JobConfig {
  v1::RunConfig run;
  v1::RunConfig resolved;
  JobEdits edits;  ///< that run and resolved contain
  /// Of the edits: the first that the job ever had is 1. Those that are contained in later ones
  /// are missing.
  std::vector<std::int64_t> edit_numbers;
  std::int64_t step_limit = 0;
  std::int64_t time_limit_seconds = 0;
};
using SharedJobConfig = std::shared_ptr<const JobConfig>;

/// Takes spec.run, resolved and edits out of the job, and copies its limits; null if it has
/// neither. `edit_numbers`: 1, 2, ... if empty.
SharedJobConfig take_config(v1::Job* job, std::vector<std::int64_t> edit_numbers = {});
/// Puts them back.
void put_config(const SharedJobConfig& config, v1::Job* job);
/// Into a record of the whole job.
void put_config(const SharedJobConfig& config, v1::JournalRecord* record);

/// Of the samples that a job tells, together; each is cut to its share.
inline constexpr std::size_t kMostSampleBytes = 512 << 10;

/// Without what may be large: spec.run, resolved, edits, notes, sample and plan.
v1::Job summary_of(const v1::Job& job);

/// As the journal holds it: without absolute paths, since a state dir may be moved.
v1::Job without_folders(v1::Job job);
/// The same for a record of a job that is known: without what has records of its own.
v1::Job without_parts(v1::Job job);
/// Fills in where the job's files lie, also for a journal that holds the paths that were.
void set_folders(v1::Job* job, const std::filesystem::path& folder);

/// The job as it is, and what watchers and readers are told of it: nothing before it is durable.
/// Not synchronised.
class JobEntry {
 public:
  JobEntry(v1::Job job, std::int64_t number);

  v1::Job job;  ///< as it is, without what is in `config`
  SharedJobConfig config;
  std::int64_t number;  ///< order of submission
  /// The journal promises that none up to here is used again.
  std::int64_t reserved_revision = 0;
  /// The journal promises that no attempt has done more steps: none up to here shows that an
  /// attempt comes further than those before it.
  std::int64_t furthest_step = 0;
  bool active = false;  ///< the driver has it
  /// Since it last had the ranks: it comes before all that wait. In the journal beside `job`.
  bool resumed = false;
  std::int64_t begun = 0;                       ///< the last step that the ranks were given
  std::chrono::steady_clock::time_point taken;  ///< when it got the ranks, while it is active
  bool editing = false;                         ///< an edit is being written

  std::string id() const;
  /// HELD, until it is released or the daemon is started again.
  void hold(v1::HoldCode code, const std::string& reason);
  const v1::Job& told() const { return told_ ? *told_ : job; }
  /// The same with the state that is not durable yet.
  v1::Job view() const;
  v1::Job summary() const;  ///< the same without what may be large
  /// Needs no event: it is on disk already.
  void set_checkpoint_step(std::int64_t step);

  /// Keeps what is told as it is until the events that follow are durable. Call it before `job` is
  /// changed by what must be, and add the event of the change afterwards.
  void hold_back();
  /// Gives the event the next revision. It is told once the record of `ticket` is durable and all
  /// events before it were told; 0: it need not be durable itself.
  void add_event(v1::JobEvent event, Ledger::Ticket ticket);
  /// What the job's log gets from the next publish().
  std::string log_lines(Ledger::Ticket durable) const;
  /// The same for the log of events, by the records that they wait for.
  std::vector<std::pair<Ledger::Ticket, std::string>> event_lines(Ledger::Ticket durable) const;
  /// True if something was told.
  bool publish(Ledger::Ticket durable);
  bool behind() const { return !pending_.empty(); }
  /// The record that its newest untold event waits for; 0: all is told.
  Ledger::Ticket newest_ticket() const { return pending_.empty() ? 0 : pending_.back().ticket; }

  /// Told events after `revision`, without what is in `config`, at most 256. Throws OutOfRange.
  std::vector<v1::JobEvent> events_after(std::int64_t revision) const;
  void forget_events() { history_.clear(); }
  /// Keeps the summary alone. For jobs that have ended.
  void summarize();

 private:
  struct Pending {
    Ledger::Ticket ticket;
    v1::JobEvent event;
  };
  void tell(v1::JobEvent event);

  std::unique_ptr<v1::Job> told_;  ///< null: `job` is what is told
  std::deque<Pending> pending_;
  std::deque<v1::JobEvent> history_;
};

/// Of those that wait for the ranks the least is taken first: jobs that took the daemon down come
/// behind the others.
inline std::pair<std::int64_t, std::int64_t> take_order(const JobEntry& entry) {
  return {entry.job.stalled_attempts(), entry.job.queue_place()};
}

}  // namespace meshloom::control
