// SPDX-License-Identifier: Apache-2.0
// GenerateService: text and tokens from a job, a checkpoint or a Hugging Face folder.
#pragma once

#include <memory>

#include "daemon/control/jobs/sample_sources.h"
#include "daemon/control/services/client_service.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/services/stream_host.h"
#include "v1/generate_service.grpc.pb.h"

namespace meshloom::control {

class GenerateServiceImpl final
    : public v1::GenerateService::WithCallbackMethod_Generate<v1::GenerateService::Service>,
      public ClientService {
 public:
  GenerateServiceImpl(SampleSources sources,
                      const StreamHost::Options& generations = {"generations", 24, 4});

  // Any door may call these handlers, which throw what is wrong with a request.
  std::shared_ptr<Stream<v1::GenerateResponse>> generate(const Caller& caller,
                                                         const v1::GenerateRequest& request);

  // gRPC calls these adapters of the handlers.
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;

  /// After the server's shutdown: the scheduler and the cache may end then.
  void stop() override { generations_.stop(); }

 private:
  SampleSources sources_;
  StreamHost generations_;
};

}  // namespace meshloom::control
