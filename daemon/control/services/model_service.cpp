// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/model_service.h"

#include "daemon/control/net/status.h"
#include "daemon/control/services/grpc_door.h"
#include "daemon/control/stores/names.h"

namespace meshloom::control {

std::shared_ptr<UnaryCall> ModelServiceImpl::create_model(const Caller& caller,
                                                          const v1::CreateModelRequest& request,
                                                          v1::CreateModelResponse* response) {
  return calls_.call(
      "CreateModel", caller, request, [caller, &request, response, this](const CallHost::GoOn&) {
        const RequestKey key = make_request_key("CreateModel", request, caller.name());
        *response->mutable_model() = models_.create(caller.name(), request, key);
      });
}

v1::GetModelResponse ModelServiceImpl::get_model(const v1::GetModelRequest& request) {
  v1::GetModelResponse response;
  const std::string id = parse_model_name(request.name());
  *response.mutable_model() = models_.get(id);
  if (const auto user = uses_.config_with_model(id)) response.mutable_model()->add_users(*user);
  return response;
}

v1::ListModelsResponse ModelServiceImpl::list_models(const v1::ListModelsRequest& request) {
  v1::ListModelsResponse response;
  const auto position = parse_page_token("models", request.page_token());
  auto [models, next] = models_.list(position, page_size_of(request));
  for (auto& model : models) *response.add_models() = std::move(model);
  if (next > 0) response.set_next_page_token(make_page_token("models", next));
  return response;
}

std::shared_ptr<UnaryCall> ModelServiceImpl::delete_model(const Caller& caller,
                                                          const v1::DeleteModelRequest& request) {
  return calls_.call(
      "DeleteModel", caller, request, [caller, &request, this](const CallHost::GoOn&) {
        const RequestKey key = make_request_key("DeleteModel", request, caller.name());
        models_.remove(parse_model_name(request.name()), key);
      });
}

// gRPC calls these adapters of the handlers.

grpc::ServerUnaryReactor* ModelServiceImpl::CreateModel(grpc::CallbackServerContext* context,
                                                        const v1::CreateModelRequest* request,
                                                        v1::CreateModelResponse* response) {
  return serve(create_model(caller_of(*context), *request, response));
}

grpc::Status ModelServiceImpl::GetModel(grpc::ServerContext*, const v1::GetModelRequest* request,
                                        v1::GetModelResponse* response) {
  return guarded("GetModel", *request, [&] { *response = get_model(*request); });
}

grpc::Status ModelServiceImpl::ListModels(grpc::ServerContext*,
                                          const v1::ListModelsRequest* request,
                                          v1::ListModelsResponse* response) {
  return guarded("ListModels", *request, [&] { *response = list_models(*request); });
}

grpc::ServerUnaryReactor* ModelServiceImpl::DeleteModel(grpc::CallbackServerContext* context,
                                                        const v1::DeleteModelRequest* request,
                                                        v1::DeleteModelResponse*) {
  return serve(delete_model(caller_of(*context), *request));
}

}  // namespace meshloom::control
