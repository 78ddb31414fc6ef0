// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/job_service.h"

#include <map>

#include "daemon/base/config.h"
#include "daemon/base/field_error.h"
#include "daemon/base/states.h"
#include "daemon/control/jobs/token_channel.h"
#include "daemon/control/net/status.h"
#include "daemon/control/services/job_view.h"
#include "daemon/control/services/line_streams.h"
#include "daemon/control/services/watch_stream.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/labels.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/request_key.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kLargestSpec = 256 << 10;  // a job is stored and sent whole

/// What is drawn is kept with the job, at least a byte a token.
void check_samples(const v1::SampleConfig& sample) {
  const int first = sample.prompt().empty() && sample.token_ids().empty() ? 0 : 1;
  const std::int64_t tokens =
      std::int64_t{sample.params().max_tokens()} * (first + sample.prompts_size());
  if (tokens > static_cast<std::int64_t>(kMostSampleBytes))
    throw ResourceExhausted(
        fmt::format("run.sample.params.max_tokens: {} prompts times {} tokens are {}, of which at "
                    "most {} bytes are kept; draw fewer tokens or give fewer prompts",
                    first + sample.prompts_size(), sample.params().max_tokens(), tokens,
                    kMostSampleBytes),
        "SAMPLES_TOO_LARGE",
        {{"field", "run.sample.params.max_tokens"},
         {"tokens", std::to_string(tokens)},
         {"limit", std::to_string(kMostSampleBytes)}});
}

/// What the run's own checks do not know: names that become part of a path here.
void check_spec(const v1::JobSpec& spec) {
  if (!spec.name().empty()) {
    try {
      parse_job_name(spec.name());
    } catch (const InvalidArgument& error) {
      base::refuse_field("name", "{}", error.what());
    }
    if (spec.name().find('/') != std::string::npos)
      base::refuse_field("name", "must not have a slash");
  }
  if (!spec.has_run()) base::refuse_field("run", "is missing: it says what to train");
  check_labels(spec.labels(), "labels");
  if (spec.step_limit() < 0) base::refuse_field("step_limit", "{} is negative", spec.step_limit());
  if (spec.time_limit_seconds() < 0)
    base::refuse_field("time_limit_seconds", "{} is negative", spec.time_limit_seconds());
  if (spec.ByteSizeLong() > kLargestSpec)
    base::refuse_field("run", "the job takes {} bytes, at most {} are allowed", spec.ByteSizeLong(),
                       kLargestSpec);
  if (const int tokens = spec.run().sample().params().max_tokens(); tokens > kMostTokens)
    base::refuse_field("run.sample.params.max_tokens", "{} is more than {}", tokens, kMostTokens);
  check_samples(spec.run().sample());
  const auto& hf_folder = spec.run().export_().hf_folder();
  if (!hf_folder.empty() && !is_export_name(hf_folder))
    base::refuse_field(
        "run.export.hf_folder",
        "\"{}\" is no name for an export, expected [A-Za-z0-9][A-Za-z0-9._-]{{0,62}} and "
        "none that the daemon gives itself: checkpoints, step-N, hf-step-*, *.new, "
        "resolved.yaml, metrics.jsonl, tensorboard, job.log",
        hf_folder.substr(0, 80));
}

/// What the client `meshloom` makes of a file with this text.
v1::ReadConfigResponse read_job_text(const v1::ReadConfigRequest& request) {
  constexpr std::size_t kLongestName = 4096;
  if (request.text().size() > kLargestSpec)
    base::refuse_field("text", "has {} bytes, at most {} are read", request.text().size(),
                       kLargestSpec);
  if (request.name().size() > kLongestName)
    base::refuse_field("name", "has {} bytes, at most {} are allowed", request.name().size(),
                       kLongestName);
  base::JobFile file =
      base::parse_job_file(request.text(), request.name().empty() ? "config" : request.name());
  v1::ReadConfigResponse response;
  *response.mutable_spec() = std::move(file.spec);
  response.mutable_lines()->insert(file.lines.begin(), file.lines.end());
  return response;
}

}  // namespace

JobServiceImpl::JobServiceImpl(JobStore& store, ConfigResolver& resolver, const StateDir& state,
                               const StreamHost::Options& watches, const RanksQueue* queue)
    : store_(store), resolver_(resolver), state_(state), watches_(watches), queue_(queue) {}

