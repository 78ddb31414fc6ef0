// SPDX-License-Identifier: Apache-2.0
// gRPC's door: how its calls and streams reach handlers, which know nothing of it.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <utility>

#include "daemon/control/services/gate.h"
#include "daemon/control/services/request_stream.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/services/unary_call.h"

namespace meshloom::control {

/// What an adapter returns for a call that is carried out where it is made: handler(const Caller&)
/// fills in the response, or throws. Nothing is asked of the request before the gate lets the
/// caller in.
template <typename Handler>
grpc::Status answer_verb(const Gate& gate, const grpc::ServerContextBase& context,
                         const google::protobuf::Message& request,
                         google::protobuf::Message* response, Handler&& handler) {
  Visit visit(gate, gate.caller_of(context), request, response);
  if (!visit.refusal().ok()) return visit.end(visit.refusal());
  return visit.end(guarded(visit.method(), [&] { handler(visit.caller()); }));
}

/// The same for a request that is no verb of a run: above kRequestBytes it is refused.
template <typename Handler>
grpc::Status answer(const Gate& gate, const grpc::ServerContextBase& context,
                    const google::protobuf::Message& request, google::protobuf::Message* response,
                    Handler&& handler) {
  return answer_verb(gate, context, request, response, [&](const Caller& caller) {
    check_request_size(request);
    handler(caller);
  });
}

/// What the handler of a callback method returns for a call whose answer comes later.
grpc::ServerUnaryReactor* serve_call(std::shared_ptr<UnaryCall> call, Visit visit);

/// The same of a caller that the gate lets in: handler(const Caller&) makes the call.
template <typename Handler>
grpc::ServerUnaryReactor* serve(const Gate& gate, grpc::CallbackServerContext& context,
                                const google::protobuf::Message& request,
                                google::protobuf::Message* response, Handler&& handler) {
  Visit visit(gate, gate.caller_of(context), request, response);
  if (visit.refusal().ok()) {
    std::shared_ptr<UnaryCall> call = handler(visit.caller());
    return serve_call(std::move(call), std::move(visit));
  }
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(visit.end(visit.refusal()));
  return reactor;
}

/// The same for a call that is answered where it is made, on one of the few threads on which gRPC
/// runs reactions: handler(const Caller&) looks at memory alone and waits for nobody. Such a call
/// is answered whatever others do, and refused where its request is above kRequestBytes.
template <typename Handler>
grpc::ServerUnaryReactor* serve_at_once(const Gate& gate, grpc::CallbackServerContext& context,
                                        const google::protobuf::Message& request,
                                        google::protobuf::Message* response, Handler&& handler) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(answer(gate, context, request, response, handler));
  return reactor;
}

/// One stream of responses. Lives until gRPC is done with its call, or longer if others hold the
/// stream.
template <typename Response>
class GrpcStream final : public grpc::ServerWriteReactor<Response>, public StreamSink<Response> {
 public:
  GrpcStream(std::shared_ptr<Stream<Response>> stream, grpc::CallbackServerContext& context,
             Visit visit)
      : stream_(std::move(stream)), context_(context), visit_(std::move(visit)) {}

 private:
  void send(const Response& response) override {
    visit_.add_bytes(response.ByteSizeLong());
    if (!visit_.hides_names()) return this->StartWrite(&response);
    shown_ = response;
    visit_.hide_names(&shown_);
    this->StartWrite(&shown_);
  }
  void end(const grpc::Status& status) override { this->Finish(visit_.end(status)); }
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
  Response shown_;  ///< to a client that is not to see all names
  Visit visit_;     ///< of one sending, or of the end: the stream does one at a time
  std::mutex context_mutex_;
  bool done_ = false;  ///< the context is gRPC's again
};

/// A stream to a caller that is not let in. Lives until gRPC is done with its call.
template <typename Response>
class RefusedStream final : public grpc::ServerWriteReactor<Response> {
 public:
  explicit RefusedStream(const grpc::Status& status) { this->Finish(status); }

 private:
  void OnDone() override { delete this; }
};

/// What the handler of a callback method returns for a stream of responses: handler(const Caller&)
/// makes the stream.
template <typename Response, typename Handler>
grpc::ServerWriteReactor<Response>* serve_stream(const Gate& gate,
                                                 grpc::CallbackServerContext& context,
                                                 const google::protobuf::Message& request,
                                                 Handler&& handler) {
  Visit visit(gate, gate.caller_of(context), request);
  if (!visit.refusal().ok()) return new RefusedStream<Response>(visit.end(visit.refusal()));
  std::shared_ptr<Stream<Response>> stream = handler(visit.caller());
  Stream<Response>& opened = *stream;
  const auto door =
      std::make_shared<GrpcStream<Response>>(std::move(stream), context, std::move(visit));
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
