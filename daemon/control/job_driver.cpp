// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/job_driver.h"

#include "daemon/base/enum_names.h"
#include "daemon/control/job_attempt.h"
#include "daemon/control/status.h"
#include "kernels/base/log.h"

namespace meshloom::control {

JobDriver::JobDriver(JobStore& store, Executor& executor, const StateDir& state,
                     std::filesystem::path data_dir)
    : store_(store), executor_(executor), state_(state), data_dir_(std::move(data_dir)) {}

JobDriver::~JobDriver() {
  request_stop();
  join();
}

void JobDriver::start() {
  const std::lock_guard lock(thread_mutex_);
  if (stop_) return;
  thread_ = std::thread([this] { run(); });
}

void JobDriver::request_stop() {
  stop_ = true;
  store_.close();
}

void JobDriver::join() {
  const std::lock_guard lock(thread_mutex_);
  if (thread_.joinable()) thread_.join();
}

void JobDriver::run() {
  while (!stop_ && !executor_.fatal()) {
    const auto id = store_.wait_for_job();
    if (!id || stop_) return;
    try {
      run_job(*id);
    } catch (const std::exception& error) {
      spdlog::error("job {}: {}", *id, error.what());
    }
  }
}

void JobDriver::run_job(const std::string& id) {
  const v1::Job job = store_.begin_attempt(id);
  executor_.set_epoch(job.epoch());
  spdlog::info("job {} begins, attempt {}", id, job.epoch());
  v1::JobState end = v1::JOB_STATE_FAILED;
  v1::ErrorDetails details;
  try {
    JobAttempt attempt(store_, executor_, job, {state_.job(id), state_.checkpoints(id), data_dir_},
                       stop_);
    switch (attempt.run()) {
      case AttemptEnd::kSucceeded: end = v1::JOB_STATE_SUCCEEDED; break;
      case AttemptEnd::kCancelled: end = v1::JOB_STATE_CANCELLED; break;
      case AttemptEnd::kStopped: end = v1::JOB_STATE_RECOVERING; break;
    }
  } catch (...) {
    details = to_details(std::current_exception());
  }
  // A job is not to blame for a lost rank or a daemon that stops: a later start goes on from its
  // checkpoint.
  const auto fatal = executor_.fatal();
  if (end == v1::JOB_STATE_FAILED && (fatal || executor_.stopping())) {
    const std::string cause = fatal ? fatal->what() : details.message();
    store_.add_note(id, fmt::format("attempt {} ended: {}", job.epoch(), cause));
    end = v1::JOB_STATE_RECOVERING;
  }
  store_.update(id, [&](v1::Job* changed) {
    changed->set_state(end);
    if (end == v1::JOB_STATE_FAILED) *changed->mutable_error() = details;
  });
  const v1::Job ended = store_.get(id);
  spdlog::info("job {}: {} at step {}{}", id,
               base::enum_spelling(*v1::JobState_descriptor()->FindValueByNumber(ended.state())),
               ended.step(), end == v1::JOB_STATE_FAILED ? ": " + details.message() : "");
}

}  // namespace meshloom::control
