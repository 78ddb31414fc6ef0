// SPDX-License-Identifier: Apache-2.0
// JobService: submitting, listing, watching and cancelling jobs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/control/job_store.h"
#include "daemon/control/slots.h"
#include "v1/job_service.grpc.pb.h"

namespace meshloom::control {

class JobServiceImpl final : public v1::JobService::Service {
 public:
  /// Fills in defaults and checks a config against ranks, data and what this build offers.
  using Resolve = std::function<v1::RunConfig(const v1::RunConfig&)>;

  /// What may be a mistake in a config that was resolved.
  using Warn = std::function<std::vector<std::string>(const v1::RunConfig&)>;

  JobServiceImpl(JobStore& store, Resolve resolve, Warn warn = {});

  grpc::Status SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override;
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::GetJobResponse* response) override;
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::WatchJobResponse>* writer) override;
  grpc::Status CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                         v1::CancelJobResponse* response) override;

 private:
  v1::SubmitJobResponse submit(const v1::SubmitJobRequest& request);
  void watch(grpc::ServerContext& context, const v1::WatchJobRequest& request,
             grpc::ServerWriter<v1::WatchJobResponse>& writer);

  JobStore& store_;
  Resolve resolve_;
  Warn warn_;
  Slots watchers_;
};

}  // namespace meshloom::control
