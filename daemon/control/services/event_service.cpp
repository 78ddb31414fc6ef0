// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/event_service.h"

#include <nlohmann/json.hpp>

#include "daemon/control/net/status.h"
#include "daemon/control/services/grpc_door.h"
#include "daemon/control/stores/names.h"

namespace meshloom::control {
namespace {

/// A revision is the byte behind the line.
class EventStream final : public Stream<v1::StreamEventsResponse> {
 public:
  EventStream(StreamHost& host, const Caller& caller, EventLog& log, const Gate& gate,
              const v1::StreamEventsRequest& request)
      : Stream(host, caller, "StreamEvents"),
        log_(log),
        gate_(gate),
        who_(caller.identity()),
        request_(request) {}

 private:
  bool produce() override {
    if (!lines_) begin();
    // What was appended before it was closed is told.
    const bool closed = log_.closed();
    auto lines = lines_->read();
    for (LineReader::Line& line : lines) {
      if (!is_shown(line.text)) continue;
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

  /// Submitters hear of the jobs that they may look at.
  bool is_shown(const std::string& line) const {
    if (who_.is_admin()) return true;
    const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    return event.is_object() && gate_.may_see(who_, job_resource(event.value("job", "")));
  }

  EventLog& log_;
  const Gate& gate_;
  const Identity who_;
  const v1::StreamEventsRequest request_;
  std::unique_ptr<LineReader> lines_;  ///< null: not begun
  Subscription subscription_;
};

}  // namespace

EventServiceImpl::EventServiceImpl(EventLog& log, const StreamHost::Options& streams)
    : log_(log), streams_(streams) {}

std::shared_ptr<Stream<v1::StreamEventsResponse>> EventServiceImpl::stream_events(
    const Caller& caller, const v1::StreamEventsRequest& request) {
  return std::make_shared<EventStream>(streams_, caller, log_, gate(), request);
}

grpc::ServerWriteReactor<v1::StreamEventsResponse>* EventServiceImpl::StreamEvents(
    grpc::CallbackServerContext* context, const v1::StreamEventsRequest* request) {
  return serve_stream<v1::StreamEventsResponse>(
      gate(), *context, *request,
      [&](const Caller& caller) { return stream_events(caller, *request); });
}

}  // namespace meshloom::control
