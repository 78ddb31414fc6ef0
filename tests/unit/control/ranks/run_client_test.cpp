// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/run_client.h"

#include <gtest/gtest.h>

#include <thread>

#include "daemon/control/ranks/rank_error.h"
#include "daemon/control/ranks/rank_worker.h"
#include "daemon/train/config/sample_start.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/fake_run.h"
#include "tests/unit/control/ranks/failed_ranks.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

/// Two ranks that carry out commands, each on a thread.
class RunClientTest : public ::testing::Test {
 protected:
  RunClientTest() {
    for (int rank = 0; rank < 2; ++rank) executor_.attach(rank, &queues_[rank]);
    for (int rank = 0; rank < 2; ++rank)
      ranks_.emplace_back([this, rank] {
        FakeFactory factory(plan_, rank);
        RankWorker worker(rank, factory);
        run_commands(queues_[rank], worker, executor_);
      });
  }
  ~RunClientTest() override {
    executor_.stop();
    for (auto& rank : ranks_) rank.join();
    EXPECT_EQ(failed_.cause(), "");
  }
  v1::CreateRunCommand in_folder() const {
    v1::CreateRunCommand command;
    command.set_with_data(true);
    command.mutable_folders()->set_checkpoints((folder_.path() / "checkpoints").string());
    return command;
  }

  static v1::WriteStateCommand job_checkpoint() {
    v1::WriteStateCommand command;
    command.mutable_job();
    return command;
  }

  const test::TempFolder folder_;
  FakePlan plan_;
  CommandQueue queues_[2];
  FailedRanks failed_;
  Executor executor_{2, failed_};
  std::vector<std::thread> ranks_;
};

TEST_F(RunClientTest, EveryVerbReturnsWhatItsRunReturned) {
  const RunClient run(executor_, "a");
  const v1::CreateRunResult created = run.create(in_folder()).get();
  EXPECT_EQ(created.step_count(), 0);
  EXPECT_EQ(created.vocab_size(), plan_.vocab_size);
  EXPECT_EQ(created.context_length(), plan_.context_length);
  v1::OptimStepParams params;
  params.set_lr(0.25);
  const RunClient::Step step = run.step({0}, params);
  EXPECT_EQ(step.forward_backward.get().tokens(), 1);
  const v1::ApplyGradientsResult stepped = step.optim_step.get();
  EXPECT_EQ(stepped.output().step(), 1);
  EXPECT_EQ(stepped.output().lr(), 0.25);
  EXPECT_GT(stepped.memory_bytes(), 0);
  EXPECT_EQ(stepped.seconds().at("forward"), 0.5);
  const v1::DataLoss evaluated = run.loss({"", 0, 3}).get();
  ASSERT_EQ(evaluated.losses_size(), 3);
  EXPECT_EQ(evaluated.losses(2).loss(), FakeRun::loss_at(1) + 1);
  EXPECT_EQ(evaluated.losses(2).labels(), 1);
  const v1::WriteStateResult saved = run.write_state(job_checkpoint()).get();
  EXPECT_EQ(saved.step(), 1);
  EXPECT_GT(saved.seconds(), 0);
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "checkpoints/step-1/manifest.json"));
  run.export_hf(folder_.path() / "hf", "float32").get();
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "hf/config.json"));
  run.remove().get();
  EXPECT_EQ(plan_.live_runs, 0);
}

TEST_F(RunClientTest, ASampleTellsItsTokensAndTheStepOfItsWeights) {
  const RunClient run(executor_, "a");
  run.create(in_folder()).get();
  run.step({0}, {}).optim_step.get();
  train::SampleStart start{{0}, {}};
  start.params.set_max_tokens(3);
  run.begin_sample(7, {}, {start}).get();
  const v1::AdvanceSampleResult drawn = run.advance_sample(7, 50ms).get();
  ASSERT_EQ(drawn.tokens_size(), 3);
  EXPECT_EQ(drawn.tokens(0).token_id(), 'a');
  EXPECT_EQ(drawn.tokens(2).finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_TRUE(drawn.done());
  EXPECT_EQ(drawn.weights_step(), 1);
  run.end_sample(7).get();
  EXPECT_THROW(run.advance_sample(7, 50ms).get(), RunGone);
}

TEST_F(RunClientTest, WhatIsGoneIsToldFromWhatHasFailed) {
  const RunClient run(executor_, "a");
  EXPECT_THROW(run.write_state(job_checkpoint()).get(), RunGone);
  run.create(in_folder()).get();
  plan_.fail_saves = true;
  try {
    run.write_state(job_checkpoint()).get();
    FAIL();
  } catch (const RunGone&) {
    FAIL() << "the run is there";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResourceExhausted);
    EXPECT_EQ(error.reason(), "DISK_FULL");
  }
  EXPECT_FALSE(executor_.fatal());
}

}  // namespace
}  // namespace meshloom::control
