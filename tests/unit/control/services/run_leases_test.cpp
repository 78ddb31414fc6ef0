// SPDX-License-Identifier: Apache-2.0
// The lease of a run: what renews it, what its end saves and tells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class RunLeasesTest : public RunServiceTest {
 protected:
  Client with_lease(std::int64_t seconds) {
    v1::RunSpec spec;
    spec.set_lease_seconds(seconds);
    return with_run(spec);
  }
  /// Calls for longer than a lease of one second.
  template <typename Call>
  static void keep_calling(const Call& call) {
    for (int i = 0; i < 18; ++i) {
      call();
      std::this_thread::sleep_for(100ms);
    }
  }
};

TEST_F(RunLeasesTest, ALeaseThatEndsSavesAndFreesTheRanks) {
  start();
  v1::RunSpec spec;
  spec.set_lease_seconds(1);
  Client client = with_run(spec);
  client.forward_backward(1, {1});
  client.optim_step(2);
  client.wait(2);
  const v1::Run closed = client.wait_for(v1::RUN_STATE_CLOSED);
  EXPECT_EQ(closed.state(), v1::RUN_STATE_CLOSED);
  EXPECT_EQ(closed.cause().info().reason(), "LEASE_ENDED");
  ASSERT_EQ(closed.saved_size(), 1);
  EXPECT_EQ(closed.saved(0).name(), client.run_.name() + "/states/lease-1");
  const v1::ErrorInfo refused = info_of(client.forward_backward(3, {1}));
  EXPECT_EQ(refused.reason(), "LEASE_ENDED");
  EXPECT_EQ(refused.metadata().at("next_seq"), "3");
  v1::RunSpec next;
  next.set_state(closed.saved(0).name());
  Client after = with_run(next);
  after.get_weight(1);
  EXPECT_EQ(weight(after.wait(1)), -1.0);
  EXPECT_EQ(after.get().step(), 1);
}

TEST_F(RunLeasesTest, AnyCallForTheRunRenewsIt) {
  start();
  Client client = with_lease(1);
  client.wait_for(v1::RUN_STATE_READY);
  const auto operations = v1::OperationService::NewStub(daemon_->channel());
  keep_calling([&] { client.get(); });
  keep_calling([&] {
    v1::ListOperationsRequest request;
    request.set_run(client.run_.name());
    grpc::ClientContext context;
    context.AddMetadata(kRunTokenKey, client.token_);
    v1::ListOperationsResponse response;
    operations->ListOperations(&context, request, &response);
  });
  keep_calling([&] { client.delete_weights("none"); });
  EXPECT_EQ(client.state(), v1::RUN_STATE_READY);
  client.wait_for(v1::RUN_STATE_CLOSED);
  EXPECT_EQ(client.get().cause().info().reason(), "LEASE_ENDED");
  EXPECT_EQ(info_of(client.heartbeat()).reason(), "LEASE_ENDED");
}

TEST_F(RunLeasesTest, WhoOnlyLooksRenewsNothingAndIsToldNothing) {
  plan_.parameter_bytes = 3'000'000;
  start();
  Client client = with_lease(30);
  client.wait_for(v1::RUN_STATE_READY);
  client.forward(1, {1});
  client.get_weight(2);
  client.wait(2);
  Client stranger = client.stranger();
  const auto operations = v1::OperationService::NewStub(daemon_->channel());
  const auto left = [&] {
    grpc::ClientContext context;
    v1::ListRunsResponse response;
    v1::RunService::NewStub(client.channel())->ListRuns(&context, {}, &response);
    return response.runs(0).lease_left_ms();
  };
  const auto before = std::chrono::steady_clock::now();
  const std::int64_t then = left();
  std::this_thread::sleep_for(300ms);
  stranger.get();
  EXPECT_EQ(stranger.wait(1).result().loss().outputs_size(), 1);
  EXPECT_EQ(stranger.watch(stranger.name_of(1)).back().operation().state(),
            v1::OPERATION_STATE_SUCCEEDED);
  std::vector<std::size_t> pieces;
  EXPECT_GT(stranger.read_result(stranger.name_of(2), &pieces).size(), 3'000'000u);
  {
    v1::ListOperationsRequest request;
    request.set_run(client.run_.name());
    grpc::ClientContext context;
    v1::ListOperationsResponse response;
    operations->ListOperations(&context, request, &response);
    EXPECT_EQ(response.operations_size(), 2);
  }
  {
    v1::GetOperationRequest request;
    request.set_name(client.name_of(1));
    grpc::ClientContext context;
    v1::GetOperationResponse response;
    EXPECT_TRUE(operations->GetOperation(&context, request, &response).ok());
  }
  const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - before);
  EXPECT_LE(left(), then - passed.count() + 20);
  // None of these looks has told the outcome: it is not what makes room.
  for (int i = 0; i < static_cast<int>(Operations::kKept) + 20; ++i)
    daemon_->runs().operations().restore("run-1", fmt::format("operations/run-1/1/x{}", i), "none",
                                         std::make_shared<v1::VerbResult>());
  EXPECT_TRUE(daemon_->runs().operations().has(client.name_of(1)));
  EXPECT_EQ(client.wait(1).result().loss().outputs_size(), 1);
  // A wrong token is refused: its owner would believe that it holds the run.
  stranger.token_ = "0123456789abcdef0123456789abcdef";
  stranger.wait(1);
  EXPECT_EQ(info_of(stranger.status_).reason(), "TOKEN_INVALID");
  stranger.watch(stranger.name_of(1));
  EXPECT_EQ(info_of(stranger.status_).reason(), "TOKEN_INVALID");
}

