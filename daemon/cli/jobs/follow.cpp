// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/jobs/follow.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>

#include "daemon/base/states.h"
#include "daemon/cli/interrupt.h"
#include "daemon/cli/jobs/job_changes.h"
#include "daemon/cli/jobs/job_facts.h"
#include "daemon/cli/jobs/progress.h"
#include "daemon/cli/jobs/wait_teller.h"
#include "daemon/cli/output/records.h"
#include "daemon/cli/output/terminal.h"

namespace meshloom::cli {
namespace {

void put(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

ExitCode end_of(const v1::Job& job) {
  switch (job.state()) {
    case v1::JOB_STATE_SUCCEEDED: return kOk;
    case v1::JOB_STATE_CANCELLED: return kCancelled;
    default: return kFailed;
  }
}

/// One stream of events, and what it has shown.
class Follow {
 public:
  Follow(Client& client, std::string job, const FollowOptions& options)
      : client_(client),
        job_(std::move(job)),
        options_(options),
        progress_(is_terminal(STDOUT_FILENO), terminal_columns(STDOUT_FILENO),
                  options.style.colour) {}

  ExitCode run() {
    if (!options_.json) {
      const v1::Job job = get_job(client_, job_);
      print_facts(client_, job);
      tokens_told_ = tokens_are_known(job);
    }
    std::fflush(stdout);
    while (true) {
      const grpc::Status status = read_stream();
      put(progress_.clear());
      if (base::is_final(last_.state())) {
        if (!options_.json) print_job(last_, options_.style);
        return end_of(last_);
      }
      if (interrupted_) {
        fmt::print(stderr,
                   "detached; the job goes on. To end it: meshloom --address {} job cancel {}\n",
                   client_.address(), short_name(job_));
        return kInterrupted;
      }
      // Events that this client was too slow for: the present state brings it up to date.
      if (status.error_code() == grpc::StatusCode::OUT_OF_RANGE) continue;
      if (status.error_code() == grpc::StatusCode::UNAVAILABLE) lost();
      if (!status.ok()) client_.fail(status);
      lost();
    }
  }

 private:
  grpc::Status read_stream() {
    grpc::ClientContext context;
    client_.introduce(context);
    v1::WatchJobRequest request;
    request.set_name(job_);
    const auto stream = client_.jobs().WatchJob(&context, request);
    const InterruptScope interrupt([&] { context.TryCancel(); });
    const WaitTeller teller(client_, job_, [this](const v1::RanksWait& wait) { show_wait(wait); });
    v1::WatchJobResponse response;
    while (stream->Read(&response)) {
      const std::lock_guard lock(showing_);
      show(response.event());
    }
    grpc::Status status = stream->Finish();
    interrupted_ = interrupt.interrupted();
    return status;
  }

  void show(const v1::JobEvent& event) {
    if (event.has_job()) {
      const bool new_state = event.job().state() != last_.state();
      last_ = event.job();
      if (new_state && options_.notify) notify();
    }
    seen_ = true;
    if (options_.json) return print_record(event_record(event));
    // The line about data again, once it says all.
    if (!tokens_told_ && event.has_job() && event.job().data().tokens() != 0) {
      tokens_told_ = true;
      put(progress_.clear());
      print_data_fact(get_job(client_, job_));
    }
    progress_.resize(terminal_columns(STDOUT_FILENO));
    put(progress_.show(event, Progress::Clock::now()));
  }

  /// Standard error is the terminal's also where standard output is a file.
  void notify() {
    const bool is_told = base::is_final(last_.state()) || last_.state() == v1::JOB_STATE_HELD;
    if (is_told && is_terminal(STDERR_FILENO)) fmt::print(stderr, "{}", notice_of(last_));
  }

  void show_wait(const v1::RanksWait& wait) {
    const std::lock_guard lock(showing_);
    if (options_.json) return print_record(stream_record("wait", wait));
    put(progress_.above("waits: " + wait.reason()));
  }

  [[noreturn]] void lost() {
    if (!seen_) client_.fail(grpc::Status(grpc::StatusCode::UNAVAILABLE, "no connection"));
    throw CliError(
        kUnreachable,
        fmt::format(
            "the daemon at {} stopped. Started again on the same state dir it goes on with the "
            "job; then: meshloom job watch {}",
            client_.address(), short_name(job_)));
  }

  Client& client_;
  std::string job_;
  FollowOptions options_;
  std::mutex showing_;  ///< what is shown comes from two threads
  Progress progress_;
  v1::Job last_;
  bool seen_ = false;
  bool tokens_told_ = false;
  bool interrupted_ = false;
};

}  // namespace

std::string notice_of(const v1::Job& job) {
  return fmt::format("\a\033]9;meshloom: {} {}\033\\", short_name(job.name()),
                     state_name(job.state()));
}

ExitCode follow_job(Client& client, const std::string& job, const FollowOptions& options) {
  return Follow(client, job, options).run();
}

}  // namespace meshloom::cli
