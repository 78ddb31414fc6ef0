// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/upload_service.h"

#include "daemon/control/net/status.h"
#include "daemon/control/services/grpc_door.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/upload_writer.h"
#include "kernels/base/log.h"

namespace meshloom::control {

UploadServiceImpl::UploadServiceImpl(UploadStore& store, const RunHolders& runs,
                                     const Options& options)
    : store_(store),
      runs_(runs),
      slots_("uploads", options.most_streams),
      silence_(options.silence) {}

v1::CreateUploadResponse UploadServiceImpl::create_upload(const Caller& caller,
                                                          const v1::CreateUploadRequest& request) {
  v1::CreateUploadResponse response;
  const RequestKey key = request_key_of("CreateUpload", request, caller);
  v1::CreateUploadRequest asked = request;
  if (asked.kind() == v1::UPLOAD_KIND_TRANSIENT)
    asked.set_run(runs_.own_open_run(caller, asked.run()));
  *response.mutable_upload() = store_.create(caller.holder(), asked, key);
  return response;
}

std::string UploadServiceImpl::holder_of(const Caller& caller, const std::string& name) const {
  // An admin looks at what another owner sends, and ends it.
  if (caller.identity().is_admin())
    if (const auto client = store_.client_of(parse_upload_name(name));
        client && !owner_of_holder(*client).empty())
      return *client;
  return caller.holder();
}

Hold UploadServiceImpl::lease_of(const Caller& caller, const v1::Upload& upload) const {
  return upload.run().empty() ? Hold() : runs_.hold_lease(caller, upload.run());
}

v1::WriteUploadResponse UploadServiceImpl::write_upload(
    const Caller& caller, RequestStream<v1::WriteUploadRequest>& chunks) {
  const std::string client = caller.holder();
  // By address: names cost nothing.
  const Slots::Slot slot = slots_.take(caller.client());
  SilenceWatch::Call call(silence_, chunks);
  v1::WriteUploadRequest chunk;
  const auto next = [&] {
    call.begin_wait();
    const bool there = chunks.read(&chunk);
    call.end_wait(there ? static_cast<std::int64_t>(chunk.data().size()) : 0);
    return there;
  };
  if (!next())
    throw InvalidArgument("the stream ended before its first message, which names the upload",
                          "INVALID_ARGUMENT", {{"field", "upload"}});
  const std::string id = parse_upload_name(chunk.upload());
  const auto writer = store_.open_writer(client, id);
  const auto lease = lease_of(caller, store_.get(client, id));
  do {
    if (!chunk.upload().empty() && parse_upload_name(chunk.upload()) != id)
      throw InvalidArgument(
          fmt::format("upload is \"{}\" in the middle of a stream for \"{}\"", chunk.upload(), id),
          "INVALID_ARGUMENT", {{"field", "upload"}});
    writer->append(chunk.write_offset(), std::move(*chunk.mutable_data()), chunk.crc32c());
  } while (next());
  // Of a stream that broke it is kept, too.
  writer->commit();
  v1::WriteUploadResponse response;
  response.set_committed_bytes(writer->committed());
  return response;
}

v1::GetUploadResponse UploadServiceImpl::get_upload(const Caller& caller,
                                                    const v1::GetUploadRequest& request) {
  v1::GetUploadResponse response;
  *response.mutable_upload() =
      store_.get(holder_of(caller, request.name()), parse_upload_name(request.name()));
  lease_of(caller, response.upload()).release();  // which renews it
  return response;
}

std::shared_ptr<UnaryCall> UploadServiceImpl::finish_upload(const Caller& caller,
                                                            const v1::FinishUploadRequest& request,
                                                            v1::FinishUploadResponse* response) {
  return ends_.call("FinishUpload", caller, request,
                    [caller, &request, response, this](const CallHost::GoOn&) {
                      *response->mutable_upload() =
                          store_.finish(caller.holder(), parse_upload_name(request.name()));
                      lease_of(caller, response->upload()).release();
                    });
}

std::shared_ptr<UnaryCall> UploadServiceImpl::abort_upload(const Caller& caller,
                                                           const v1::AbortUploadRequest& request) {
  return ends_.call(
      "AbortUpload", caller, request, [caller, &request, this](const CallHost::GoOn&) {
        const RequestKey key = request_key_of("AbortUpload", request, caller);
        store_.abort(holder_of(caller, request.name()), parse_upload_name(request.name()), key);
      });
}

v1::ListUploadsResponse UploadServiceImpl::list_uploads(const Caller& caller,
                                                        const v1::ListUploadsRequest& request) {
  v1::ListUploadsResponse response;
  const bool all = request.all() && caller.identity().is_admin();
  const std::string client = all ? "" : caller.holder();
  const std::string scope = "uploads of " + client;
  const auto position = parse_page_token(scope, request.page_token());
  auto [uploads, next] = store_.list(client, position, page_size_of(request));
  for (auto& upload : uploads) *response.add_uploads() = std::move(upload);
  if (next > 0) response.set_next_page_token(make_page_token(scope, next));
  return response;
}

// gRPC calls these adapters of the handlers.

grpc::Status UploadServiceImpl::CreateUpload(grpc::ServerContext* context,
                                             const v1::CreateUploadRequest* request,
                                             v1::CreateUploadResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = create_upload(caller, *request); });
}

grpc::Status UploadServiceImpl::WriteUpload(grpc::ServerContext* context,
                                            grpc::ServerReader<v1::WriteUploadRequest>* chunks,
                                            v1::WriteUploadResponse* response) {
  return answer_verb(gate(), *context, v1::WriteUploadRequest::default_instance(), response,
                     [&](const Caller& caller) {
                       GrpcRequests<v1::WriteUploadRequest> requests(*context, *chunks);
                       *response = write_upload(caller, requests);
                     });
}

grpc::Status UploadServiceImpl::GetUpload(grpc::ServerContext* context,
                                          const v1::GetUploadRequest* request,
                                          v1::GetUploadResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = get_upload(caller, *request); });
}

grpc::ServerUnaryReactor* UploadServiceImpl::FinishUpload(grpc::CallbackServerContext* context,
                                                          const v1::FinishUploadRequest* request,
                                                          v1::FinishUploadResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return finish_upload(caller, *request, response); });
}

grpc::ServerUnaryReactor* UploadServiceImpl::AbortUpload(grpc::CallbackServerContext* context,
                                                         const v1::AbortUploadRequest* request,
                                                         v1::AbortUploadResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return abort_upload(caller, *request); });
}

grpc::Status UploadServiceImpl::ListUploads(grpc::ServerContext* context,
                                            const v1::ListUploadsRequest* request,
                                            v1::ListUploadsResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = list_uploads(caller, *request); });
}

}  // namespace meshloom::control
