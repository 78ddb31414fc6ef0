// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/model_service.h"

#include "daemon/control/net/status.h"
#include "daemon/control/services/grpc_door.h"
#include "daemon/control/services/job_view.h"
#include "daemon/control/stores/names.h"

namespace meshloom::control {

std::shared_ptr<UnaryCall> ModelServiceImpl::create_model(const Caller& caller,
                                                          const v1::CreateModelRequest& request,
                                                          v1::CreateModelResponse* response) {
  return calls_.call("CreateModel", caller, request,
                     [caller, &request, response, this](const CallHost::GoOn&) {
                       const RequestKey key = request_key_of("CreateModel", request, caller);
                       *response->mutable_model() = models_.create(caller.holder(), request, key);
                     });
}

v1::GetModelResponse ModelServiceImpl::get_model(const Caller& caller,
                                                 const v1::GetModelRequest& request) {
  v1::GetModelResponse response;
  const std::string id = parse_model_name(request.name());
  *response.mutable_model() = models_.get(id);
  if (const auto user = uses_.config_with_model(id)) response.mutable_model()->add_users(*user);
  hide_shares(caller.identity(), response.mutable_model());
  return response;
}

v1::ListModelsResponse ModelServiceImpl::list_models(const Caller& caller,
                                                     const v1::ListModelsRequest& request) {
  v1::ListModelsResponse response;
  const auto position = parse_page_token("models", request.page_token());
  auto [models, next] = models_.list(position, page_size_of(request),
                                     shown_to(caller.identity(), request.all(), true));
  for (auto& model : models) {
    hide_shares(caller.identity(), &model);
    *response.add_models() = std::move(model);
  }
  if (next > 0) response.set_next_page_token(make_page_token("models", next));
  return response;
}

std::shared_ptr<UnaryCall> ModelServiceImpl::delete_model(const Caller& caller,
                                                          const v1::DeleteModelRequest& request) {
  return calls_.call("DeleteModel", caller, request,
                     [caller, &request, this](const CallHost::GoOn&) {
                       const RequestKey key = request_key_of("DeleteModel", request, caller);
                       models_.remove(parse_model_name(request.name()), key);
                     });
}

// gRPC calls these adapters of the handlers.

grpc::ServerUnaryReactor* ModelServiceImpl::CreateModel(grpc::CallbackServerContext* context,
                                                        const v1::CreateModelRequest* request,
                                                        v1::CreateModelResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return create_model(caller, *request, response); });
}

grpc::Status ModelServiceImpl::GetModel(grpc::ServerContext* context,
                                        const v1::GetModelRequest* request,
                                        v1::GetModelResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = get_model(caller, *request); });
}

grpc::Status ModelServiceImpl::ListModels(grpc::ServerContext* context,
                                          const v1::ListModelsRequest* request,
                                          v1::ListModelsResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = list_models(caller, *request); });
}

grpc::ServerUnaryReactor* ModelServiceImpl::DeleteModel(grpc::CallbackServerContext* context,
                                                        const v1::DeleteModelRequest* request,
                                                        v1::DeleteModelResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return delete_model(caller, *request); });
}

}  // namespace meshloom::control
