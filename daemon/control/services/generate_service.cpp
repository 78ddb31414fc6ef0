// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/generate_service.h"

#include "daemon/control/services/generate_stream.h"
#include "daemon/control/services/grpc_door.h"

namespace meshloom::control {

GenerateServiceImpl::GenerateServiceImpl(SampleSources sources,
                                         const StreamHost::Options& generations)
    : sources_(std::move(sources)), generations_(generations) {}

std::shared_ptr<Stream<v1::GenerateResponse>> GenerateServiceImpl::generate(
    const Caller& caller, const v1::GenerateRequest& request) {
  return std::make_shared<GenerateStream>(generations_, caller, sources_, request);
}

// gRPC calls these adapters of the handlers.

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerateServiceImpl::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  return serve_stream<v1::GenerateResponse>(
      gate(), *context, *request, [&](const Caller& caller) { return generate(caller, *request); });
}

}  // namespace meshloom::control
