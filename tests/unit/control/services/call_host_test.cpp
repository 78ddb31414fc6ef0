// SPDX-License-Identifier: Apache-2.0
// Unary calls beside gRPC's threads, over real gRPC: places, turns, ends.
#include "daemon/control/services/call_host.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <future>

#include "daemon/control/net/grpc_server.h"
#include "daemon/control/services/grpc_door.h"
#include "tests/support/eventually.h"
#include "tests/support/loopback.h"
#include "tests/unit/control/status_info.h"
#include "v1/worker_service.grpc.pb.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

/// Carries out Drain as a test says.
class HostedService final
    : public v1::WorkerService::WithCallbackMethod_Drain<v1::WorkerService::Service> {
 public:
  HostedService(const CallHost::Options& options, CallHost::Body body)
      : host(options), body_(std::move(body)) {}
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override {
    return serve(gate_, *context, *request, response,
                 [&](const Caller& caller) { return host.call("Drain", caller, *request, body_); });
  }

  CallHost host;

 private:
  const Gate gate_;
  CallHost::Body body_;
};

class CallHostTest : public ::testing::Test {
 protected:
  ~CallHostTest() override {
    allowed_ = kAll;
    calls_.clear();
    if (server_) server_->shutdown();
  }
  /// The first `allowed_` calls return, the others wait in their body, or until they may not go on.
  void serve(const CallHost::Options& options) {
    service_ = std::make_unique<HostedService>(options, [this](const CallHost::GoOn& go_on) {
      const int number = ++begun_;
      priority_ = ::getpriority(PRIO_PROCESS, 0);
      while (number > allowed_) {
        if (polls_) go_on();
        std::this_thread::sleep_for(1ms);
      }
    });
    server_ = std::make_unique<GrpcServer>(
        GrpcServerOptions{resolve_listen_address("127.0.0.1:0", "listen"), {service_.get()}, 64});
  }
  struct Call {
    grpc::ClientContext context;
    std::future<grpc::Status> status;
    bool ended() const { return status.wait_for(0s) == std::future_status::ready; }
  };
  /// Over a connection from this address, which is what a client is known by.
  Call& call(const char* from = "127.0.0.1") {
    Call& call = *calls_.emplace_back(std::make_unique<Call>());
    const auto channel = grpc::CreateInsecureChannelFromFd("test", connect_from(from));
    call.status = std::async(std::launch::async, [channel, &call] {
      v1::DrainResponse response;
      return v1::WorkerService::NewStub(channel)->Drain(&call.context, {}, &response);
    });
    return call;
  }
  int connect_from(const char* from) const {
    const int fd = test::connect_to_loopback(server_->port(), from).release();
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
  }
  void fill(int count) {
    for (int i = 0; i < count; ++i) call();
  }
  int ended() const {
    int count = 0;
    for (const auto& call : calls_) count += call->ended();
    return count;
  }

  static constexpr int kAll = 1'000'000;
  std::atomic<int> allowed_ = 0;
  std::atomic<bool> polls_ = false;
  std::atomic<int> begun_ = 0;
  std::atomic<int> priority_ = 0;
  std::unique_ptr<HostedService> service_;
  std::unique_ptr<GrpcServer> server_;
  std::vector<std::unique_ptr<Call>> calls_;
};

TEST_F(CallHostTest, OneClientHasThreeQuartersOfPlacesAndThreads) {
  serve({.what = "drains", .threads = 4, .most_calls = 8});
  fill(9);
  ASSERT_TRUE(test::eventually([&] { return ended() == 3 && begun_ == 3; }))
      << ended() << " of 9 are refused, " << begun_ << " were begun";
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(begun_, 3) << "one of four threads is left for others";
  for (const auto& call : calls_) {
    if (!call->ended()) continue;
    const grpc::Status status = call->status.get();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(info_of(status).reason(), "TOO_MANY_CALLS");
    EXPECT_NE(status.error_message().find("8 drains may wait at once, 6 of them"),
              std::string::npos)
        << status.error_message();
    call->status = std::async(std::launch::deferred, [status] { return status; });
  }
  allowed_ = kAll;
  int served = 0;
  for (const auto& call : calls_) served += call->status.get().ok();
  EXPECT_EQ(served, 6);
  calls_.clear();
  EXPECT_TRUE(call().status.get().ok()) << "places are given back";
}

TEST_F(CallHostTest, AnotherClientNeedNotWaitForTheCallsOfTheFirst) {
  serve({.what = "drains", .threads = 4, .most_calls = 40});
  fill(20);
  ASSERT_TRUE(test::eventually([&] { return begun_ == 3; }));
  call("127.0.0.2");
  EXPECT_TRUE(test::eventually([&] { return begun_ == 4; }));
}

TEST_F(CallHostTest, ClientsTakeTurns) {
  serve({.what = "drains", .threads = 1, .most_calls = 40});
  fill(20);
  ASSERT_TRUE(test::eventually([&] { return begun_ == 1; }));
  Call& other = call("127.0.0.2");
  ASSERT_TRUE(test::eventually([&] { return service_->host.calls() == 21; }));
  allowed_ = 2;
  EXPECT_TRUE(other.status.get().ok());
  EXPECT_LE(begun_, 3) << "it came last and is served before the others";
}

TEST_F(CallHostTest, ACallEndsWithItsClient) {
  serve({.what = "drains", .threads = 1});
  Call& carried_out = call();
  ASSERT_TRUE(test::eventually([&] { return begun_ == 1; }));
  Call& waiting = call();
  ASSERT_TRUE(test::eventually([&] { return service_->host.calls() == 2; }));
  waiting.context.TryCancel();
  EXPECT_EQ(waiting.status.get().error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(test::eventually([&] { return service_->host.calls() == 1; }));
  polls_ = true;
  carried_out.context.TryCancel();
  EXPECT_EQ(carried_out.status.get().error_code(), grpc::StatusCode::CANCELLED);
  allowed_ = kAll;
  EXPECT_TRUE(call().status.get().ok());
  EXPECT_EQ(begun_, 2) << "what was cancelled while it waited is not carried out";
}

TEST_F(CallHostTest, AStopEndsCalls) {
  serve({.what = "drains", .threads = 1});
  Call& carried_out = call();
  ASSERT_TRUE(test::eventually([&] { return begun_ == 1; }));
  Call& waiting = call();
  ASSERT_TRUE(test::eventually([&] { return service_->host.calls() == 2; }));
  service_->host.request_stop();
  EXPECT_EQ(info_of(waiting.status.get()).reason(), "STOPPING");
  polls_ = true;
  EXPECT_EQ(info_of(carried_out.status.get()).reason(), "STOPPING");
  const grpc::Status later = call().status.get();
  EXPECT_EQ(later.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(info_of(later).reason(), "STOPPING");
}

TEST_F(CallHostTest, ItGivesWayToTrainingUnlessToldOtherwise) {
  const int own = ::getpriority(PRIO_PROCESS, 0);
  allowed_ = kAll;
  serve({"drains"});
  ASSERT_TRUE(call().status.get().ok());
  EXPECT_GT(priority_, own);
  server_.reset();
  serve({.what = "drains", .gives_way = false});
  ASSERT_TRUE(call().status.get().ok());
  EXPECT_EQ(priority_, own);
}

}  // namespace
}  // namespace meshloom::control
