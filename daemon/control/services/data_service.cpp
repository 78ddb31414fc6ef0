// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/data_service.h"

#include "daemon/control/services/import_stream.h"

namespace meshloom::control {

void DataServiceImpl::stop() {
  request_stop();
  tokenizations_.stop();
  imports_.stop();
  checks_.stop();
  inspections_.stop();
}

grpc::ServerWriteReactor<v1::InspectDataResponse>* DataServiceImpl::InspectData(
    grpc::CallbackServerContext* context, const v1::InspectDataRequest* request) {
  return std::make_shared<InspectDataStream>(inspections_, *context, world_, *request)->open();
}

grpc::ServerWriteReactor<v1::TokenizeDataResponse>* DataServiceImpl::TokenizeData(
    grpc::CallbackServerContext* context, const v1::TokenizeDataRequest* request) {
  return std::make_shared<TokenizeDataStream>(tokenizations_, *context, world_, *request)->open();
}

grpc::ServerWriteReactor<v1::ImportUploadResponse>* DataServiceImpl::ImportUpload(
    grpc::CallbackServerContext* context, const v1::ImportUploadRequest* request) {
  StreamHost& host = request->validate_only() ? checks_ : imports_;
  return std::make_shared<ImportStream>(host, *context, world_, uploads_, *request)->open();
}

}  // namespace meshloom::control
