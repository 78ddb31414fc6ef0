// SPDX-License-Identifier: Apache-2.0
// Runs that begin anew from a saved state while newer ones are damaged, with fake runs on two
// ranks.
#include <gtest/gtest.h>

#include <fstream>

#include "daemon/control/stores/lost_folder.h"
#include "tests/support/eventually.h"
#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

class RunRecoveryTest : public RunServiceTest {
 protected:
  /// Trained for two steps, each of which is saved, as "one" and "two"; the next number is 7.
  Client trained() {
    Client made = with_run();
    made.wait_for(v1::RUN_STATE_READY);
    std::int64_t seq = 1;
    for (const char* state : {"one", "two"}) {
      made.forward_backward(seq++, {1});
      made.optim_step(seq++);
      made.save_state(seq, state);
      EXPECT_EQ(made.wait(seq++).state(), v1::OPERATION_STATE_SUCCEEDED);
    }
    return made;
  }
  static std::string state_name(const Client& client, const std::string& state) {
    return client.run_.name() + "/states/" + state;
  }
  std::filesystem::path file_of(Client& client, int state) {
    return daemon_->state().root() / client.get().saved(state).folder() / "state";
  }
  void damage(Client& client, int state) { std::ofstream(file_of(client, state)) << "damaged"; }
  /// Loses the weights.
  void lose(Client& client, std::int64_t seq) {
    plan_.fail_alone_at_step = client.get().step() + 1;
    client.forward_backward(seq, {1});
    client.optim_step(seq + 1);
    client.wait(seq + 1);
    plan_.fail_alone_at_step = -1;
  }
  static v1::Run wait_for_epoch(Client& client, std::int64_t epoch) {
    test::eventually([&] {
      const v1::Run run = client.get();
      return run.state() == v1::RUN_STATE_FAILED ||
             (run.state() == v1::RUN_STATE_READY && run.epoch() == epoch);
    });
    return client.get();
  }
  std::string drawing(Client& client, const std::string& weights, int max_tokens) {
    v1::SampleRequest request = client.sample_request(1, max_tokens);
    if (!weights.empty()) request.set_weights(client.weights_name(weights));
    const grpc::Status status = client.sample(request);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return client.last_.name();
  }
  /// Of an operation that began before "two" became what the second epoch begins with.
  static void expect_recovered(Client& client, const std::string& operation) {
    const v1::ErrorDetails error = client.wait(operation).error();
    EXPECT_EQ(error.code(), grpc::StatusCode::ABORTED) << error.message();
    EXPECT_EQ(error.info().reason(), "RUN_RECOVERED") << error.message();
    const auto& told = error.info().metadata();
    ASSERT_TRUE(told.contains("state"));
    EXPECT_EQ(told.at("state"), state_name(client, "two"));
    EXPECT_EQ(told.at("epoch"), "2");
    EXPECT_EQ(told.at("next_seq"), "7");
  }
  void expect_first_state(Client& client, const v1::Run& run) {
    EXPECT_EQ(run.state(), v1::RUN_STATE_READY);
    EXPECT_EQ(run.step(), 1);
    EXPECT_EQ(run.next_seq(), 4);
    EXPECT_EQ(run.cause().info().reason(), "STATE_DAMAGED");
    EXPECT_NE(run.cause().message().find(state_name(client, "two") + " was skipped"),
              std::string::npos)
        << run.cause().message();
    ASSERT_EQ(run.saved_size(), 2);
    EXPECT_FALSE(run.saved(0).has_damage());
    EXPECT_TRUE(run.saved(1).has_damage());
    client.get_weight(4, run.epoch());
    EXPECT_EQ(weight(client.wait(client.name_of(4, run.epoch()))), -1);
  }
};

TEST_F(RunRecoveryTest, ADamagedNewestStateIsSkippedAndNamed) {
  start();
  Client client = trained();
  damage(client, 1);
  lose(client, 7);
  // The second epoch was to begin from the damaged one.
  expect_first_state(client, wait_for_epoch(client, 3));
  const auto lost = info_of(client.get_weight(4, 2));
  EXPECT_EQ(lost.reason(), "RUN_RECOVERED");
  EXPECT_EQ(lost.metadata().at("state"), state_name(client, "one"));
  EXPECT_EQ(lost.metadata().at("next_seq"), "5");
}

