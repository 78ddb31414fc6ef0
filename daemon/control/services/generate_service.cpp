// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/generate_service.h"

#include "daemon/control/services/generate_stream.h"

namespace meshloom::control {

GenerateServiceImpl::GenerateServiceImpl(SampleSources sources,
                                         const StreamHost::Options& generations)
    : sources_(std::move(sources)), generations_(generations) {}

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerateServiceImpl::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  return std::make_shared<GenerateStream>(generations_, *context, sources_, *request)->open();
}

}  // namespace meshloom::control
