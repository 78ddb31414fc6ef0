// SPDX-License-Identifier: Apache-2.0
// JobService as gRPC calls it.
#include "daemon/control/net/status.h"
#include "daemon/control/services/grpc_door.h"
#include "daemon/control/services/job_service.h"

namespace meshloom::control {

grpc::ServerUnaryReactor* JobServiceImpl::SubmitJob(grpc::CallbackServerContext* context,
                                                    const v1::SubmitJobRequest* request,
                                                    v1::SubmitJobResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return submit_job(caller, *request, response); });
}

grpc::ServerUnaryReactor* JobServiceImpl::ReadConfig(grpc::CallbackServerContext* context,
                                                     const v1::ReadConfigRequest* request,
                                                     v1::ReadConfigResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return read_config(caller, *request, response); });
}

grpc::ServerUnaryReactor* JobServiceImpl::GetJob(grpc::CallbackServerContext* context,
                                                 const v1::GetJobRequest* request,
                                                 v1::GetJobResponse* response) {
  return serve_at_once(gate(), *context, *request, response,
                       [&](const Caller& caller) { *response = get_job(caller, *request); });
}

grpc::Status JobServiceImpl::ListJobs(grpc::ServerContext* context,
                                      const v1::ListJobsRequest* request,
                                      v1::ListJobsResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = list_jobs(caller, *request); });
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* JobServiceImpl::WatchJob(
    grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) {
  return serve_stream<v1::WatchJobResponse>(gate(), *context, *request, [&](const Caller& caller) {
    return watch_job(caller, *request);
  });
}

grpc::Status JobServiceImpl::CancelJob(grpc::ServerContext* context,
                                       const v1::CancelJobRequest* request,
                                       v1::CancelJobResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = cancel_job(caller, *request); });
}

grpc::Status JobServiceImpl::ReleaseJob(grpc::ServerContext* context,
                                        const v1::ReleaseJobRequest* request,
                                        v1::ReleaseJobResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = release_job(caller, *request); });
}

grpc::ServerUnaryReactor* JobServiceImpl::DeleteJob(grpc::CallbackServerContext* context,
                                                    const v1::DeleteJobRequest* request,
                                                    v1::DeleteJobResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return delete_job(caller, *request); });
}

grpc::Status JobServiceImpl::PauseJob(grpc::ServerContext* context,
                                      const v1::PauseJobRequest* request,
                                      v1::PauseJobResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = pause_job(caller, *request); });
}

grpc::Status JobServiceImpl::ResumeJob(grpc::ServerContext* context,
                                       const v1::ResumeJobRequest* request,
                                       v1::ResumeJobResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = resume_job(caller, *request); });
}

grpc::Status JobServiceImpl::MoveJob(grpc::ServerContext* context,
                                     const v1::MoveJobRequest* request,
                                     v1::MoveJobResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = move_job(caller, *request); });
}

grpc::Status JobServiceImpl::LabelJob(grpc::ServerContext* context,
                                      const v1::LabelJobRequest* request,
                                      v1::LabelJobResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = label_job(caller, *request); });
}

grpc::ServerUnaryReactor* JobServiceImpl::EditJob(grpc::CallbackServerContext* context,
                                                  const v1::EditJobRequest* request,
                                                  v1::EditJobResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return edit_job(caller, *request, response); });
}

grpc::ServerWriteReactor<v1::StreamLogsResponse>* JobServiceImpl::StreamLogs(
    grpc::CallbackServerContext* context, const v1::StreamLogsRequest* request) {
  return serve_stream<v1::StreamLogsResponse>(
      gate(), *context, *request,
      [&](const Caller& caller) { return stream_logs(caller, *request); });
}

grpc::ServerWriteReactor<v1::StreamMetricsResponse>* JobServiceImpl::StreamMetrics(
    grpc::CallbackServerContext* context, const v1::StreamMetricsRequest* request) {
  return serve_stream<v1::StreamMetricsResponse>(
      gate(), *context, *request,
      [&](const Caller& caller) { return stream_metrics(caller, *request); });
}

}  // namespace meshloom::control
