// SPDX-License-Identifier: Apache-2.0
// UploadService: files that clients send in pieces.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "daemon/control/host/hold.h"
#include "daemon/control/net/slots.h"
#include "daemon/control/services/call_host.h"
#include "daemon/control/services/client_service.h"
#include "daemon/control/services/request_stream.h"
#include "daemon/control/services/run_holders.h"
#include "daemon/control/services/silence_watch.h"
#include "daemon/control/stores/upload_store.h"
#include "v1/upload_service.grpc.pb.h"

namespace meshloom::control {

/// Calls that hash or remove files hold no thread of gRPC.
using UploadServiceBase = v1::UploadService::WithCallbackMethod_FinishUpload<
    v1::UploadService::WithCallbackMethod_AbortUpload<v1::UploadService::Service>>;

/// A stream holds a thread of gRPC and one that hashes as long as it lasts, so few are served at
/// once.
class UploadServiceImpl final : public UploadServiceBase, public ClientService {
 public:
  struct Options {
    int most_streams = 16;
    std::chrono::milliseconds silence{30'000};  ///< that ends a stream
  };
  /// `runs` says for whose runs transient uploads come.
  UploadServiceImpl(UploadStore& store, const RunHolders& runs, const Options& options);

  // Any door may call these handlers, which throw what is wrong with a request.
  v1::CreateUploadResponse create_upload(const Caller& caller,
                                         const v1::CreateUploadRequest& request);
  v1::WriteUploadResponse write_upload(const Caller& caller,
                                       RequestStream<v1::WriteUploadRequest>& chunks);
  v1::GetUploadResponse get_upload(const Caller& caller, const v1::GetUploadRequest& request);
  std::shared_ptr<UnaryCall> finish_upload(const Caller& caller,
                                           const v1::FinishUploadRequest& request,
                                           v1::FinishUploadResponse* response);
  std::shared_ptr<UnaryCall> abort_upload(const Caller& caller,
                                          const v1::AbortUploadRequest& request);
  v1::ListUploadsResponse list_uploads(const Caller& caller, const v1::ListUploadsRequest& request);

  // gRPC calls these adapters of the handlers.
  grpc::Status CreateUpload(grpc::ServerContext* context, const v1::CreateUploadRequest* request,
                            v1::CreateUploadResponse* response) override;
  grpc::Status WriteUpload(grpc::ServerContext* context,
                           grpc::ServerReader<v1::WriteUploadRequest>* chunks,
                           v1::WriteUploadResponse* response) override;
  grpc::Status GetUpload(grpc::ServerContext* context, const v1::GetUploadRequest* request,
                         v1::GetUploadResponse* response) override;
  grpc::ServerUnaryReactor* FinishUpload(grpc::CallbackServerContext* context,
                                         const v1::FinishUploadRequest* request,
                                         v1::FinishUploadResponse* response) override;
  grpc::ServerUnaryReactor* AbortUpload(grpc::CallbackServerContext* context,
                                        const v1::AbortUploadRequest* request,
                                        v1::AbortUploadResponse* response) override;
  grpc::Status ListUploads(grpc::ServerContext* context, const v1::ListUploadsRequest* request,
                           v1::ListUploadsResponse* response) override;

  /// Calls that wait end. Does not wait.
  void end_calls() override { ends_.request_stop(); }
  /// After the server's shutdown.
  void stop() override { ends_.stop(); }

 private:
  /// The lease of the run that it is for; it holds nothing if there is none, or the caller does not
  /// hold the run.
  Hold lease_of(const Caller& caller, const v1::Upload& upload) const;
  /// Whose upload of that name the caller may look at and end.
  std::string holder_of(const Caller& caller, const std::string& name) const;

  UploadStore& store_;
  const RunHolders& runs_;
  Slots slots_;
  SilenceWatch silence_;
  CallHost ends_{{.what = "ends of uploads", .threads = 8, .gives_way = false}};
};

}  // namespace meshloom::control
