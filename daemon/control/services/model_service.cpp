// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/model_service.h"

#include "daemon/control/net/grpc_caller.h"
#include "daemon/control/net/status.h"
#include "daemon/control/stores/names.h"

namespace meshloom::control {

grpc::ServerUnaryReactor* ModelServiceImpl::CreateModel(grpc::CallbackServerContext* context,
                                                        const v1::CreateModelRequest* request,
                                                        v1::CreateModelResponse* response) {
  return calls_.answer(
      "CreateModel", *context, *request, [=, this](const Caller& caller, const auto&) {
        const RequestKey key = make_request_key("CreateModel", *request, caller.name());
        *response->mutable_model() = models_.create(caller.name(), *request, key);
      });
}

grpc::Status ModelServiceImpl::GetModel(grpc::ServerContext*, const v1::GetModelRequest* request,
                                        v1::GetModelResponse* response) {
  return guarded("GetModel", *request, [&] {
    const std::string id = parse_model_name(request->name());
    *response->mutable_model() = models_.get(id);
    if (const auto user = uses_.config_with_model(id)) response->mutable_model()->add_users(*user);
  });
}

grpc::Status ModelServiceImpl::ListModels(grpc::ServerContext*,
                                          const v1::ListModelsRequest* request,
                                          v1::ListModelsResponse* response) {
  return guarded("ListModels", *request, [&] {
    const auto position = parse_page_token("models", request->page_token());
    auto [models, next] = models_.list(position, page_size_of(*request));
    for (auto& model : models) *response->add_models() = std::move(model);
    if (next > 0) response->set_next_page_token(make_page_token("models", next));
  });
}

grpc::ServerUnaryReactor* ModelServiceImpl::DeleteModel(grpc::CallbackServerContext* context,
                                                        const v1::DeleteModelRequest* request,
                                                        v1::DeleteModelResponse*) {
  return calls_.answer(
      "DeleteModel", *context, *request, [=, this](const Caller& caller, const auto&) {
        const RequestKey key = make_request_key("DeleteModel", *request, caller.name());
        models_.remove(parse_model_name(request->name()), key);
      });
}

}  // namespace meshloom::control
