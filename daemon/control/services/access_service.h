// SPDX-License-Identifier: Apache-2.0
// AccessService: whose objects are and who else may look at them, how much owners have, and who
// called what.
#pragma once

#include <memory>

#include "daemon/control/access/audit_log.h"
#include "daemon/control/runs/run_manager.h"
#include "daemon/control/services/client_service.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/services/stream_host.h"
#include "daemon/control/services/usage.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/model_store.h"
#include "daemon/control/stores/plan_store.h"
#include "v1/access_service.grpc.pb.h"

namespace meshloom::control {

class AccessServiceImpl final
    : public v1::AccessService::WithCallbackMethod_ReadAudit<v1::AccessService::Service>,
      public ClientService {
 public:
  struct World {
    JobStore& jobs;
    RunManager& runs;
    ModelStore& models;
    PlanStore& plans;
    const Usage& usage;
    const AuditLog& audit;
  };
  explicit AccessServiceImpl(const World& world) : world_(world) {}

  // Any door may call these handlers, which throw what is wrong with a request.
  v1::ShareObjectResponse share_object(const Caller& caller, const v1::ShareObjectRequest& request);
  v1::GiveJobResponse give_job(const Caller& caller, const v1::GiveJobRequest& request);
  v1::GetUsageResponse get_usage(const Caller& caller);
  std::shared_ptr<Stream<v1::ReadAuditResponse>> read_audit(const Caller& caller,
                                                            const v1::ReadAuditRequest& request);

  // gRPC calls these adapters of the handlers.
  grpc::Status ShareObject(grpc::ServerContext* context, const v1::ShareObjectRequest* request,
                           v1::ShareObjectResponse* response) override;
  grpc::Status GiveJob(grpc::ServerContext* context, const v1::GiveJobRequest* request,
                       v1::GiveJobResponse* response) override;
  grpc::Status GetUsage(grpc::ServerContext* context, const v1::GetUsageRequest* request,
                        v1::GetUsageResponse* response) override;
  grpc::ServerWriteReactor<v1::ReadAuditResponse>* ReadAudit(
      grpc::CallbackServerContext* context, const v1::ReadAuditRequest* request) override;

  /// After the server's shutdown.
  void stop() override { reads_.stop(); }

 private:
  const World world_;
  StreamHost reads_{{"reads of the audit log", 4, 1}};
};

}  // namespace meshloom::control
