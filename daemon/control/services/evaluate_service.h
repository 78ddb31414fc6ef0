// SPDX-License-Identifier: Apache-2.0
// EvaluateService: losses of a job, a checkpoint, a Hugging Face folder or a model on data.
#pragma once

#include <memory>

#include "daemon/control/services/client_service.h"
#include "daemon/control/services/evaluate_stream.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/services/stream_host.h"
#include "v1/evaluate_service.grpc.pb.h"

namespace meshloom::control {

class EvaluateServiceImpl final
    : public v1::EvaluateService::WithCallbackMethod_Evaluate<v1::EvaluateService::Service>,
      public ClientService {
 public:
  /// Removes what evaluations of a daemon that died have left in the state dir.
  explicit EvaluateServiceImpl(const EvaluationServices& services);

  // Any door may call these handlers, which throw what is wrong with a request.
  std::shared_ptr<Stream<v1::EvaluateResponse>> evaluate(const Caller& caller,
                                                         const v1::EvaluateRequest& request);

  // gRPC calls these adapters of the handlers.
  grpc::ServerWriteReactor<v1::EvaluateResponse>* Evaluate(
      grpc::CallbackServerContext* context, const v1::EvaluateRequest* request) override;

  /// Those that wait or compute end soon. Does not wait.
  void request_stop() override { stopping_ = true; }
  /// After the server's shutdown.
  void stop() override;

 private:
  std::atomic<bool> stopping_ = false;
  std::atomic<std::int64_t> next_ = 1;
  const EvaluationWorld world_;
  /// As many threads as streams: one that waits for the ranks holds its own.
  StreamHost evaluations_{{"evaluations", 4, 4}};
};

}  // namespace meshloom::control
