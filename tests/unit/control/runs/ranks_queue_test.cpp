// SPDX-License-Identifier: Apache-2.0
// Who waits is told behind whom, and for how long at most.
#include "daemon/control/runs/ranks_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class RanksQueueTest : public RunServiceTest {
 protected:
  void submit(const std::string& name, std::int64_t steps) {
    v1::SubmitJobRequest request;
    request.mutable_spec()->set_name(name);
    v1::RunConfig& run = *request.mutable_spec()->mutable_run();
    run.mutable_training()->set_steps(steps);
    // The tokens that count are those of the steps: one a step here.
    run.mutable_training()->set_global_batch_size(64);
    run.mutable_training()->set_seq_len(32);
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    const auto status =
        v1::JobService::NewStub(daemon_->channel())->SubmitJob(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  v1::Job get(const std::string& name) {
    v1::GetJobRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    v1::GetJobResponse response;
    v1::JobService::NewStub(daemon_->channel())->GetJob(&context, request, &response);
    return response.job();
  }
};

TEST_F(RanksQueueTest, AJobBehindAnIdleRunIsToldHowLongItsLeaseHoldsTheRanks) {
  start();
  v1::RunSpec spec;
  spec.set_name("idle");
  spec.set_lease_seconds(60);
  Client client = with_run(spec);
  client.wait_for(v1::RUN_STATE_READY);
  submit("first", 3);
  submit("second", 3);
  ASSERT_TRUE(test::eventually([&] { return get("first").wait().ahead_size() == 1; }));
  const v1::RanksWait first = get("first").wait();
  EXPECT_EQ(first.ahead(0).name(), "runs/idle");
  EXPECT_EQ(first.ahead(0).client(), "tester");
  EXPECT_TRUE(first.ahead(0).has_ranks());
  EXPECT_TRUE(first.ahead(0).idle());
  EXPECT_GT(first.seconds(), 0.0);
  EXPECT_LE(first.seconds(), 60.0);
  EXPECT_GT(first.waited_seconds(), 0.0);
  EXPECT_THAT(first.reason(),
              HasSubstr("behind runs/idle, whose client \"tester\" does nothing: its lease ends in "
                        "at most "));
  // The second comes behind the first, of which nothing is known yet.
  const v1::RanksWait second = get("second").wait();
  ASSERT_EQ(second.ahead_size(), 2);
  EXPECT_EQ(second.ahead(1).name(), "jobs/first");
  EXPECT_FALSE(second.has_seconds());
  EXPECT_THAT(second.reason(), HasSubstr(", then jobs/first"));
  EXPECT_EQ(daemon_->queue().whole().ahead_count(), 3);
  client.close();
  daemon_->wait_for("second", v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(get("second").has_wait());
}

TEST_F(RanksQueueTest, ARunBehindAJobIsToldTheTimeOfTheStepsThatAreLeft) {
  plan_.step_time = 5ms;
  start();
  submit("long", 100'000);
  daemon_->wait_for_step("long", 3);
  Client client = with_run();
  EXPECT_EQ(client.get().state(), v1::RUN_STATE_QUEUED);
  const v1::RanksWait wait = client.get().wait();
  ASSERT_EQ(wait.ahead_size(), 1) << wait.DebugString();
  EXPECT_EQ(wait.ahead(0).name(), "jobs/long");
  EXPECT_TRUE(wait.has_seconds()) << wait.DebugString();
  EXPECT_NEAR(wait.seconds(), 100.0, 1.0) << "100,000 steps of a token at 1000 tokens a second";
  EXPECT_THAT(wait.reason(), HasSubstr("jobs/long (about "));
  // So is whoever waits for one of its verbs, and who renews its lease.
  client.forward(1, {1});
  EXPECT_THAT(client.wait(client.name_of(1), 50).waits_for(), HasSubstr("behind jobs/long"));
  v1::HeartbeatRequest request;
  request.set_name(client.run_.name());
  grpc::ClientContext context;
  context.AddMetadata(kRunTokenKey, client.token_);
  v1::HeartbeatResponse response;
  ASSERT_TRUE(
      v1::RunService::NewStub(client.channel())->Heartbeat(&context, request, &response).ok());
  EXPECT_EQ(response.wait().ahead(0).name(), "jobs/long");
  daemon_->store().cancel("long", {});
  client.wait_for(v1::RUN_STATE_READY);
  EXPECT_FALSE(client.get().has_wait());
}

TEST_F(RanksQueueTest, ADrainedDaemonSaysSo) {
  start();
  daemon_->drain().begin("new memory");
  submit("a", 3);
  ASSERT_TRUE(test::eventually([&] { return get("a").has_wait(); }));
  const v1::RanksWait wait = get("a").wait();
  EXPECT_EQ(wait.drained(), "new memory");
  EXPECT_EQ(wait.ahead_size(), 0);
  EXPECT_THAT(wait.reason(), HasSubstr("the daemon is drained (new memory)"));
  EXPECT_THAT(wait.reason(), HasSubstr("meshloom undrain"));
  daemon_->drain().end();
  daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
}

TEST(WaitText, IsShort) {
  EXPECT_EQ(wait_text(0.2), "1 s");
  EXPECT_EQ(wait_text(119), "119 s");
  EXPECT_EQ(wait_text(185), "3m05s");
  EXPECT_EQ(wait_text(7260), "2h01m");
}

}  // namespace
}  // namespace meshloom::control
