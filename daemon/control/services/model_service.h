// SPDX-License-Identifier: Apache-2.0
// ModelService: the models that the daemon holds.
#pragma once

#include <memory>

#include "daemon/control/services/call_host.h"
#include "daemon/control/services/client_service.h"
#include "daemon/control/stores/model_store.h"
#include "daemon/control/stores/uses.h"
#include "v1/model_service.grpc.pb.h"

namespace meshloom::control {

/// Calls that read or delete files hold no thread of gRPC.
using ModelServiceBase = v1::ModelService::WithCallbackMethod_CreateModel<
    v1::ModelService::WithCallbackMethod_DeleteModel<v1::ModelService::Service>>;

class ModelServiceImpl final : public ModelServiceBase, public ClientService {
 public:
  /// `uses`: that of the models.
  ModelServiceImpl(ModelStore& models, const Uses& uses) : models_(models), uses_(uses) {}

  // Any door may call these handlers, which throw what is wrong with a request.
  std::shared_ptr<UnaryCall> create_model(const Caller& caller,
                                          const v1::CreateModelRequest& request,
                                          v1::CreateModelResponse* response);
  v1::GetModelResponse get_model(const Caller& caller, const v1::GetModelRequest& request);
  v1::ListModelsResponse list_models(const Caller& caller, const v1::ListModelsRequest& request);
  std::shared_ptr<UnaryCall> delete_model(const Caller& caller,
                                          const v1::DeleteModelRequest& request);

  // gRPC calls these adapters of the handlers.
  grpc::ServerUnaryReactor* CreateModel(grpc::CallbackServerContext* context,
                                        const v1::CreateModelRequest* request,
                                        v1::CreateModelResponse* response) override;
  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest* request,
                        v1::GetModelResponse* response) override;
  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest* request,
                          v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteModel(grpc::CallbackServerContext* context,
                                        const v1::DeleteModelRequest* request,
                                        v1::DeleteModelResponse* response) override;

  /// Calls that wait, also for files, end. Does not wait.
  void end_calls() override {
    models_.stop_calls();
    calls_.request_stop();
  }
  /// After the server's shutdown.
  void stop() override { calls_.stop(); }

 private:
  ModelStore& models_;
  const Uses& uses_;
  CallHost calls_{{.what = "changes of models", .threads = 4}};
};

}  // namespace meshloom::control
