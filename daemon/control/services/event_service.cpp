// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/event_service.h"

#include "daemon/control/net/status.h"
#include "daemon/control/services/grpc_door.h"

namespace meshloom::control {
namespace {

/// A revision is the byte behind the line.
class EventStream final : public Stream<v1::StreamEventsResponse> {
 public:
  EventStream(StreamHost& host, const Caller& caller, EventLog& log,
              const v1::StreamEventsRequest& request)
      : Stream(host, caller, "StreamEvents"), log_(log), request_(request) {}

 private:
  bool produce() override {
    if (!lines_) begin();
    // What was appended before it was closed is told.
    const bool closed = log_.closed();
    auto lines = lines_->read();
    for (LineReader::Line& line : lines) {
      v1::StreamEventsResponse response;
      response.set_line(std::move(line.text));
      response.set_revision(line.end);
      write(std::move(response));
    }
    if (!lines.empty()) return true;
    if (!request_.follow())
      finish();
    else if (closed)
      throw Unavailable("the daemon is stopping", "STOPPING");
    return false;
  }

  void begin() {
    check(request_.after_revision() >= 0, "after_revision is {}, expected 0 or more",
          request_.after_revision());
    subscription_ = log_.subscribe(waker());
    auto lines = std::make_unique<LineReader>(log_.path());
    lines->seek(request_.after_revision());
    lines_ = std::move(lines);
  }

  EventLog& log_;
  const v1::StreamEventsRequest request_;
  std::unique_ptr<LineReader> lines_;  ///< null: not begun
  Subscription subscription_;
};

}  // namespace

EventServiceImpl::EventServiceImpl(EventLog& log, const StreamHost::Options& streams)
    : log_(log), streams_(streams) {}

std::shared_ptr<Stream<v1::StreamEventsResponse>> EventServiceImpl::stream_events(
    const Caller& caller, const v1::StreamEventsRequest& request) {
  return std::make_shared<EventStream>(streams_, caller, log_, request);
}

grpc::ServerWriteReactor<v1::StreamEventsResponse>* EventServiceImpl::StreamEvents(
    grpc::CallbackServerContext* context, const v1::StreamEventsRequest* request) {
  return serve(*context, stream_events(caller_of(*context), *request));
}

}  // namespace meshloom::control
