// SPDX-License-Identifier: Apache-2.0
// gRPC's door: how its calls and streams reach handlers, which know nothing of it.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <utility>

#include "daemon/control/net/grpc_caller.h"
#include "daemon/control/services/request_stream.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/services/unary_call.h"

namespace meshloom::control {

/// What the handler of a callback method returns for a call whose answer comes later.
grpc::ServerUnaryReactor* serve(std::shared_ptr<UnaryCall> call);

/// The same for a call that is answered where it is made, on one of the few threads on which gRPC
/// runs reactions: handler(const Caller&) looks at memory alone and waits for nobody. Such a call
/// is answered whatever others do, and refused where its request is above kRequestBytes.
template <typename Handler>
grpc::ServerUnaryReactor* serve_at_once(const char* method, grpc::CallbackServerContext& context,
                                        const google::protobuf::Message& request,
                                        Handler&& handler) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(guarded(method, context, request, handler));
  return reactor;
}

/// One stream of responses. Lives until gRPC is done with its call, or longer if others hold the
/// stream.
template <typename Response>
class GrpcStream final : public grpc::ServerWriteReactor<Response>, public StreamSink<Response> {
 public:
  GrpcStream(std::shared_ptr<Stream<Response>> stream, grpc::CallbackServerContext& context)
      : stream_(std::move(stream)), context_(context) {}

 private:
  void send(const Response& response) override { this->StartWrite(&response); }
  void end(const grpc::Status& status) override { this->Finish(status); }
  bool cut_off() override {
    const std::lock_guard lock(context_mutex_);
    if (!done_) context_.TryCancel();
    return !done_;
  }

  void OnWriteDone(bool ok) override { stream_->sent(ok); }
  void OnCancel() override { stream_->cancel(); }
  void OnDone() override {
    {
      const std::lock_guard lock(context_mutex_);
      done_ = true;
    }
    const auto last = std::move(stream_);
  }

  std::shared_ptr<Stream<Response>> stream_;  ///< which has this; until gRPC is done with the call
  grpc::CallbackServerContext& context_;
  std::mutex context_mutex_;  ///< the context is gRPC's again once `done_`
  bool done_ = false;
};

/// What the handler of a callback method returns for a stream of responses.
template <typename Response>
grpc::ServerWriteReactor<Response>* serve(grpc::CallbackServerContext& context,
                                          std::shared_ptr<Stream<Response>> stream) {
  Stream<Response>& opened = *stream;
  const auto door = std::make_shared<GrpcStream<Response>>(std::move(stream), context);
  opened.open(door);
  return door.get();
}

/// A stream of requests, as long as its handler runs.
template <typename Request>
class GrpcRequests final : public RequestStream<Request> {
 public:
  GrpcRequests(grpc::ServerContext& context, grpc::ServerReader<Request>& reader)
      : context_(context), reader_(reader) {}
  bool read(Request* request) override { return reader_.Read(request); }
  void cut_off() override { context_.TryCancel(); }

 private:
  grpc::ServerContext& context_;
  grpc::ServerReader<Request>& reader_;
};

}  // namespace meshloom::control
