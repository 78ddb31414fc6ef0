// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/evaluate_service.h"

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

grpc::ServerWriteReactor<v1::EvaluateResponse>* EvaluateServiceImpl::Evaluate(
    grpc::CallbackServerContext* context, const v1::EvaluateRequest* request) {
  return std::make_shared<EvaluateStream>(evaluations_, *context, world_, *request)->open();
}

}  // namespace meshloom::control