TEST_F(RunLeasesTest, AStrangerWhoPollsDoesNotKeepItAlive) {
  start();
  Client client = with_lease(1);
  client.wait_for(v1::RUN_STATE_READY);
  Client stranger = client.stranger();
  keep_calling([&] { stranger.get(); });
  const v1::Run closed = client.wait_for(v1::RUN_STATE_CLOSED);
  EXPECT_EQ(closed.cause().info().reason(), "LEASE_ENDED");
}

TEST_F(RunLeasesTest, AnUploadForItHoldsIt) {
  start();
  Client client = with_lease(1);
  const auto uploads = v1::UploadService::NewStub(daemon_->channel());
  v1::CreateUploadRequest request;
  request.set_kind(v1::UPLOAD_KIND_TRANSIENT);
  request.set_size_bytes(3);
  request.set_run(client.run_.name());
  v1::CreateUploadResponse made;
  {
    grpc::ClientContext context;
    context.AddMetadata(kRunTokenKey, client.token_);
    context.AddMetadata("meshloom-client", "tester");
    ASSERT_TRUE(uploads->CreateUpload(&context, request, &made).ok());
  }
  grpc::ClientContext context;
  context.AddMetadata(kRunTokenKey, client.token_);
  context.AddMetadata("meshloom-client", "tester");
  v1::WriteUploadResponse response;
  const auto writer = uploads->WriteUpload(&context, &response);
  v1::WriteUploadRequest first;
  first.set_upload(made.upload().name());
  ASSERT_TRUE(writer->Write(first));
  std::this_thread::sleep_for(1800ms);
  EXPECT_EQ(client.state(), v1::RUN_STATE_READY);
  writer->WritesDone();
  writer->Finish();
  client.wait_for(v1::RUN_STATE_CLOSED);
}

TEST_F(RunLeasesTest, ItsEndNamesNoStateBeforeTheLastOneIsSaved) {
  std::promise<void> saving, go_on;
  std::atomic<bool> first{true};
  plan_.on_save_state = [&] {
    if (first.exchange(false)) return;
    saving.set_value();
    go_on.get_future().wait();
  };
  start();
  Client client = with_lease(1);
  client.save_state(1, "old");
  client.wait(1);
  saving.get_future().wait();
  EXPECT_EQ(info_of(client.forward_backward(2, {1})).reason(), "LEASE_ENDING");
  EXPECT_EQ(client.heartbeat().error_code(), grpc::StatusCode::UNAVAILABLE);
  go_on.set_value();
  client.wait_for(v1::RUN_STATE_CLOSED);
  const v1::ErrorInfo told = info_of(client.forward_backward(2, {1}));
  EXPECT_EQ(told.reason(), "LEASE_ENDED");
  EXPECT_EQ(told.metadata().at("state"), client.run_.name() + "/states/lease-0");
}

TEST_F(RunLeasesTest, AStateThatCannotBeSavedIsSaidAndTheRanksAreFree) {
  start();
  Client client = with_lease(1);
  client.wait_for(v1::RUN_STATE_READY);
  plan_.fail_saves = true;
  const v1::Run closed = client.wait_for(v1::RUN_STATE_CLOSED);
  ASSERT_GT(closed.notes_size(), 0);
  EXPECT_THAT(closed.notes(closed.notes_size() - 1),
              HasSubstr("its last state was not saved: no space left on device"));
  EXPECT_EQ(info_of(client.heartbeat()).metadata().at("state"), "");
  Client next = with_run();
  next.wait_for(v1::RUN_STATE_READY);
}

TEST_F(RunLeasesTest, ItRunsWhileTheRunIsQueuedToo) {
  start();
  Client first = with_run();
  first.wait_for(v1::RUN_STATE_READY);
  Client client = with_lease(1);
  const v1::Run closed = client.wait_for(v1::RUN_STATE_CLOSED);
  EXPECT_EQ(closed.cause().info().reason(), "LEASE_ENDED");
  EXPECT_EQ(closed.saved_size(), 0);
  EXPECT_EQ(info_of(client.forward_backward(1, {1})).reason(), "LEASE_ENDED");
}

TEST_F(RunLeasesTest, ItBeginsAnewAfterARestart) {
  start();
  Client client = with_lease(100);
  client.wait_for(v1::RUN_STATE_READY);
  const std::string name = client.run_.name();
  std::this_thread::sleep_for(1200ms);
  const auto left = [](Client& of) {
    grpc::ClientContext context;
    v1::ListRunsResponse response;
    v1::RunService::NewStub(of.channel())->ListRuns(&context, {}, &response);
    return response.runs(0).lease_left_ms();
  };
  const std::int64_t before = left(client);
  restart();
  Client after = this->client();
  EXPECT_GT(left(after), before);
}

}  // namespace
}  // namespace meshloom::control
