// SPDX-License-Identifier: Apache-2.0
// Events as clients get them, over real gRPC.
#include "daemon/control/services/event_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "daemon/control/net/grpc_server.h"
#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EventServiceTest : public ::testing::Test {
 protected:
  void TearDown() override {
    service_.end_calls();
    server_.shutdown();
    service_.stop();
  }
  struct Told {
    std::vector<std::string> lines;
    std::int64_t revision = 0;
    grpc::Status status;
  };
  /// Reads until `most` have come, or the stream ends.
  Told read(std::int64_t after, bool follow, std::size_t most = 1000) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    v1::StreamEventsRequest request;
    request.set_after_revision(after);
    request.set_follow(follow);
    const auto stream = stub_->StreamEvents(&context, request);
    Told told;
    for (v1::StreamEventsResponse event; told.lines.size() < most && stream->Read(&event);) {
      told.lines.push_back(event.line());
      told.revision = event.revision();
    }
    if (told.lines.size() >= most) context.TryCancel();
    told.status = stream->Finish();
    return told;
  }

  test::TempFolder folder_;
  EventLog log_{folder_ / "events.jsonl"};
  EventServiceImpl service_{log_};
  GrpcServer server_{{resolve_listen_address("127.0.0.1:0", "listen"), {&service_}}};
  std::unique_ptr<v1::EventService::Stub> stub_ = v1::EventService::NewStub(grpc::CreateChannel(
      fmt::format("127.0.0.1:{}", server_.port()), grpc::InsecureChannelCredentials()));
};

TEST_F(EventServiceTest, WhatThereIsIsToldFromAnyRevision) {
  EXPECT_THAT(read(0, false).lines, IsEmpty());
  log_.append("{\"a\": 1}\n{\"b\": 2}\n");
  log_.append("{\"c\": 3}\n");
  const Told all = read(0, false);
  EXPECT_TRUE(all.status.ok());
  EXPECT_THAT(all.lines, ElementsAre("{\"a\": 1}", "{\"b\": 2}", "{\"c\": 3}"));
  const Told first = read(0, false, 1);
  EXPECT_THAT(read(first.revision, false).lines, ElementsAre("{\"b\": 2}", "{\"c\": 3}"));
  EXPECT_THAT(read(all.revision, false).lines, IsEmpty());
  EXPECT_EQ(read(all.revision + 1, false).status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(read(3, false).status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(read(-1, false).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(EventServiceTest, WhoFollowsGetsLinesAsTheyComeAndHearsOfTheStop) {
  log_.append("{\"a\": 1}\n");
  std::thread later([this] {
    std::this_thread::sleep_for(50ms);
    log_.append("{\"b\": 2}\n");
    std::this_thread::sleep_for(50ms);
    service_.end_calls();
  });
  const Told told = read(0, true);
  later.join();
  EXPECT_THAT(told.lines, ElementsAre("{\"a\": 1}", "{\"b\": 2}"));
  EXPECT_EQ(told.status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace meshloom::control