v1::SubmitJobResponse JobServiceImpl::submit(const v1::SubmitJobRequest& request,
                                             const Caller& caller) {
  // A dry run has the key of what it tries out: after the submission with its id it is a repeat,
  // too.
  v1::SubmitJobRequest submission = request;
  submission.clear_validate_only();
  const RequestKey key = request_key_of("SubmitJob", submission, caller);
  v1::SubmitJobResponse response;
  v1::Job& job = *response.mutable_job();
  if (const auto first = store_.find_request(key)) {
    job = *first;
    return response;
  }
  check_spec(request.spec());
  const Admitted admitted = resolver_.admit(request.spec());
  for (const std::string& warning : admitted.warnings) response.add_warnings(warning);
  if (admitted.disk) *response.mutable_disk() = *admitted.disk;
  if (!request.validate_only()) {
    job = store_.submit(request.spec(), admitted.resolved, key);
    return response;
  }
  store_.check_submission(request.spec(), caller.identity());
  *job.mutable_spec() = request.spec();
  *job.mutable_resolved() = admitted.resolved;
  job.set_steps(end_step(settings_of(admitted.resolved), request.spec().step_limit()));
  std::vector<std::string> doubts;
  *response.mutable_estimate() = resolver_.estimate(admitted.resolved, &doubts);
  for (std::string& doubt : doubts) response.add_warnings(std::move(doubt));
  return response;
}

std::shared_ptr<UnaryCall> JobServiceImpl::submit_job(const Caller& caller,
                                                      const v1::SubmitJobRequest& request,
                                                      v1::SubmitJobResponse* response) {
  return submissions_.call("SubmitJob", caller, request,
                           [caller, &request, response, this](const CallHost::GoOn&) {
                             *response = submit(request, caller);
                           });
}

std::shared_ptr<UnaryCall> JobServiceImpl::read_config(const Caller& caller,
                                                       const v1::ReadConfigRequest& request,
                                                       v1::ReadConfigResponse* response) {
  return submissions_.call(
      "ReadConfig", caller, request,
      [&request, response](const CallHost::GoOn&) { *response = read_job_text(request); });
}

v1::GetJobResponse JobServiceImpl::get_job(const Caller& caller, const v1::GetJobRequest& request) {
  v1::GetJobResponse response;
  *response.mutable_job() = store_.get(parse_job_name(request.name()));
  if (queue_ != nullptr) queue_->tell(response.mutable_job());
  hide_from(caller.identity(), response.mutable_job());
  return response;
}

v1::ListJobsResponse JobServiceImpl::list_jobs(const Caller& caller,
                                               const v1::ListJobsRequest& request) {
  v1::ListJobsResponse response;
  constexpr int kMostJobs = 500;  // of a few KiB each: a page stays below the message limit
  // A token is of the same list with the same filter.
  std::string scope = "jobs";
  const std::map<std::string, std::string> sorted(request.labels().begin(), request.labels().end());
  for (const auto& [key, value] : sorted) scope += fmt::format(";{}={}", key, value);
  const auto position = parse_page_token(scope, request.page_token());
  auto [jobs, next] = store_.list(position, page_size_of(request, kMostJobs), request.labels(),
                                  shown_to(caller.identity(), request.all(), true));
  for (auto& job : jobs) {
    hide_from(caller.identity(), &job);
    *response.add_jobs() = std::move(job);
  }
  if (next > 0) response.set_next_page_token(make_page_token(scope, next));
  return response;
}

std::shared_ptr<Stream<v1::WatchJobResponse>> JobServiceImpl::watch_job(
    const Caller& caller, const v1::WatchJobRequest& request) {
  return std::make_shared<WatchStream>(watches_, caller, store_, request);
}

v1::CancelJobResponse JobServiceImpl::cancel_job(const Caller& caller,
                                                 const v1::CancelJobRequest& request) {
  v1::CancelJobResponse response;
  const RequestKey key = request_key_of("CancelJob", request, caller);
  *response.mutable_job() = store_.cancel(parse_job_name(request.name()), key);
  spdlog::info("job {}: a client cancels it", parse_job_name(request.name()));
  return response;
}

v1::ReleaseJobResponse JobServiceImpl::release_job(const Caller& caller,
                                                   const v1::ReleaseJobRequest& request) {
  v1::ReleaseJobResponse response;
  const RequestKey key = request_key_of("ReleaseJob", request, caller);
  *response.mutable_job() = store_.release(parse_job_name(request.name()), key);
  spdlog::info("job {}: a client releases it", parse_job_name(request.name()));
  return response;
}

