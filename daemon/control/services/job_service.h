// SPDX-License-Identifier: Apache-2.0
// JobService: what clients do with jobs.
#pragma once

#include <memory>

#include "daemon/control/jobs/config_resolver.h"
#include "daemon/control/runs/ranks_queue.h"
#include "daemon/control/services/call_host.h"
#include "daemon/control/services/client_service.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/services/stream_host.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/state_dir.h"
#include "v1/job_service.grpc.pb.h"

namespace meshloom::control {

/// Calls that stream, look at files or delete them hold no thread of gRPC, and GetJob waits for
/// none.
using JobServiceBase = v1::JobService::WithCallbackMethod_WatchJob<
    v1::JobService::WithCallbackMethod_StreamLogs<v1::JobService::WithCallbackMethod_StreamMetrics<
        v1::JobService::WithCallbackMethod_SubmitJob<v1::JobService::WithCallbackMethod_ReadConfig<
            v1::JobService::WithCallbackMethod_EditJob<v1::JobService::WithCallbackMethod_DeleteJob<
                v1::JobService::WithCallbackMethod_GetJob<v1::JobService::Service>>>>>>>>;

class JobServiceImpl final : public JobServiceBase, public ClientService {
 public:
  static StreamHost::Options default_watches() { return {"watches of jobs", 64}; }
  JobServiceImpl(JobStore& store, ConfigResolver& resolver, const StateDir& state,
                 const StreamHost::Options& watches = default_watches(),
                 const RanksQueue* queue = nullptr);

  // Any door may call these handlers, which throw what is wrong with a request.
  std::shared_ptr<UnaryCall> submit_job(const Caller& caller, const v1::SubmitJobRequest& request,
                                        v1::SubmitJobResponse* response);
  std::shared_ptr<UnaryCall> read_config(const Caller& caller, const v1::ReadConfigRequest& request,
                                         v1::ReadConfigResponse* response);
  v1::GetJobResponse get_job(const Caller& caller, const v1::GetJobRequest& request);
  v1::ListJobsResponse list_jobs(const Caller& caller, const v1::ListJobsRequest& request);
  std::shared_ptr<Stream<v1::WatchJobResponse>> watch_job(const Caller& caller,
                                                          const v1::WatchJobRequest& request);
  v1::CancelJobResponse cancel_job(const Caller& caller, const v1::CancelJobRequest& request);
  v1::ReleaseJobResponse release_job(const Caller& caller, const v1::ReleaseJobRequest& request);
  std::shared_ptr<UnaryCall> delete_job(const Caller& caller, const v1::DeleteJobRequest& request);
  v1::PauseJobResponse pause_job(const Caller& caller, const v1::PauseJobRequest& request);
  v1::ResumeJobResponse resume_job(const Caller& caller, const v1::ResumeJobRequest& request);
  v1::MoveJobResponse move_job(const Caller& caller, const v1::MoveJobRequest& request);
  v1::LabelJobResponse label_job(const Caller& caller, const v1::LabelJobRequest& request);
  std::shared_ptr<UnaryCall> edit_job(const Caller& caller, const v1::EditJobRequest& request,
                                      v1::EditJobResponse* response);
  std::shared_ptr<Stream<v1::StreamLogsResponse>> stream_logs(const Caller& caller,
                                                              const v1::StreamLogsRequest& request);
  std::shared_ptr<Stream<v1::StreamMetricsResponse>> stream_metrics(
      const Caller& caller, const v1::StreamMetricsRequest& request);

  // gRPC calls these adapters of the handlers.
  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request,
                                      v1::SubmitJobResponse* response) override;
  grpc::ServerUnaryReactor* ReadConfig(grpc::CallbackServerContext* context,
                                       const v1::ReadConfigRequest* request,
                                       v1::ReadConfigResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) override;
  grpc::Status CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                         v1::CancelJobResponse* response) override;
  grpc::Status ReleaseJob(grpc::ServerContext*, const v1::ReleaseJobRequest* request,
                          v1::ReleaseJobResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;
  grpc::Status PauseJob(grpc::ServerContext*, const v1::PauseJobRequest* request,
                        v1::PauseJobResponse* response) override;
  grpc::Status ResumeJob(grpc::ServerContext*, const v1::ResumeJobRequest* request,
                         v1::ResumeJobResponse* response) override;
  grpc::Status MoveJob(grpc::ServerContext*, const v1::MoveJobRequest* request,
                       v1::MoveJobResponse* response) override;
  grpc::Status LabelJob(grpc::ServerContext*, const v1::LabelJobRequest* request,
                        v1::LabelJobResponse* response) override;
  grpc::ServerUnaryReactor* EditJob(grpc::CallbackServerContext* context,
                                    const v1::EditJobRequest* request,
                                    v1::EditJobResponse* response) override;
  grpc::ServerWriteReactor<v1::StreamLogsResponse>* StreamLogs(
      grpc::CallbackServerContext* context, const v1::StreamLogsRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamMetricsResponse>* StreamMetrics(
      grpc::CallbackServerContext* context, const v1::StreamMetricsRequest* request) override;

  /// Calls that wait end, those that look at files soon. Does not wait.
  void end_calls() override;
  /// After the server's shutdown.
  void stop() override;

 private:
  v1::SubmitJobResponse submit(const v1::SubmitJobRequest& request, const Caller& caller);
  v1::Job edit(const v1::EditJobRequest& request, const Caller& caller);

  JobStore& store_;
  ConfigResolver& resolver_;
  const StateDir& state_;
  StreamHost watches_;
  const RanksQueue* const queue_;  ///< null: a job is not told behind whom it waits
  CallHost submissions_{{.what = "submissions and edits of jobs", .threads = 4}};
  CallHost deletions_{{"deletions of jobs"}};
};

}  // namespace meshloom::control
