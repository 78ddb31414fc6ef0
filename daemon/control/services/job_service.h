// SPDX-License-Identifier: Apache-2.0
// JobService: submitting, listing, watching, cancelling, releasing and deleting jobs.
#pragma once

#include "daemon/control/jobs/admission.h"
#include "daemon/control/services/stream_host.h"
#include "daemon/control/stores/job_store.h"
#include "v1/job_service.grpc.pb.h"

namespace meshloom::control {

class JobServiceImpl final
    : public v1::JobService::WithCallbackMethod_WatchJob<v1::JobService::Service> {
 public:
  JobServiceImpl(JobStore& store, Admission& admission,
                 const StreamHost::Options& watches = {"watches of jobs", 64});

  grpc::Status SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override;
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::GetJobResponse* response) override;
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) override;
  grpc::Status CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                         v1::CancelJobResponse* response) override;
  grpc::Status ReleaseJob(grpc::ServerContext*, const v1::ReleaseJobRequest* request,
                          v1::ReleaseJobResponse* response) override;
  grpc::Status DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                         v1::DeleteJobResponse*) override;

 private:
  v1::SubmitJobResponse submit(const v1::SubmitJobRequest& request);

  JobStore& store_;
  Admission& admission_;
  StreamHost watches_;
};

}  // namespace meshloom::control
