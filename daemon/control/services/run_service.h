// SPDX-License-Identifier: Apache-2.0
// RunService: runs that clients drive step by step.
#pragma once

#include <memory>
#include <string>

#include "daemon/control/host/hold.h"
#include "daemon/control/runs/run_manager.h"
#include "daemon/control/services/call_host.h"
#include "daemon/control/services/client_service.h"
#include "daemon/control/services/run_holders.h"
#include "v1/run_service.grpc.pb.h"

namespace meshloom::control {

/// Calls that read files, read text or delete folders hold no thread of gRPC, and Heartbeat waits
/// for none.
using RunServiceBase = v1::RunService::WithCallbackMethod_CreateRun<
    v1::RunService::WithCallbackMethod_Sample<v1::RunService::WithCallbackMethod_DeleteState<
        v1::RunService::WithCallbackMethod_DeleteWeights<
            v1::RunService::WithCallbackMethod_DeleteRun<
                v1::RunService::WithCallbackMethod_Heartbeat<v1::RunService::Service>>>>>>;

class RunServiceImpl final : public RunServiceBase, public ClientService, public RunHolders {
 public:
  explicit RunServiceImpl(RunManager& runs) : runs_(runs) {}

  std::string own_open_run(const Caller& caller, const std::string& name) const override;
  Hold hold_lease(const Caller& caller, const std::string& name) const override;

  // Any door may call these handlers, which throw what is wrong with a request.
  std::shared_ptr<UnaryCall> create_run(const Caller& caller, const v1::CreateRunRequest& request,
                                        v1::CreateRunResponse* response);
  v1::GetRunResponse get_run(const Caller& caller, const v1::GetRunRequest& request);
  v1::ListRunsResponse list_runs(const Caller& caller, const v1::ListRunsRequest& request);
  v1::CloseRunResponse close_run(const Caller& caller, const v1::CloseRunRequest& request);
  std::shared_ptr<UnaryCall> delete_run(const Caller& caller, const v1::DeleteRunRequest& request);
  v1::HeartbeatResponse heartbeat(const Caller& caller, const v1::HeartbeatRequest& request);
  v1::ListStatesResponse list_states(const v1::ListStatesRequest& request);
  std::shared_ptr<UnaryCall> delete_state(const Caller& caller,
                                          const v1::DeleteStateRequest& request);
  std::shared_ptr<UnaryCall> delete_weights(const Caller& caller,
                                            const v1::DeleteWeightsRequest& request);
  /// A verb of a run, such as v1::ForwardRequest: any that is not a sample.
  template <typename Verb>
  v1::Operation submit(const Caller& caller, const Verb& verb) const {
    return own_run(caller, verb.id().run())->submit(verb);
  }
  std::shared_ptr<UnaryCall> sample(const Caller& caller, const v1::SampleRequest& request,
                                    v1::SampleResponse* response);

  // gRPC calls these adapters of the handlers.
  grpc::ServerUnaryReactor* CreateRun(grpc::CallbackServerContext* context,
                                      const v1::CreateRunRequest* request,
                                      v1::CreateRunResponse* response) override;
  grpc::Status GetRun(grpc::ServerContext* context, const v1::GetRunRequest* request,
                      v1::GetRunResponse* response) override;
  grpc::Status ListRuns(grpc::ServerContext* context, const v1::ListRunsRequest* request,
                        v1::ListRunsResponse* response) override;
  grpc::Status CloseRun(grpc::ServerContext* context, const v1::CloseRunRequest* request,
                        v1::CloseRunResponse* response) override;
  grpc::ServerUnaryReactor* DeleteRun(grpc::CallbackServerContext* context,
                                      const v1::DeleteRunRequest* request,
                                      v1::DeleteRunResponse* response) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override;
  grpc::Status ListStates(grpc::ServerContext* context, const v1::ListStatesRequest* request,
                          v1::ListStatesResponse* response) override;
  grpc::ServerUnaryReactor* DeleteState(grpc::CallbackServerContext* context,
                                        const v1::DeleteStateRequest* request,
                                        v1::DeleteStateResponse* response) override;

  grpc::Status ForwardBackward(grpc::ServerContext* context,
                               const v1::ForwardBackwardRequest* request,
                               v1::ForwardBackwardResponse* response) override;
  grpc::Status Forward(grpc::ServerContext* context, const v1::ForwardRequest* request,
                       v1::ForwardResponse* response) override;
  grpc::Status OptimStep(grpc::ServerContext* context, const v1::OptimStepRequest* request,
                         v1::OptimStepResponse* response) override;
  grpc::Status SaveState(grpc::ServerContext* context, const v1::SaveStateRequest* request,
                         v1::SaveStateResponse* response) override;
  grpc::Status LoadState(grpc::ServerContext* context, const v1::LoadStateRequest* request,
                         v1::LoadStateResponse* response) override;
  grpc::Status SaveWeights(grpc::ServerContext* context, const v1::SaveWeightsRequest* request,
                           v1::SaveWeightsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteWeights(grpc::CallbackServerContext* context,
                                          const v1::DeleteWeightsRequest* request,
                                          v1::DeleteWeightsResponse* response) override;
  grpc::Status GetParameters(grpc::ServerContext* context, const v1::GetParametersRequest* request,
                             v1::GetParametersResponse* response) override;
  grpc::Status SetParameters(grpc::ServerContext* context, const v1::SetParametersRequest* request,
                             v1::SetParametersResponse* response) override;
  grpc::Status Skip(grpc::ServerContext* context, const v1::SkipRequest* request,
                    v1::SkipResponse* response) override;
  grpc::ServerUnaryReactor* Sample(grpc::CallbackServerContext* context,
                                   const v1::SampleRequest* request,
                                   v1::SampleResponse* response) override;

  /// Calls that wait end. Does not wait.
  void end_calls() override;
  /// After the server's shutdown.
  void stop() override;

 private:
  SampleOrder order_of(const v1::SampleRequest& request, const RunSession& run,
                       const text::StopCheck& stop) const;
  /// The run of that name, if the call has its token.
  std::shared_ptr<RunSession> own_run(const Caller& caller, const std::string& name) const;
  template <typename Verb, typename Response>
  grpc::Status serve_verb(const grpc::ServerContext& context, const Verb& verb,
                          Response* response) const;

  RunManager& runs_;
  /// Gives no way: the thread that drives a run is started by it.
  CallHost beginnings_{{.what = "creations of runs", .threads = 4, .gives_way = false}};
  CallHost samples_{
      {.what = "orders of samples", .threads = 4, .most_calls = 256, .gives_way = false}};
  CallHost deletions_{{"deletions of states and weights"}};
};

}  // namespace meshloom::control
