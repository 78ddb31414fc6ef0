// SPDX-License-Identifier: Apache-2.0
// JobTable: the jobs by id and by order of submission, and the order in which they get the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/control/stores/job_entry.h"

namespace meshloom::control {

/// Ids are names without "jobs/". Whoever has it guards it. Entries stay where they are until they
/// are erased.
class JobTable {
 public:
  /// Between the places of two jobs that were submitted one after the other. Places are odd: 0 is
  /// that of a journal which knows none.
  static constexpr std::int64_t kQueueGap = std::int64_t{1} << 20;

  /// Null if there is none.
  JobEntry* find(const std::string& id) const;
  /// Throws NotFound (JOB_NOT_FOUND), with the name of a job that is called nearly so.
  JobEntry& at(const std::string& id) const;
  /// By order of submission.
  const std::map<std::int64_t, std::unique_ptr<JobEntry>>& all() const { return entries_; }
  const std::map<std::string, JobEntry*>& by_id() const { return by_id_; }
  /// Returns the jobs that have not ended, by order of submission.
  const std::map<std::int64_t, JobEntry*>& unfinished() const { return unfinished_; }

  /// Adds a job as the newest. It is in no order before settle().
  JobEntry& add(std::unique_ptr<JobEntry> fresh);
  /// Adds a job as the newest, which has not ended.
  void submit(std::unique_ptr<JobEntry> fresh);
  void erase(const std::string& id);
  /// The replay is done: sorts them by whether they have ended.
  void settle();
  /// The job has moved to a state that is final.
  void end(JobEntry& entry);
  /// Events of ended jobs are kept until the next attempt begins, which is when this is called.
  void forget_ended_events();
  /// Keeps the summary alone of the first that have ended, beyond so many.
  void drop_details(std::size_t most);

  /// The one that gets the ranks next; null if none waits.
  const JobEntry* first_waiting() const;
  /// Jobs that wait for the ranks, in the order of their places.
  std::vector<JobEntry*> queue() const;
  /// Returns the place of the job that comes last; 1 if there is none.
  std::int64_t last_place() const;
  /// Lets the job wait as one that is resumed, at the head of the queue.
  void queue_first(JobEntry& target) const;
  /// Lets the job wait again, behind all others.
  void queue_last(JobEntry& target) const;

  /// A job that has not ended and whose resolved config `uses` says so of.
  template <typename Test>
  std::optional<std::string> find_user(const Test& uses) const {
    for (const auto& [number, job] : unfinished_)
      if (job->config && uses(job->config->resolved)) return job->id();
    return std::nullopt;
  }

 private:
  /// "; did you mean NAME?" where a job is called nearly so.
  std::string hint_of(const std::string& id) const;

  std::map<std::int64_t, std::unique_ptr<JobEntry>> entries_;
  std::map<std::string, JobEntry*> by_id_;
  std::map<std::int64_t, JobEntry*> unfinished_;
  std::set<std::int64_t> detailed_;      ///< ended ones that are more than a summary
  std::vector<std::string> just_ended_;  ///< whose events are kept until the next attempt
  std::int64_t next_number_ = 1;
};

/// Whether its place in the queue says anything.
bool waits_for_ranks(const JobEntry& entry);

}  // namespace meshloom::control
