// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/bounded_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "daemon/control/host/hold.h"
#include "daemon/control/net/grpc_server.h"
#include "daemon/control/net/listen_address.h"
#include "daemon/control/services/job_service.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/fake_admission.h"
#include "tests/unit/control/open_job_store.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A file system that answers when it is told to. Calls own it, as they may outlive the test.
struct Gate {
  std::promise<void> open;
  std::shared_future<void> opened = open.get_future().share();
};

void expect_ended(const BoundedCalls& calls) {
  const auto end = Clock::now() + 20s;
  while (calls.running() > 0 && Clock::now() < end) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(calls.running(), 0);
}

TEST(BoundedCalls, GivesBackWhatTheCallReturnsOrThrows) {
  BoundedCalls calls(60s, 4);
  EXPECT_EQ(calls.run<int>([] { return 7; }), 7);
  EXPECT_THROW(calls.run<int>([]() -> int { throw NotFound("nothing"); }), NotFound);
  expect_ended(calls);
}

TEST(BoundedCalls, ACallOwnsWhatCanBeMovedAloneUntilItHasEnded) {
  std::atomic<int> releases = 0;
  BoundedCalls calls(60s, 4);
  EXPECT_TRUE(
      calls.run<bool>([hold = Hold([&] { ++releases; })] { return static_cast<bool>(hold); }));
  expect_ended(calls);
  EXPECT_EQ(releases, 1);
  Hold kept =
      calls.run<Hold>([hold = Hold([&] { ++releases; })]() mutable { return std::move(hold); });
  expect_ended(calls);
  EXPECT_TRUE(kept);
  EXPECT_EQ(releases, 1);
}

TEST(BoundedCalls, ACallThatNobodyWaitsForCanEnd) {
  BoundedCalls calls(50ms, 2);
  EXPECT_EQ(calls.run<int>([](const BoundedCalls::Alive& alive) {
    alive();
    return 7;
  }),
            7);
  const auto endless = [](const BoundedCalls::Alive& alive) -> int {
    for (;; std::this_thread::sleep_for(1ms)) alive();
  };
  EXPECT_THROW(calls.run<int>(endless), DeadlineExceeded);
  expect_ended(calls);
}

TEST(BoundedCalls, AHangingCallIsLeftBehindAndCounted) {
  const auto gate = std::make_shared<Gate>();
  BoundedCalls calls(50ms, 2);
  const std::function<int()> hang = [gate] {
    gate->opened.wait();
    return 1;
  };
  for (int i = 0; i < 2; ++i) {
    try {
      calls.run<int>(hang);
      FAIL() << "a hanging call has returned";
    } catch (const DeadlineExceeded& error) {
      EXPECT_EQ(error.reason(), "FILE_SYSTEM_STUCK");
    }
  }
  EXPECT_EQ(calls.running(), 2);
  EXPECT_THROW(calls.run<int>([] { return 7; }), ResourceExhausted);
  gate->open.set_value();
  expect_ended(calls);
  EXPECT_EQ(calls.run<int>([] { return 7; }), 7);
}

TEST(BoundedCalls, AStopLetsAllGoThatWait) {
  const auto gate = std::make_shared<Gate>();
  BoundedCalls calls(600s, 4);
  std::thread stopper([&] {
    while (calls.running() == 0) std::this_thread::sleep_for(1ms);
    calls.stop();
  });
  EXPECT_THROW(calls.run<int>([gate] {
    gate->opened.wait();
    return 1;
  }),
               Unavailable);
  stopper.join();
  EXPECT_THROW(calls.run<int>([] { return 7; }), Unavailable);
  gate->open.set_value();
  expect_ended(calls);
}

TEST(BoundedCalls, AServerWithAHangingRequestShutsDown) {
  const test::TempFolder folder;
  const auto gate = std::make_shared<Gate>();
  BoundedCalls calls(600s, 4);
  OpenJobStore store(folder.path() / "journal", {folder.path() / "jobs"});
  FakePlan plan;
  FakeAdmission admission(plan, folder.path(), [&calls, gate] {
    calls.run<bool>([gate] {
      gate->opened.wait();
      return true;
    });
  });
  const StateDir state(folder / "state");
  JobServiceImpl service(store, admission, state);
  GrpcServer server({resolve_listen_address("127.0.0.1:0", "listen"), {&service}, 16});
  const auto stub = v1::JobService::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(server.port()), grpc::InsecureChannelCredentials()));
  std::thread client([&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 60s);
    v1::SubmitJobRequest request;
    request.mutable_spec()->mutable_run()->mutable_training()->set_steps(1);
    v1::SubmitJobResponse response;
    EXPECT_EQ(stub->SubmitJob(&context, request, &response).error_code(),
              grpc::StatusCode::UNAVAILABLE);
  });
  while (calls.running() == 0) std::this_thread::sleep_for(1ms);
  const auto begin = Clock::now();
  calls.stop();
  client.join();
  server.shutdown();
  EXPECT_LT(Clock::now() - begin, 20s);
  gate->open.set_value();
  expect_ended(calls);
}

}  // namespace
}  // namespace meshloom::control
