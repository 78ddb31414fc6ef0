// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/data_service.h"

#include "daemon/control/services/grpc_door.h"
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

std::shared_ptr<Stream<v1::InspectDataResponse>> DataServiceImpl::inspect_data(
    const Caller& caller, const v1::InspectDataRequest& request) {
  return std::make_shared<InspectDataStream>(inspections_, caller, world_, request);
}

std::shared_ptr<Stream<v1::TokenizeDataResponse>> DataServiceImpl::tokenize_data(
    const Caller& caller, const v1::TokenizeDataRequest& request) {
  return std::make_shared<TokenizeDataStream>(tokenizations_, caller, world_, request);
}

std::shared_ptr<Stream<v1::ImportUploadResponse>> DataServiceImpl::import_upload(
    const Caller& caller, const v1::ImportUploadRequest& request) {
  StreamHost& host = request.validate_only() ? checks_ : imports_;
  return std::make_shared<ImportStream>(host, caller, world_, uploads_, request);
}

std::shared_ptr<UnaryCall> DataServiceImpl::encode_text(const Caller& caller,
                                                        const v1::EncodeTextRequest& request,
                                                        v1::EncodeTextResponse* response) {
  return texts_.call(
      "EncodeText", caller, request, [&request, response, this](const CallHost::GoOn& go_on) {
        *response = control::encode_text(request, world_.folders, world_.tokenization, go_on);
      });
}

std::shared_ptr<UnaryCall> DataServiceImpl::decode_tokens(const Caller& caller,
                                                          const v1::DecodeTokensRequest& request,
                                                          v1::DecodeTokensResponse* response) {
  return texts_.call(
      "DecodeTokens", caller, request, [&request, response, this](const CallHost::GoOn& go_on) {
        *response = control::decode_tokens(request, world_.folders, world_.tokenization, go_on);
      });
}

// gRPC calls these adapters of the handlers.

grpc::ServerWriteReactor<v1::InspectDataResponse>* DataServiceImpl::InspectData(
    grpc::CallbackServerContext* context, const v1::InspectDataRequest* request) {
  return serve_stream<v1::InspectDataResponse>(
      gate(), *context, *request,
      [&](const Caller& caller) { return inspect_data(caller, *request); });
}

grpc::ServerWriteReactor<v1::TokenizeDataResponse>* DataServiceImpl::TokenizeData(
    grpc::CallbackServerContext* context, const v1::TokenizeDataRequest* request) {
  return serve_stream<v1::TokenizeDataResponse>(
      gate(), *context, *request,
      [&](const Caller& caller) { return tokenize_data(caller, *request); });
}

grpc::ServerWriteReactor<v1::ImportUploadResponse>* DataServiceImpl::ImportUpload(
    grpc::CallbackServerContext* context, const v1::ImportUploadRequest* request) {
  return serve_stream<v1::ImportUploadResponse>(
      gate(), *context, *request,
      [&](const Caller& caller) { return import_upload(caller, *request); });
}

grpc::ServerUnaryReactor* DataServiceImpl::EncodeText(grpc::CallbackServerContext* context,
                                                      const v1::EncodeTextRequest* request,
                                                      v1::EncodeTextResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return encode_text(caller, *request, response); });
}

grpc::ServerUnaryReactor* DataServiceImpl::DecodeTokens(grpc::CallbackServerContext* context,
                                                        const v1::DecodeTokensRequest* request,
                                                        v1::DecodeTokensResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return decode_tokens(caller, *request, response); });
}

}  // namespace meshloom::control
