// SPDX-License-Identifier: Apache-2.0
// A run is deleted with all that it has left, by the client that made it, whoever has its token.
#include <gtest/gtest.h>

#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

class RunDeletionTest : public RunServiceTest {
 protected:
  Client with_saves(const std::string& name) {
    v1::RunSpec spec;
    spec.set_name(name);
    Client client = with_run(spec);
    client.save_state(1, "a");
    client.save_weights(2, "w", v1::WEIGHTS_STORAGE_DISK);
    client.wait(2);
    return client;
  }
};

TEST_F(RunDeletionTest, ItGoesWithItsStatesWeightsAndOperations) {
  start();
  Client client = with_saves("r");
  const auto folder = daemon_->state().run("r");
  EXPECT_EQ(info_of(client.delete_run()).reason(), "RUN_NOT_ENDED");
  EXPECT_EQ(client.get().saved_size(), 1);
  client.close();
  client.wait_for(v1::RUN_STATE_CLOSED);
  client.token_.clear();  // it is lost
  Client other = client.stranger();
  const v1::ErrorInfo refused = info_of(other.delete_run());
  EXPECT_EQ(refused.reason(), "RUN_OF_ANOTHER");
  EXPECT_EQ(refused.metadata().at("client"), "tester");
  EXPECT_TRUE(std::filesystem::exists(folder));
  ASSERT_TRUE(client.delete_run().ok());
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_EQ(client.get().name(), "");
  EXPECT_FALSE(daemon_->runs().operations().has("operations/r/1/1"));
  EXPECT_EQ(info_of(client.delete_run()).reason(), "RUN_NOT_FOUND");
  restart();
  EXPECT_EQ(info_of(this->client().create([&] {
              v1::RunSpec spec;
              spec.set_state("runs/r/states/a");
              return spec;
            }()))
                .reason(),
            "STATE_NOT_FOUND");
  // Its name is free.
  Client again = with_saves("r");
  EXPECT_EQ(again.get().saved_size(), 1);
}

TEST_F(RunDeletionTest, WhoMadeItClosesItWithoutItsToken) {
  start();
  Client client = with_saves("r");
  client.forward_backward(3, {1});
  client.optim_step(4);
  client.wait(4);
  client.token_.clear();  // it is lost
  Client other = client.stranger();
  const v1::ErrorInfo refused = info_of(other.close_by_force());
  EXPECT_EQ(refused.reason(), "RUN_OF_ANOTHER");
  EXPECT_EQ(client.state(), v1::RUN_STATE_READY);
  ASSERT_TRUE(client.close_by_force().ok());
  const v1::Run closed = client.wait_for(v1::RUN_STATE_CLOSED);
  EXPECT_EQ(closed.state(), v1::RUN_STATE_CLOSED);
  EXPECT_NE(closed.cause().message().find("by force"), std::string::npos) << closed.DebugString();
  ASSERT_EQ(closed.saved_size(), 2) << "its state is saved first";
  EXPECT_EQ(closed.saved(1).name(), "runs/r/states/lease-1");
  EXPECT_TRUE(client.close_by_force().ok()) << "once more does no harm";
  client.run_.set_name("runs/none");
  EXPECT_EQ(info_of(client.close_by_force()).reason(), "RUN_NOT_FOUND");
}

TEST_F(RunDeletionTest, ARepeatOfItsCreationDoesNotFindAnotherOfItsName) {
  start();
  v1::RunSpec spec;
  spec.set_name("r");
  Client client = this->client();
  ASSERT_TRUE(client.create(spec, "id-1").ok());
  client.close();
  client.wait_for(v1::RUN_STATE_CLOSED);
  ASSERT_TRUE(client.delete_run().ok());
  Client next = with_run(spec);
  EXPECT_EQ(info_of(client.create(spec, "id-1")).reason(), "RUN_DELETED");
  EXPECT_TRUE(next.heartbeat().ok()) << "its token has ended";
}

TEST_F(RunDeletionTest, WhoStillHasTheRunBringsItBackNoMore) {
  start();
  Client client = with_saves("r");
  client.close();
  client.wait_for(v1::RUN_STATE_CLOSED);
  const auto session = daemon_->runs().find("r");
  ASSERT_TRUE(client.delete_run().ok());
  try {
    session->states().remove("runs/r/states/a");
  } catch (const NotFound&) {
    // It may know that the state has gone.
  }
  session->replace_token("another");
  restart();
  EXPECT_THROW(daemon_->runs().find("r"), NotFound);
}

}  // namespace
}  // namespace meshloom::control
