// SPDX-License-Identifier: Apache-2.0
// A loss of many micro batches is left between two of them, on all ranks together.
#include <gtest/gtest.h>

#include <atomic>

#include "daemon/train/run/gradient_window.h"
#include "daemon/train/run/stop_points.h"
#include "tests/unit/train/run/stepped_fixture.h"

namespace meshloom::train {
namespace {

class SteppedStopTest : public SteppedFixture {
 protected:
  /// Of one datum a micro batch.
  static v1::LossBatch long_batch(std::uint64_t seed) {
    v1::LossBatch batch = random_batch("cross_entropy", 24, seed);
    batch.set_micro_batch_size(1);
    return batch;
  }
};

TEST_F(SteppedStopTest, AllRanksLeaveItAndGoOnWithTheSameBits) {
  const v1::LossBatch left = long_batch(5), next = random_batch("cross_entropy", 4, 6);
  for (const WholeMesh& mesh : kWholeMeshes) {
    std::map<std::string, std::vector<float>> expected;
    on_mesh(mesh, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
      run.forward_backward(next);
      run.optim_step({});
      const auto values = parameters_of(run);
      if (world.rank() == 0) expected = values;
    });
    std::atomic<int> asked{0};
    std::atomic<bool> stop{false};
    RunOptions options;
    options.stopped = [&](bool) {
      ++asked;
      return stop.load();
    };
    on_mesh(
        mesh,
        [&](WholeBatchRun& run, comm::ProcessGroup& world) {
          if (world.rank() == 0) stop = true;
          EXPECT_EQ(reason_of<Cancelled>([&] { run.forward(left, false); }), kVerbStopped);
          EXPECT_EQ(reason_of<Cancelled>([&] { run.forward_backward(left); }), kVerbStopped);
          if (world.rank() == 0) stop = false;
          EXPECT_EQ(reason_of<FailedPrecondition>([&] { run.optim_step({}); }), kGradientsPoisoned);
          run.forward_backward(next);
          EXPECT_EQ(run.optim_step({}).step(), 1);
          const auto values = parameters_of(run);
          if (world.rank() == 0) {
            EXPECT_EQ(values, expected);
          }
        },
        options);
    EXPECT_GE(asked, 3);
    EXPECT_LE(asked, 2 * (24 + 1) + 8) << "each micro batch asked on every rank";
  }
}

TEST_F(SteppedStopTest, WhatIsRequestedBehindTheLastMicroBatchCountsUntilItIsAskedForTheLastTime) {
  RunOptions options;
  std::atomic<bool> last_seen{false};
  options.stopped = [&](bool last) {
    if (last) last_seen = true;
    return last;
  };
  v1::LossBatch one = random_batch("cross_entropy", 1, 7);
  on_mesh(
      {"dp2", 2},
      [&](WholeBatchRun& run, comm::ProcessGroup&) {
        EXPECT_EQ(reason_of<Cancelled>([&] { run.forward_backward(one); }), kVerbStopped);
        EXPECT_EQ(reason_of<FailedPrecondition>([&] { run.optim_step({}); }), kGradientsPoisoned);
      },
      options);
  EXPECT_TRUE(last_seen);
}

}  // namespace
}  // namespace meshloom::train
