// SPDX-License-Identifier: Apache-2.0
// OperationService: what became of the verbs of runs.
#pragma once

#include <memory>

#include "daemon/control/host/steady_timer.h"
#include "daemon/control/runs/run_manager.h"
#include "daemon/control/services/client_service.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/services/stream_host.h"
#include "daemon/control/services/unary_call.h"
#include "v1/operation_service.grpc.pb.h"

namespace meshloom::control {

class OperationServiceImpl final
    : public v1::OperationService::WithCallbackMethod_WaitOperation<
          v1::OperationService::WithCallbackMethod_WatchOperation<
              v1::OperationService::WithCallbackMethod_ReadResult<v1::OperationService::Service>>>,
      public ClientService {
 public:
  OperationServiceImpl(RunManager& runs,
                       const StreamHost::Options& reads = {"reads of results", 64, 2},
                       const StreamHost::Options& watches = {"watches of operations", 512, 2});

  // Any door may call these handlers, which throw what is wrong with a request.
  v1::GetOperationResponse get_operation(const Caller& caller,
                                         const v1::GetOperationRequest& request);
  std::shared_ptr<UnaryCall> wait_operation(const Caller& caller,
                                            const v1::WaitOperationRequest& request,
                                            v1::WaitOperationResponse* response);
  std::shared_ptr<Stream<v1::WatchOperationResponse>> watch_operation(
      const Caller& caller, const v1::WatchOperationRequest& request);
  v1::ListOperationsResponse list_operations(const Caller& caller,
                                             const v1::ListOperationsRequest& request);
  v1::CancelOperationResponse cancel_operation(const Caller& caller,
                                               const v1::CancelOperationRequest& request);
  std::shared_ptr<Stream<v1::ReadResultResponse>> read_result(const Caller& caller,
                                                              const v1::ReadResultRequest& request);

  // gRPC calls these adapters of the handlers.
  grpc::Status GetOperation(grpc::ServerContext* context, const v1::GetOperationRequest* request,
                            v1::GetOperationResponse* response) override;
  grpc::ServerUnaryReactor* WaitOperation(grpc::CallbackServerContext* context,
                                          const v1::WaitOperationRequest* request,
                                          v1::WaitOperationResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchOperationResponse>* WatchOperation(
      grpc::CallbackServerContext* context, const v1::WatchOperationRequest* request) override;
  grpc::Status ListOperations(grpc::ServerContext* context,
                              const v1::ListOperationsRequest* request,
                              v1::ListOperationsResponse* response) override;
  grpc::Status CancelOperation(grpc::ServerContext* context,
                               const v1::CancelOperationRequest* request,
                               v1::CancelOperationResponse* response) override;
  grpc::ServerWriteReactor<v1::ReadResultResponse>* ReadResult(
      grpc::CallbackServerContext* context, const v1::ReadResultRequest* request) override;

  /// After the server's shutdown: the runs may end then.
  void stop() override {
    reads_.stop();
    watches_.stop();
    timer_.stop();
  }

 private:
  RunManager& runs_;
  StreamHost reads_;
  StreamHost watches_;
  SteadyTimer timer_;  ///< of calls that wait
};

}  // namespace meshloom::control
