// SPDX-License-Identifier: Apache-2.0
// EventService: what became of all jobs, as one stream.
#pragma once

#include <memory>

#include "daemon/control/services/client_service.h"
#include "daemon/control/services/line_streams.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/services/stream_host.h"
#include "daemon/control/stores/event_log.h"
#include "v1/event_service.grpc.pb.h"

namespace meshloom::control {

class EventServiceImpl final
    : public v1::EventService::WithCallbackMethod_StreamEvents<v1::EventService::Service>,
      public ClientService {
 public:
  explicit EventServiceImpl(EventLog& log,
                            const StreamHost::Options& streams = {"streams of events", 64});

  // Any door may call this handler, which throws what is wrong with a request.
  std::shared_ptr<Stream<v1::StreamEventsResponse>> stream_events(
      const Caller& caller, const v1::StreamEventsRequest& request);

  // gRPC calls this adapter of the handler.
  grpc::ServerWriteReactor<v1::StreamEventsResponse>* StreamEvents(
      grpc::CallbackServerContext* context, const v1::StreamEventsRequest* request) override;

  /// Streams end once they have told what there is.
  void end_calls() override { log_.close(); }
  /// After the server's shutdown.
  void stop() override { streams_.stop(); }

 private:
  EventLog& log_;
  StreamHost streams_;
};

}  // namespace meshloom::control
