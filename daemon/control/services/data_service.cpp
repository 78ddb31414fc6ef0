// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/data_service.h"

#include "daemon/control/services/import_stream.h"
#include "daemon/control/services/text_tokens.h"

namespace meshloom::control {

void DataServiceImpl::request_stop() {
  stopping_ = true;
  texts_.request_stop();
}

void DataServiceImpl::stop() {
  request_stop();
  texts_.stop();
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

grpc::ServerUnaryReactor* DataServiceImpl::EncodeText(grpc::CallbackServerContext* context,
                                                      const v1::EncodeTextRequest* request,
                                                      v1::EncodeTextResponse* response) {
  return texts_.answer(
      "EncodeText", *context, *request, [=, this](const Caller&, const CallHost::GoOn& go_on) {
        *response = encode_text(*request, world_.folders, world_.tokenization, go_on);
      });
}

grpc::ServerUnaryReactor* DataServiceImpl::DecodeTokens(grpc::CallbackServerContext* context,
                                                        const v1::DecodeTokensRequest* request,
                                                        v1::DecodeTokensResponse* response) {
  return texts_.answer(
      "DecodeTokens", *context, *request, [=, this](const Caller&, const CallHost::GoOn& go_on) {
        *response = decode_tokens(*request, world_.folders, world_.tokenization, go_on);
      });
}

}  // namespace meshloom::control
