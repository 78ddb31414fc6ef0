// SPDX-License-Identifier: Apache-2.0
// How many bytes of a client's batch go to which rank.
#include <gtest/gtest.h>

#include "daemon/control/ranks/run_client.h"
#include "tests/unit/control/ranks/failed_ranks.h"

namespace meshloom::control {
namespace {

/// Keeps what it is sent.
struct BatchRecorder : CommandSink {
  std::vector<CommandPtr> commands;
  bool send(CommandPtr command) override {
    commands.push_back(std::move(command));
    return true;
  }
};

v1::LossCommand batch_of(int data, int tokens) {
  v1::LossCommand command;
  command.set_backward(true);
  v1::LossBatch& batch = *command.mutable_batch();
  batch.set_loss("cross_entropy");
  for (int i = 0; i < data; ++i) {
    v1::Datum& datum = *batch.add_data();
    for (int t = 0; t < tokens; ++t) {
      datum.add_tokens(t % 100);
      datum.add_targets(i);
      datum.add_weights(0.5f);
    }
  }
  return command;
}

struct Ranks {
  explicit Ranks(const planner::MeshLayout& layout)
      : mesh(layout),
        sinks(static_cast<std::size_t>(layout.size())),
        executor(layout.size(), failed) {
    for (int rank = 0; rank < mesh.size(); ++rank)
      executor.attach(rank, &sinks[static_cast<std::size_t>(rank)]);
  }
  planner::MeshLayout mesh;
  std::vector<BatchRecorder> sinks;
  FailedRanks failed;
  Executor executor;
};

constexpr train::LossBatchLimits kLimits = {256, 512, 512, 2};

TEST(BatchBytes, ARankIsSentTheDataThatItComputes) {
  Ranks ranks(planner::MeshLayout({{"dp", 2}, {"fsdp", 2}, {"cp", 1}, {"tp", 2}}));
  const v1::LossCommand command = batch_of(17, 500);
  const std::size_t datum = command.batch().data(0).ByteSizeLong();
  RunClient(ranks.executor, "run").loss(command, {kLimits, ranks.mesh});
  // 17 samples over 4 places in micro batches of 2: 8 + 8 + 1, of which the first has the last.
  const std::vector<std::size_t> expected = {17, 5, 4, 4, 4, 4, 4, 4};
  for (std::size_t rank = 0; rank < ranks.sinks.size(); ++rank) {
    ASSERT_EQ(ranks.sinks[rank].commands.size(), 1u);
    const v1::RankCommand& sent = *ranks.sinks[rank].commands.front();
    EXPECT_EQ(sent.loss().samples(), 17);
    EXPECT_EQ(sent.loss().counted_tokens(), 17 * 500);
    EXPECT_TRUE(sent.loss().backward());
    EXPECT_EQ(static_cast<std::size_t>(sent.loss().batch().data_size()), expected[rank]) << rank;
    EXPECT_GE(sent.ByteSizeLong(), expected[rank] * datum);
    EXPECT_LE(sent.ByteSizeLong(), expected[rank] * (datum + 8) + 256) << rank;
  }
}

TEST(BatchBytes, WhatDoesNotFitReachesNoRank) {
  Ranks ranks(planner::MeshLayout({{"dp", 2}}));
  v1::LossCommand command = batch_of(3, 4);
  command.mutable_batch()->mutable_data(2)->set_tokens(1, 256);
  try {
    RunClient(ranks.executor, "run").loss(command, {kLimits, ranks.mesh});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.metadata().at("field"), "data[2].tokens[1]");
  }
  for (const BatchRecorder& rank : ranks.sinks) EXPECT_TRUE(rank.commands.empty());
}

}  // namespace
}  // namespace meshloom::control
