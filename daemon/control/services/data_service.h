// SPDX-License-Identifier: Apache-2.0
// DataService: text and tokens below the daemon's data folders.
#pragma once

#include <memory>

#include "daemon/control/services/call_host.h"
#include "daemon/control/services/client_service.h"
#include "daemon/control/services/data_output.h"
#include "daemon/control/services/data_streams.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/services/stream_host.h"
#include "daemon/control/stores/upload_store.h"
#include "v1/data_service.grpc.pb.h"

namespace meshloom::control {

using DataServiceBase = v1::DataService::WithCallbackMethod_InspectData<
    v1::DataService::WithCallbackMethod_TokenizeData<
        v1::DataService::WithCallbackMethod_ImportUpload<
            v1::DataService::WithCallbackMethod_EncodeText<
                v1::DataService::WithCallbackMethod_DecodeTokens<v1::DataService::Service>>>>>;

class DataServiceImpl final : public DataServiceBase, public ClientService {
 public:
  struct Options {
    std::filesystem::path data_dir;
    std::filesystem::path state_dir;  ///< where nothing is written for a client
    int threads = 1;                  ///< of rank 0's host, which give way to training
  };
  DataServiceImpl(ModelFolders& folders, Tokenization& tokenization, UploadStore& uploads,
                  const Options& options)
      : uploads_(uploads),
        outputs_(options.data_dir, options.state_dir),
        world_{folders, tokenization, options.data_dir, outputs_, options.threads, stopping_} {}

  // Any door may call these handlers, which throw what is wrong with a request.
  std::shared_ptr<Stream<v1::InspectDataResponse>> inspect_data(
      const Caller& caller, const v1::InspectDataRequest& request);
  std::shared_ptr<Stream<v1::TokenizeDataResponse>> tokenize_data(
      const Caller& caller, const v1::TokenizeDataRequest& request);
  std::shared_ptr<Stream<v1::ImportUploadResponse>> import_upload(
      const Caller& caller, const v1::ImportUploadRequest& request);
  std::shared_ptr<UnaryCall> encode_text(const Caller& caller, const v1::EncodeTextRequest& request,
                                         v1::EncodeTextResponse* response);
  std::shared_ptr<UnaryCall> decode_tokens(const Caller& caller,
                                           const v1::DecodeTokensRequest& request,
                                           v1::DecodeTokensResponse* response);

  // gRPC calls these adapters of the handlers.
  grpc::ServerWriteReactor<v1::InspectDataResponse>* InspectData(
      grpc::CallbackServerContext* context, const v1::InspectDataRequest* request) override;
  grpc::ServerWriteReactor<v1::TokenizeDataResponse>* TokenizeData(
      grpc::CallbackServerContext* context, const v1::TokenizeDataRequest* request) override;
  grpc::ServerWriteReactor<v1::ImportUploadResponse>* ImportUpload(
      grpc::CallbackServerContext* context, const v1::ImportUploadRequest* request) override;
  grpc::ServerUnaryReactor* EncodeText(grpc::CallbackServerContext* context,
                                       const v1::EncodeTextRequest* request,
                                       v1::EncodeTextResponse* response) override;
  grpc::ServerUnaryReactor* DecodeTokens(grpc::CallbackServerContext* context,
                                         const v1::DecodeTokensRequest* request,
                                         v1::DecodeTokensResponse* response) override;

  /// Calls that are under way end soon. Does not wait.
  void request_stop() override;
  /// After the server's shutdown.
  void stop() override;

 private:
  std::atomic<bool> stopping_ = false;
  UploadStore& uploads_;
  DataOutputs outputs_;
  const DataWorld world_;
  StreamHost tokenizations_{{"tokenizations of data", 4, 1}};
  StreamHost imports_{{"imports of uploads", 8, 2}};
  StreamHost checks_{{"checks of paths", 8, 1}};  ///< which no copy keeps waiting
  StreamHost inspections_{{"inspections of data", 8, 2}};
  CallHost texts_{{"texts to encode or decode"}};
};

}  // namespace meshloom::control
