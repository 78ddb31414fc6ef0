// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/evaluate_service.h"

#include "daemon/control/services/grpc_door.h"
namespace meshloom::control {

EvaluateServiceImpl::EvaluateServiceImpl(const EvaluationServices& services)
    : world_{services, stopping_, next_} {
  std::error_code ignored;
  std::filesystem::remove_all(services.state.root() / "evaluations", ignored);
}

void EvaluateServiceImpl::stop() {
  request_stop();
  evaluations_.stop();
}

std::shared_ptr<Stream<v1::EvaluateResponse>> EvaluateServiceImpl::evaluate(
    const Caller& caller, const v1::EvaluateRequest& request) {
  return std::make_shared<EvaluateStream>(evaluations_, caller, world_, request);
}

// gRPC calls these adapters of the handlers.

grpc::ServerWriteReactor<v1::EvaluateResponse>* EvaluateServiceImpl::Evaluate(
    grpc::CallbackServerContext* context, const v1::EvaluateRequest* request) {
  return serve_stream<v1::EvaluateResponse>(
      gate(), *context, *request, [&](const Caller& caller) { return evaluate(caller, *request); });
}

}  // namespace meshloom::control
