// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/ranks_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "daemon/control/stores/names.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMostTold = 20;
constexpr std::size_t kMostInWords = 3;

bool waits(v1::JobState state) {
  return state == v1::JOB_STATE_QUEUED || state == v1::JOB_STATE_RECOVERING;
}

/// The time that the steps ahead of a job take at the pace of its last one; nothing before that.
/// Its tokens count as tokens_per_second does, whatever padding and masks leave out.
std::optional<double> seconds_left(const v1::Job& job) {
  const v1::StepMetrics& last = job.last_step();
  const double pace = last.tokens_per_second();
  if (pace <= 0.0 || last.step() <= 0 || last.tokens() <= 0) return std::nullopt;
  const double tokens_per_step =
      static_cast<double>(last.tokens()) / static_cast<double>(last.step());
  const auto steps = static_cast<double>(std::max<std::int64_t>(0, job.steps() - job.step()));
  return steps * tokens_per_step / pace;
}

/// One that is ahead, as a part of a sentence.
std::string in_words(const v1::WaitAhead& one) {
  if (one.idle()) {
    const std::string client = one.client().empty() ? "" : fmt::format(" \"{}\"", one.client());
    return fmt::format(
        "{}, whose client{} does nothing: its lease ends in at most {} unless the client calls",
        one.name(), client, wait_text(one.seconds()));
  }
  if (one.has_seconds())
    return fmt::format("{} (about {} left)", one.name(), wait_text(one.seconds()));
  return one.name();
}

std::string ahead_in_words(const v1::RanksWait& wait) {
  std::string text;
  const auto told = static_cast<std::size_t>(wait.ahead_size());
  for (std::size_t i = 0; i < std::min(told, kMostInWords); ++i)
    text += (i == 0 ? "behind " : ", then ") + in_words(wait.ahead(static_cast<int>(i)));
  const auto more = wait.ahead_count() - static_cast<std::int64_t>(std::min(told, kMostInWords));
  if (more > 0) text += fmt::format(", then {} more", more);
  return text;
}

}  // namespace

std::string wait_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(std::clamp(seconds, 0.0, 1e12)));
  if (whole < 120) return fmt::format("{} s", whole);
  if (whole < 7200) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

std::vector<std::string> RanksQueue::ahead_of(const std::string& name) const {
  std::vector<std::string> ahead = turn_.ahead_of(name);
  // Of the jobs the first one alone is in the queue for the ranks; the others follow it in theirs.
  if (!name.starts_with("jobs/") || turn_.waited(name)) return ahead;
  for (const std::string& id : jobs_.waiting()) {
    const std::string job = job_resource(id);
    if (job == name) break;
    if (std::find(ahead.begin(), ahead.end(), job) == ahead.end()) ahead.push_back(job);
  }
  return ahead;
}

v1::WaitAhead RanksQueue::describe(const std::string& name, bool has_ranks) const {
  v1::WaitAhead one;
  one.set_name(name);
  one.set_has_ranks(has_ranks);
  try {
    if (name.starts_with("jobs/")) {
      if (const auto left = seconds_left(jobs_.get(parse_job_name(name)))) one.set_seconds(*left);
    } else if (name.starts_with("runs/")) {
      const RunSession::Holding holding = runs_.find(parse_run_name(name))->holding();
      one.set_client(holding.client);
      one.set_idle(has_ranks && holding.idle);
      if (one.idle()) one.set_seconds(static_cast<double>(holding.lease_left_ms) / 1000.0);
    }
  } catch (const NotFound&) {
    // It has ended meanwhile: its name is all there is.
  }
  return one;
}

v1::RanksWait RanksQueue::wait_behind(const std::vector<std::string>& names) const {
  v1::RanksWait wait;
  wait.set_ahead_count(static_cast<std::int64_t>(names.size()));
  const std::string holder = turn_.holder();
  bool known = names.size() <= kMostTold;
  double seconds = 0.0;
  for (std::size_t i = 0; i < std::min(names.size(), kMostTold); ++i) {
    const v1::WaitAhead& one = *wait.add_ahead() = describe(names[i], names[i] == holder);
    known = known && one.has_seconds();
    seconds += one.seconds();
  }
  if (known && !names.empty()) wait.set_seconds(seconds);
  if (const v1::StoredDrain drain = drain_.get(); drain.drained()) {
    wait.set_drained(drain.reason().empty() ? "drained" : drain.reason());
    wait.set_reason(fmt::format(
        "the daemon is drained ({}): nothing begins before `meshloom undrain`", wait.drained()));
  }
  if (const std::string behind = ahead_in_words(wait); !behind.empty())
    wait.set_reason(wait.reason().empty() ? behind : wait.reason() + "; " + behind);
  return wait;
}

v1::RanksWait RanksQueue::wait_of(const std::string& name) const {
  v1::RanksWait wait = wait_behind(ahead_of(name));
  if (const auto waited = turn_.waited(name))
    wait.set_waited_seconds(std::chrono::duration<double>(*waited).count());
  return wait;
}

v1::RanksWait RanksQueue::whole() const {
  std::vector<std::string> names = turn_.ahead_of("");
  for (const std::string& id : jobs_.waiting()) {
    const std::string job = job_resource(id);
    if (std::find(names.begin(), names.end(), job) == names.end()) names.push_back(job);
  }
  return wait_behind(names);
}

void RanksQueue::tell(v1::Job* job) const {
  if (!waits(job->state())) return;
  v1::RanksWait wait = wait_of(job->name());
  if (!wait.reason().empty()) *job->mutable_wait() = std::move(wait);
}

}  // namespace meshloom::control
