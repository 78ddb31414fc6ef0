// SPDX-License-Identifier: Apache-2.0
// A gRPC server and clients that stay below its limits and cost it all the same.
#include "daemon/control/net/connection_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "daemon/control/host/memory.h"
#include "daemon/control/net/grpc_server.h"
#include "tests/support/eventually.h"
#include "tests/support/raw_http2.h"
#include "v1/worker_service.grpc.pb.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Answers at once, or when the gate is opened.
class GateService final : public v1::WorkerService::Service {
 public:
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::DrainResponse*) override {
    bytes += static_cast<std::int64_t>(request->reason().size());
    while (closed && !context->IsCancelled()) std::this_thread::sleep_for(5ms);
    return grpc::Status::OK;
  }
  std::atomic<bool> closed = false;
  std::atomic<std::int64_t> bytes = 0;
};

class ConnectionWatchTest : public ::testing::Test {
 protected:
  ~ConnectionWatchTest() override {
    service_.closed = false;
    server_.shutdown();
  }
  /// Over a connection of its own.
  std::unique_ptr<v1::WorkerService::Stub> client() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
    return v1::WorkerService::NewStub(
        grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_.port()),
                                  grpc::InsecureChannelCredentials(), arguments));
  }
  static grpc::Status call(v1::WorkerService::Stub& stub, const std::string& reason = "",
                           std::chrono::milliseconds deadline = 30s) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + deadline);
    v1::DrainRequest request;
    request.set_reason(reason);
    v1::DrainResponse response;
    return stub.Drain(&context, request, &response);
  }
  static std::int64_t resident() { return process_memory().resident; }

  static constexpr const char* kMethod = "/meshloom.v1.WorkerService/Drain";
  GateService service_;
  GrpcServer server_{{resolve_listen_address("127.0.0.1:0", "listen"), {&service_}, 16}};
};

TEST_F(ConnectionWatchTest, CallsThatAreResetAtOnceEndTheirConnection) {
  const auto before = resident();
  test::RawHttp2 hostile(server_.port());
  std::int64_t calls = 0;
  EXPECT_TRUE(test::reset_rapidly(hostile, kMethod, 20s, &calls)) << calls;
  EXPECT_GT(calls, ConnectionWatch::kMostReset);
  EXPECT_LT(resident() - before, 300 << 20) << calls;
  test::RawHttp2 again(server_.port());
  EXPECT_TRUE(again.ends_within(1s)) << "the client is barred for a moment";
  const auto stub = client();
  EXPECT_TRUE(test::eventually([&] { return call(*stub).ok(); }));
}

TEST_F(ConnectionWatchTest, AHeaderWithoutEndEndsItsConnection) {
  const auto before = resident();
  test::RawHttp2 hostile(server_.port());
  std::int64_t bytes = 0;
  EXPECT_TRUE(test::continue_headers(hostile, kMethod, 20s, &bytes)) << bytes;
  // gRPC keeps a header of its own for each that it has read: up to twice the bytes.
  EXPECT_LT(resident() - before, 512 << 20) << bytes;
  const auto stub = client();
  EXPECT_TRUE(test::eventually([&] { return call(*stub).ok(); }));
}

TEST_F(ConnectionWatchTest, LargeMessagesAreLeftAlone) {
  const auto stub = client();
  const std::string large(15 << 20, 'x');
  std::vector<std::future<int>> senders;
  for (int i = 0; i < 4; ++i)
    senders.push_back(std::async(std::launch::async, [&] {
      int failed = 0;
      for (int n = 0; n < 2; ++n) failed += !call(*stub, large).ok();
      return failed;
    }));
  int failed = 0;
  for (auto& sender : senders) failed += sender.get();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(service_.bytes, std::int64_t{8} * (15 << 20));
}

TEST_F(ConnectionWatchTest, CallsThatWaitAndSomeThatAreCancelledAreLeftAlone) {
  const auto stub = client();
  service_.closed = true;
  std::vector<std::future<grpc::Status>> waiting;
  for (int i = 0; i < 80; ++i)
    waiting.push_back(std::async(std::launch::async, [&] { return call(*stub); }));
  for (int i = 0; i < 200; ++i)
    EXPECT_EQ(call(*stub, "", 5ms).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  service_.closed = false;
  for (auto& one : waiting) EXPECT_TRUE(one.get().ok());
}

}  // namespace
}  // namespace meshloom::control
