// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/jobs/job_wait.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "daemon/base/states.h"
#include "daemon/cli/interrupt.h"
#include "daemon/cli/jobs/job_changes.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/output/records.h"
#include "daemon/cli/reading.h"

namespace meshloom::cli {
namespace {

template <typename Number>
bool read_number(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool is_of_metrics(const WaitGoal& goal) {
  return goal.kind == WaitGoal::Kind::kStep || goal.kind == WaitGoal::Kind::kLoss;
}

/// Whether the job's metrics show the goal before the job has ended.
bool metrics_reach(Client& client, Reading& reading, const std::string& job, const WaitGoal& goal) {
  v1::StreamMetricsRequest request;
  request.set_name(job);
  request.set_follow(true);
  bool reached = false;
  const grpc::Status status = reading.read<v1::StreamMetricsResponse>(
      client,
      [&](grpc::ClientContext* context) { return client.jobs().StreamMetrics(context, request); },
      [&](const v1::StreamMetricsResponse& line) {
        request.set_after_revision(line.revision());
        reached = line_reaches(goal, line.line());
        return !reached;
      });
  if (!status.ok() && !reading.is_over() && !reading.cancelled()) client.fail(status);
  return reached;
}

/// Its state once it has ended, or time is up.
v1::JobState end_of_job(Client& client, Reading& reading, const std::string& job) {
  v1::WatchJobRequest request;
  request.set_name(job);
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  while (!base::is_final(state) && !reading.is_over() && !reading.cancelled()) {
    const grpc::Status status = reading.read<v1::WatchJobResponse>(
        client,
        [&](grpc::ClientContext* context) { return client.jobs().WatchJob(context, request); },
        [&](const v1::WatchJobResponse& response) {
          if (response.event().has_job()) state = response.event().job().state();
          return !base::is_final(state);
        });
    // Events that this client was too slow for: the present state brings it up to date.
    const bool behind = status.error_code() == grpc::StatusCode::OUT_OF_RANGE;
    if (!status.ok() && !behind && !reading.is_over() && !reading.cancelled()) client.fail(status);
  }
  return state;
}

void tell(bool json, const std::string& job, bool reached, const std::string& what) {
  if (json)
    print_record({{"job", job}, {"reached", reached}, {"what", what}});
  else
    fmt::print("{}: {}\n", short_name(job), what);
  std::fflush(stdout);
}

ExitCode wait_for_job(Client& client, Reading& reading, bool json, const std::string& job,
                      const WaitGoal& goal) {
  if (is_of_metrics(goal) && metrics_reach(client, reading, job, goal)) {
    tell(json, job, true,
         goal.kind == WaitGoal::Kind::kStep ? fmt::format("has done step {}", goal.step)
                                            : fmt::format("has reached a loss of {}", goal.loss));
    return kOk;
  }
  const v1::JobState end = end_of_job(client, reading, job);
  if (reading.cancelled()) return kInterrupted;
  if (!base::is_final(end)) {
    tell(json, job, false, "time is up");
    return kTimedOut;
  }
  const ExitCode code = end_reaches(goal, end);
  tell(json, job, code == kOk, state_name(end));
  return code;
}

}  // namespace

WaitGoal parse_wait_goal(const std::string& text) {
  WaitGoal goal;
  if (text == "succeeded") return goal;
  if (text == "ended") return {.kind = WaitGoal::Kind::kEnded};
  if (text.starts_with("step:") && read_number(std::string_view(text).substr(5), &goal.step) &&
      goal.step > 0) {
    goal.kind = WaitGoal::Kind::kStep;
    return goal;
  }
  if (text.starts_with("loss:") && read_number(std::string_view(text).substr(5), &goal.loss) &&
      std::isfinite(goal.loss)) {
    goal.kind = WaitGoal::Kind::kLoss;
    return goal;
  }
  throw CliError(kUsage, fmt::format("is \"{}\", expected succeeded, ended, step:N with a step "
                                     "above 0, or loss:X",
                                     text));
}

bool line_reaches(const WaitGoal& goal, const std::string& line) {
  const auto entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!entry.is_object() || !entry.contains("loss")) return false;
  if (goal.kind == WaitGoal::Kind::kStep) {
    const auto step = entry.find("step");
    return step != entry.end() && step->is_number_integer() &&
           step->get<std::int64_t>() >= goal.step;
  }
  const auto& loss = entry["loss"];
  return goal.kind == WaitGoal::Kind::kLoss && loss.is_number() && loss.get<double>() <= goal.loss;
}

ExitCode end_reaches(const WaitGoal& goal, v1::JobState end) {
  if (goal.kind == WaitGoal::Kind::kEnded) return kOk;
  if (end == v1::JOB_STATE_CANCELLED) return kCancelled;
  return end == v1::JOB_STATE_SUCCEEDED && goal.kind == WaitGoal::Kind::kSucceeded ? kOk : kFailed;
}

ExitCode wait_for_jobs(Client& client, bool json, const WaitOptions& options) {
  std::optional<Reading::Clock::time_point> deadline;
  if (options.timeout_seconds > 0)
    deadline = Reading::Clock::now() + std::chrono::duration_cast<Reading::Clock::duration>(
                                           std::chrono::duration<double>(options.timeout_seconds));
  Reading reading(deadline);
  const InterruptScope interrupt([&] { reading.cancel(); });
  // A wrong name is told at once, and a daemon that is not there now is not waited for.
  std::vector<std::string> jobs;
  for (const std::string& name : options.jobs) jobs.push_back(get_job(client, name).name());
  ExitCode all = kOk;
  for (const std::string& job : jobs) {
    const ExitCode one = wait_for_job(client, reading, json, job, options.goal);
    if (one == kTimedOut || one == kInterrupted) return one;
    if (all == kOk) all = one;
  }
  return all;
}

}  // namespace meshloom::cli