std::shared_ptr<UnaryCall> JobServiceImpl::delete_job(const Caller& caller,
                                                      const v1::DeleteJobRequest& request) {
  return deletions_.call(
      "DeleteJob", caller, request, [caller, &request, this](const CallHost::GoOn&) {
        const RequestKey key = request_key_of("DeleteJob", request, caller);
        store_.remove(parse_job_name(request.name()), key);
        spdlog::info("job {}: a client deletes it", parse_job_name(request.name()));
      });
}

v1::PauseJobResponse JobServiceImpl::pause_job(const Caller& caller,
                                               const v1::PauseJobRequest& request) {
  v1::PauseJobResponse response;
  const RequestKey key = request_key_of("PauseJob", request, caller);
  const std::string id = parse_job_name(request.name());
  *response.mutable_job() = store_.pause(id, v1::PAUSE_CODE_CLIENT, key);
  spdlog::info("job {}: a client pauses it", id);
  return response;
}

v1::ResumeJobResponse JobServiceImpl::resume_job(const Caller& caller,
                                                 const v1::ResumeJobRequest& request) {
  v1::ResumeJobResponse response;
  const RequestKey key = request_key_of("ResumeJob", request, caller);
  const std::string id = parse_job_name(request.name());
  *response.mutable_job() = store_.resume(id, key);
  spdlog::info("job {}: a client resumes it", id);
  return response;
}

v1::MoveJobResponse JobServiceImpl::move_job(const Caller& caller,
                                             const v1::MoveJobRequest& request) {
  v1::MoveJobResponse response;
  const RequestKey key = request_key_of("MoveJob", request, caller);
  const std::string id = parse_job_name(request.name());
  v1::Job& job = *response.mutable_job();
  if (request.has_before())
    job = store_.move(id, JobStore::Place::kBefore, parse_job_name(request.before()), key);
  else if (request.has_after())
    job = store_.move(id, JobStore::Place::kAfter, parse_job_name(request.after()), key);
  else if (request.first())
    job = store_.move(id, JobStore::Place::kFirst, "", key);
  else
    base::refuse_field("place", "give first: true, before or after");
  return response;
}

v1::LabelJobResponse JobServiceImpl::label_job(const Caller& caller,
                                               const v1::LabelJobRequest& request) {
  v1::LabelJobResponse response;
  const RequestKey key = request_key_of("LabelJob", request, caller);
  *response.mutable_job() = store_.label(parse_job_name(request.name()), request.set(),
                                         {request.remove().begin(), request.remove().end()}, key);
  return response;
}

v1::Job JobServiceImpl::edit(const v1::EditJobRequest& request, const Caller& caller) {
  const RequestKey key = request_key_of("EditJob", request, caller);
  if (const auto first = store_.find_request(key)) return *first;
  const std::string id = parse_job_name(request.name());
  const v1::Job job = store_.get(id);
  v1::JobSpec before = job.spec();
  *before.mutable_run() = job.resolved();
  v1::JobSpec after =
      edited_spec(before, request.spec(), {request.fields().begin(), request.fields().end()});
  if (!base::is_final(job.state())) *after.mutable_run() = resolver_.admit_settings(after.run());
  return store_.edit(id, before, after, key);
}

std::shared_ptr<UnaryCall> JobServiceImpl::edit_job(const Caller& caller,
                                                    const v1::EditJobRequest& request,
                                                    v1::EditJobResponse* response) {
  return submissions_.call(
      "EditJob", caller, request, [caller, &request, response, this](const CallHost::GoOn&) {
        *response->mutable_job() = edit(request, caller);
        spdlog::info("job {}: a client edits it", parse_job_name(request.name()));
      });
}

std::shared_ptr<Stream<v1::StreamLogsResponse>> JobServiceImpl::stream_logs(
    const Caller& caller, const v1::StreamLogsRequest& request) {
  return std::make_shared<LogStream>(watches_, caller, store_, state_, request);
}

std::shared_ptr<Stream<v1::StreamMetricsResponse>> JobServiceImpl::stream_metrics(
    const Caller& caller, const v1::StreamMetricsRequest& request) {
  return std::make_shared<MetricsStream>(watches_, caller, store_, state_, request);
}

void JobServiceImpl::end_calls() {
  submissions_.request_stop();
  deletions_.request_stop();
}

void JobServiceImpl::stop() {
  watches_.stop();
  submissions_.stop();
  deletions_.stop();
}

}  // namespace meshloom::control
