// SPDX-License-Identifier: Apache-2.0
// RunService as gRPC calls it.
#include "daemon/control/net/status.h"
#include "daemon/control/services/grpc_door.h"
#include "daemon/control/services/run_service.h"

namespace meshloom::control {

template <typename Verb, typename Response>
grpc::Status RunServiceImpl::serve_verb(const grpc::ServerContext& context, const Verb& verb,
                                        Response* response) const {
  return answer_verb(gate(), context, verb, response, [&](const Caller& caller) {
    *response->mutable_operation() = submit(caller, verb);
  });
}

grpc::ServerUnaryReactor* RunServiceImpl::CreateRun(grpc::CallbackServerContext* context,
                                                    const v1::CreateRunRequest* request,
                                                    v1::CreateRunResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return create_run(caller, *request, response); });
}

grpc::Status RunServiceImpl::GetRun(grpc::ServerContext* context, const v1::GetRunRequest* request,
                                    v1::GetRunResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = get_run(caller, *request); });
}

grpc::Status RunServiceImpl::ListRuns(grpc::ServerContext* context,
                                      const v1::ListRunsRequest* request,
                                      v1::ListRunsResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = list_runs(caller, *request); });
}

grpc::Status RunServiceImpl::CloseRun(grpc::ServerContext* context,
                                      const v1::CloseRunRequest* request,
                                      v1::CloseRunResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = close_run(caller, *request); });
}

grpc::ServerUnaryReactor* RunServiceImpl::DeleteRun(grpc::CallbackServerContext* context,
                                                    const v1::DeleteRunRequest* request,
                                                    v1::DeleteRunResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return delete_run(caller, *request); });
}

grpc::ServerUnaryReactor* RunServiceImpl::Heartbeat(grpc::CallbackServerContext* context,
                                                    const v1::HeartbeatRequest* request,
                                                    v1::HeartbeatResponse* response) {
  return serve_at_once(gate(), *context, *request, response,
                       [&](const Caller& caller) { *response = heartbeat(caller, *request); });
}

grpc::Status RunServiceImpl::ListStates(grpc::ServerContext* context,
                                        const v1::ListStatesRequest* request,
                                        v1::ListStatesResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller&) { *response = list_states(*request); });
}

grpc::ServerUnaryReactor* RunServiceImpl::DeleteState(grpc::CallbackServerContext* context,
                                                      const v1::DeleteStateRequest* request,
                                                      v1::DeleteStateResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return delete_state(caller, *request); });
}

grpc::ServerUnaryReactor* RunServiceImpl::DeleteWeights(grpc::CallbackServerContext* context,
                                                        const v1::DeleteWeightsRequest* request,
                                                        v1::DeleteWeightsResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return delete_weights(caller, *request); });
}

grpc::Status RunServiceImpl::ForwardBackward(grpc::ServerContext* context,
                                             const v1::ForwardBackwardRequest* request,
                                             v1::ForwardBackwardResponse* response) {
  return serve_verb(*context, *request, response);
}

grpc::Status RunServiceImpl::Forward(grpc::ServerContext* context,
                                     const v1::ForwardRequest* request,
                                     v1::ForwardResponse* response) {
  return serve_verb(*context, *request, response);
}

grpc::Status RunServiceImpl::OptimStep(grpc::ServerContext* context,
                                       const v1::OptimStepRequest* request,
                                       v1::OptimStepResponse* response) {
  return serve_verb(*context, *request, response);
}

grpc::Status RunServiceImpl::SaveState(grpc::ServerContext* context,
                                       const v1::SaveStateRequest* request,
                                       v1::SaveStateResponse* response) {
  return serve_verb(*context, *request, response);
}

grpc::Status RunServiceImpl::LoadState(grpc::ServerContext* context,
                                       const v1::LoadStateRequest* request,
                                       v1::LoadStateResponse* response) {
  return serve_verb(*context, *request, response);
}

grpc::Status RunServiceImpl::SaveWeights(grpc::ServerContext* context,
                                         const v1::SaveWeightsRequest* request,
                                         v1::SaveWeightsResponse* response) {
  return serve_verb(*context, *request, response);
}

grpc::Status RunServiceImpl::GetParameters(grpc::ServerContext* context,
                                           const v1::GetParametersRequest* request,
                                           v1::GetParametersResponse* response) {
  return serve_verb(*context, *request, response);
}

grpc::Status RunServiceImpl::SetParameters(grpc::ServerContext* context,
                                           const v1::SetParametersRequest* request,
                                           v1::SetParametersResponse* response) {
  return serve_verb(*context, *request, response);
}

grpc::Status RunServiceImpl::Skip(grpc::ServerContext* context, const v1::SkipRequest* request,
                                  v1::SkipResponse* response) {
  return serve_verb(*context, *request, response);
}

grpc::ServerUnaryReactor* RunServiceImpl::Sample(grpc::CallbackServerContext* context,
                                                 const v1::SampleRequest* request,
                                                 v1::SampleResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return sample(caller, *request, response); });
}

}  // namespace meshloom::control