TEST_F(RunRecoveryTest, SoIsOneThatHasGoneWhileNoDaemonRan) {
  start();
  Client other = trained();
  plan_.fail_saves = true;  // the stop saves nothing newer
  std::filesystem::remove(file_of(other, 1));
  restart();
  plan_.fail_saves = false;
  Client after = this->client();
  after.run_ = other.run_;
  after.token_ = other.token_;
  expect_first_state(after, wait_for_epoch(after, 3));
  // The next start knows of it.
  plan_.fail_saves = true;
  restart();
  Client later = this->client();
  later.run_ = other.run_;
  const v1::Run run = wait_for_epoch(later, 4);
  EXPECT_EQ(run.state(), v1::RUN_STATE_READY);
  EXPECT_EQ(run.step(), 1);
  EXPECT_FALSE(run.has_cause());
}

TEST_F(RunRecoveryTest, WhatAKillLeftOfSavesIsRemovedAtStart) {
  namespace fs = std::filesystem;
  start();
  Client client = trained();
  const fs::path state = file_of(client, 0).parent_path(), folder = state.parent_path();
  const fs::path weights = folder.parent_path() / "weights";
  for (const fs::path& left :
       {folder / ".tmp-three", weights / ".kept.123.tmp", weights / "unknown"}) {
    fs::create_directories(left);
    std::ofstream(left / "shard") << "half";
  }
  restart();
  EXPECT_FALSE(fs::exists(folder / ".tmp-three"));
  EXPECT_FALSE(fs::exists(weights / ".kept.123.tmp"));
  EXPECT_FALSE(fs::exists(weights / "unknown")) << "its name is free";
  const auto lost = LostFolder(daemon_->state().root()).list();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].files, 1) << "and it is kept";
  EXPECT_TRUE(fs::exists(state / "state"));
}

TEST_F(RunRecoveryTest, ARunWhoseStatesAreAllDamagedFailsAndSaysWhichTheyAre) {
  start();
  Client client = trained();
  damage(client, 0);
  damage(client, 1);
  lose(client, 7);
  const v1::Run run = wait_for_epoch(client, 3);
  EXPECT_EQ(run.state(), v1::RUN_STATE_FAILED);
  EXPECT_EQ(run.cause().info().reason(), "STATES_DAMAGED");
  for (const char* state : {"one", "two"})
    EXPECT_NE(run.cause().message().find(state_name(client, state)), std::string::npos)
        << run.cause().message();
  EXPECT_EQ(info_of(client.get_weight(4, run.epoch())).reason(), "RUN_CLOSED");
}

TEST_F(RunRecoveryTest, ANewStateIsWhatTheNextEpochBeginsFrom) {
  start();
  Client client = trained();
  damage(client, 1);
  lose(client, 7);
  ASSERT_EQ(wait_for_epoch(client, 3).state(), v1::RUN_STATE_READY);
  client.save_state(4, "two", 3);
  EXPECT_EQ(client.wait(client.name_of(4, 3)).error().info().reason(), "STATE_EXISTS");
  client.save_state(5, "three", 3);
  EXPECT_EQ(client.wait(client.name_of(5, 3)).state(), v1::OPERATION_STATE_SUCCEEDED);
  client.close();
  const v1::Run closed = client.wait_for(v1::RUN_STATE_CLOSED);
  EXPECT_FALSE(closed.has_cause()) << "its client has closed it";
}

TEST_F(RunRecoveryTest, SamplesThatDrawWhenTheWeightsAreLostNameTheNextEpoch) {
  plan_.token_time = std::chrono::milliseconds(2);
  start();
  Client client = trained();
  client.save_weights(7, "memory", v1::WEIGHTS_STORAGE_MEMORY);
  client.wait(7);
  const std::string own = drawing(client, "", 30'000);
  const std::string snapshot = drawing(client, "memory", 30'000);
  lose(client, 8);
  expect_recovered(client, own);
  expect_recovered(client, snapshot);
}

TEST_F(RunRecoveryTest, SamplesThatWaitMeanwhileDrawFromWeightsOnDiskAlone) {
  plan_.token_time = std::chrono::milliseconds(100);
  plan_.trains = true;
  options_.sample_share = 0.05;  // after one token the next ones wait for 20 times as long
  start();
  Client client = trained();
  client.save_weights(7, "disk", v1::WEIGHTS_STORAGE_DISK);
  client.save_weights(8, "memory", v1::WEIGHTS_STORAGE_MEMORY);
  client.wait(8);
  client.wait(drawing(client, "", 1));
  const std::string own = drawing(client, "", 1), snapshot = drawing(client, "memory", 1);
  const std::string disk = drawing(client, "disk", 1);
  lose(client, 9);
  wait_for_epoch(client, 2);
  expect_recovered(client, own);
  expect_recovered(client, snapshot);
  EXPECT_EQ(client.wait(disk).state(), v1::OPERATION_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace meshloom::control
