// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/upload_service.h"

#include "daemon/control/net/call_metadata.h"
#include "daemon/control/net/listen_address.h"
#include "daemon/control/net/status.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/upload_writer.h"
#include "kernels/base/log.h"

namespace meshloom::control {

UploadServiceImpl::UploadServiceImpl(UploadStore& store, const Options& options)
    : store_(store),
      own_run_(options.own_run),
      hold_lease_(options.hold_lease),
      slots_("uploads", options.most_streams),
      silence_(options.silence) {}

grpc::Status UploadServiceImpl::CreateUpload(grpc::ServerContext* context,
                                             const v1::CreateUploadRequest* request,
                                             v1::CreateUploadResponse* response) {
  return guarded("CreateUpload", *request, [&] {
    const RequestKey key = make_request_key("CreateUpload", *request, client_name(*context));
    v1::CreateUploadRequest asked = *request;
    if (asked.kind() == v1::UPLOAD_KIND_TRANSIENT) asked.set_run(own_run_(*context, asked.run()));
    *response->mutable_upload() = store_.create(client_name(*context), asked, key);
  });
}

Hold UploadServiceImpl::lease_of(const grpc::ServerContextBase& context,
                                 const v1::Upload& upload) const {
  return upload.run().empty() ? Hold() : hold_lease_(context, upload.run());
}

std::int64_t UploadServiceImpl::receive(grpc::ServerContext& context,
                                        grpc::ServerReader<v1::WriteUploadRequest>& chunks) {
  const std::string client = client_name(context);
  // By address: names cost nothing.
  const Slots::Slot slot = slots_.take(client_of_peer(context.peer()));
  SilenceWatch::Call call(silence_, context);
  v1::WriteUploadRequest chunk;
  const auto next = [&] {
    call.begin_wait();
    const bool there = chunks.Read(&chunk);
    call.end_wait(there ? static_cast<std::int64_t>(chunk.data().size()) : 0);
    return there;
  };
  if (!next())
    throw InvalidArgument("the stream ended before its first message, which names the upload",
                          "INVALID_ARGUMENT", {{"field", "upload"}});
  const std::string id = parse_upload_name(chunk.upload());
  const auto writer = store_.open_writer(client, id);
  const auto lease = lease_of(context, store_.get(client, id));
  do {
    if (!chunk.upload().empty() && parse_upload_name(chunk.upload()) != id)
      throw InvalidArgument(
          fmt::format("upload is \"{}\" in the middle of a stream for \"{}\"", chunk.upload(), id),
          "INVALID_ARGUMENT", {{"field", "upload"}});
    writer->append(chunk.write_offset(), std::move(*chunk.mutable_data()), chunk.crc32c());
  } while (next());
  // Of a stream that broke it is kept, too.
  writer->commit();
  return writer->committed();
}

grpc::Status UploadServiceImpl::WriteUpload(grpc::ServerContext* context,
                                            grpc::ServerReader<v1::WriteUploadRequest>* chunks,
                                            v1::WriteUploadResponse* response) {
  return guarded("WriteUpload", [&] { response->set_committed_bytes(receive(*context, *chunks)); });
}

grpc::Status UploadServiceImpl::GetUpload(grpc::ServerContext* context,
                                          const v1::GetUploadRequest* request,
                                          v1::GetUploadResponse* response) {
  return guarded("GetUpload", *request, [&] {
    *response->mutable_upload() =
        store_.get(client_name(*context), parse_upload_name(request->name()));
    lease_of(*context, response->upload()).release();  // which renews it
  });
}

grpc::ServerUnaryReactor* UploadServiceImpl::FinishUpload(grpc::CallbackServerContext* context,
                                                          const v1::FinishUploadRequest* request,
                                                          v1::FinishUploadResponse* response) {
  return ends_.answer("FinishUpload", *context, *request, [=, this](const auto&) {
    *response->mutable_upload() =
        store_.finish(client_name(*context), parse_upload_name(request->name()));
    lease_of(*context, response->upload()).release();
  });
}

grpc::ServerUnaryReactor* UploadServiceImpl::AbortUpload(grpc::CallbackServerContext* context,
                                                         const v1::AbortUploadRequest* request,
                                                         v1::AbortUploadResponse*) {
  return ends_.answer("AbortUpload", *context, *request, [=, this](const auto&) {
    const RequestKey key = make_request_key("AbortUpload", *request, client_name(*context));
    store_.abort(client_name(*context), parse_upload_name(request->name()), key);
  });
}

grpc::Status UploadServiceImpl::ListUploads(grpc::ServerContext* context,
                                            const v1::ListUploadsRequest* request,
                                            v1::ListUploadsResponse* response) {
  return guarded("ListUploads", *request, [&] {
    const std::string client = client_name(*context);
    const std::string scope = "uploads of " + client;
    const auto position = parse_page_token(scope, request->page_token());
    auto [uploads, next] = store_.list(client, position, page_size_of(*request));
    for (auto& upload : uploads) *response->add_uploads() = std::move(upload);
    if (next > 0) response->set_next_page_token(make_page_token(scope, next));
  });
}

}  // namespace meshloom::control
