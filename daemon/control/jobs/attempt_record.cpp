// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/attempt_record.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "daemon/control/stores/names.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kEvents = "tensorboard";

/// A number of an error's metadata, as fmt has written it.
double number_of(const Error& error, const std::string& key) {
  const auto found = error.metadata().find(key);
  return found == error.metadata().end() ? 0.0 : std::strtod(found->second.c_str(), nullptr);
}

}  // namespace

AttemptRecord::AttemptRecord(JobStore& store, const v1::Job& job, std::filesystem::path folder)
    : store_(store),
      job_(job),
      id_(parse_job_name(job.name())),
      folder_(std::move(folder)),
      clock_(job.goodput()),
      watch_(job.resolved().training()) {}

void AttemptRecord::begin(std::int64_t done, double ran_seconds, std::filesystem::path before,
                          const std::string& plan) {
  step_ = done;
  metrics_ = std::make_unique<base::MetricsLog>(
      folder_ / kMetrics, done,
      base::MetricsOrigin{id_, job_.attempt(), ran_seconds, std::move(before)});
  const v1::MetricsConfig& config = job_.resolved().metrics();
  // A job of an older daemon says nothing of it.
  if (config.has_tensorboard() && !config.tensorboard()) return;
  events_ = std::make_unique<events::JobEvents>(folder_ / kEvents, store_.get(id_), done,
                                                config.has_interval() ? config.interval() : 1);
  if (events_->is_first()) events_->lines_of(folder_ / kMetrics);
  events_->plan(plan, done);
}

void AttemptRecord::note(const std::string& note) {
  spdlog::info("job {}: {}", id_, note);
  store_.add_note(id_, note);
  if (events_) events_->note(note, step_);
}

bool AttemptRecord::step(v1::StepMetrics metrics, const std::map<std::string, double>& seconds) {
  step_ = metrics.step();
  *metrics.mutable_goodput() = clock_.now();
  const auto line = metrics_->step(metrics, seconds);
  if (events_) events_->line(line);
  store_.publish_step(id_, metrics);
  bool cancels = false;
  for (const v1::WatchNotice& notice : watch_.add(metrics)) {
    cancels = cancels || notice.cancel();
    const std::string text =
        fmt::format("{} at step {}: {:g}{}", notice.condition(), notice.step(), notice.value(),
                    notice.cancel() ? "; the job is cancelled for it" : "");
    spdlog::warn("job {}: {}", id_, text);
    store_.publish_watch(id_, notice, text);
    if (events_) events_->note(text, step_);
  }
  return cancels;
}

void AttemptRecord::validation(const v1::ValidationMetrics& metrics) {
  const auto line = metrics_->validation(metrics);
  if (events_) events_->line(line);
  store_.publish_validation(id_, metrics);
}

void AttemptRecord::samples(const std::vector<v1::DrawnSample>& samples) {
  if (events_) events_->samples(samples);
  store_.publish_samples(id_, samples);
}

void AttemptRecord::end(v1::JobState state, const Error* error) {
  if (!events_) return;
  if (error && error->reason() == "NON_FINITE")
    events_->bad_step(step_ + 1, number_of(*error, "loss"), number_of(*error, "grad_norm"));
  if (error) events_->note(error->what(), step_);
  events_->end(state);
}

}  // namespace meshloom::control
