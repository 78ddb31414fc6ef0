// SPDX-License-Identifier: Apache-2.0
// Weights that a run keeps in memory while samples draw from them, with fake runs on two ranks.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

class RunSnapshotTest : public RunServiceTest {
 protected:
  Client ready_client() {
    Client made = with_run();
    made.wait_for(v1::RUN_STATE_READY);
    return made;
  }
  /// Another client of the same run.
  Client beside(const Client& other) {
    Client made = client();
    made.run_ = other.run_;
    made.token_ = other.token_;
    return made;
  }
};

TEST_F(RunSnapshotTest, ASampleThatWaitsDrawsFromTheWeightsThatHadTheName) {
  // After one sample no other begins while something trains.
  options_.sample_share = 1e-4;
  plan_.token_time = 2ms;
  start();
  Client client = ready_client();
  const auto train_and_save = [&](std::int64_t seq) {
    client.forward_backward(seq, {1});
    client.optim_step(seq + 1);
    client.save_weights(seq + 2, "one", v1::WEIGHTS_STORAGE_MEMORY);
    const v1::Operation saved = client.wait(seq + 2);
    EXPECT_EQ(saved.state(), v1::OPERATION_STATE_SUCCEEDED) << saved.error().message();
  };
  train_and_save(1);
  ASSERT_TRUE(client.sample(1, 1).ok());
  client.wait(client.last_.name());
  plan_.trains = true;
  v1::SampleRequest request = client.sample_request(1, 2);
  request.set_weights(client.weights_name("one"));
  ASSERT_TRUE(client.sample(request).ok());
  const std::string waiting = client.last_.name();
  ASSERT_TRUE(client.delete_weights("one").ok());
  train_and_save(4);
  EXPECT_EQ(plan_.snapshots, 2) << "those that were deleted, and those that have their name";
  plan_.trains = false;
  const v1::Operation drawn = client.wait(waiting);
  ASSERT_EQ(drawn.state(), v1::OPERATION_STATE_SUCCEEDED) << drawn.error().message();
  EXPECT_EQ(drawn.result().sample().sequences(0).first_weights_step(), 1);
  EXPECT_EQ(drawn.result().sample().sequences(0).weights_step(), 1);
  test::eventually([&] { return plan_.snapshots == 1; });
  EXPECT_EQ(plan_.snapshots, 1);
  ASSERT_TRUE(client.sample(request).ok());
  const v1::Operation newer = client.wait(client.last_.name());
  EXPECT_EQ(newer.result().sample().sequences(0).weights_step(), 2);
}

TEST_F(RunSnapshotTest, OfTwoThatAskForTheLastMemoryAtOnceOneGetsIt) {
  start();
  Client client = ready_client();
  for (int i = 0; i < 7; ++i)
    client.save_weights(1 + i, "w" + std::to_string(i), v1::WEIGHTS_STORAGE_MEMORY);
  client.save_weights(8, "disk", v1::WEIGHTS_STORAGE_DISK);
  ASSERT_EQ(client.wait(8).state(), v1::OPERATION_STATE_SUCCEEDED);
  plan_.token_time = 1ms;
  // The first waits in there for the other, which has to be refused before it comes so far.
  std::atomic<int> asked = 0, refused = 0;
  plan_.on_hold_snapshot = [&] {
    ++asked;
    test::eventually([&] { return asked == 2 || refused == 1; });
  };
  std::thread sampler([&] {
    Client own = beside(client);
    v1::SampleRequest request = own.sample_request(1, 30'000);
    request.set_weights(own.weights_name("disk"));
    const grpc::Status status = own.sample(request);
    if (status.ok()) return;
    EXPECT_EQ(info_of(status).reason(), "TOO_MANY_SNAPSHOTS");
    ++refused;
  });
  client.save_weights(9, "w7", v1::WEIGHTS_STORAGE_MEMORY);
  const v1::Operation saved = client.wait(9);
  if (saved.state() != v1::OPERATION_STATE_SUCCEEDED) {
    EXPECT_EQ(saved.error().info().reason(), "TOO_MANY_SNAPSHOTS");
    ++refused;
  }
  sampler.join();
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(plan_.snapshots, 8);
}

TEST_F(RunSnapshotTest, TwoThatDrawFromTheSameWeightsOnDiskAtOnceShareOneCopy) {
  start();
  Client client = ready_client();
  client.save_weights(1, "disk", v1::WEIGHTS_STORAGE_DISK);
  ASSERT_EQ(client.wait(1).state(), v1::OPERATION_STATE_SUCCEEDED);
  plan_.token_time = 1ms;
  std::atomic<int> asked = 0;
  plan_.on_hold_snapshot = [&] {
    ++asked;
    // Long enough for the other to come here, were it not kept out.
    std::this_thread::sleep_for(100ms);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      Client own = beside(client);
      v1::SampleRequest request = own.sample_request(1, 10'000);
      request.set_weights(own.weights_name("disk"));
      EXPECT_TRUE(own.sample(request).ok());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(plan_.snapshots, 1);
}

}  // namespace
}  // namespace meshloom::control
