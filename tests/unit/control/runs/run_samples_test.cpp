// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_samples.h"

#include "tests/unit/control/runs/stored_runs.h"

namespace meshloom::control {
namespace {

class WaitingSamplesTest : public StoredRunTest {
 protected:
  static SampleOrder order(std::size_t prompt = 2) {
    SampleOrder order;
    order.starts.resize(1);
    order.starts[0].prompt.assign(prompt, 1);
    order.starts[0].params.set_max_tokens(4);
    order.epoch = 1;
    return order;
  }
  v1::Operation add_waiting(SampleOrder order) {
    const auto progress = RunSample::make_progress(order);
    return samples_.add_waiting(std::move(order), progress);
  }
  v1::OperationState state_of(const std::string& operation) {
    return operations_.get(operation).state();
  }

  Operations operations_{1 << 20};
  WaitingMemory waiting_{{.of_run = 100'000, .of_client = 1 << 20, .of_all = 1 << 20}};
  SampleScheduler scheduler_{executor_, 0.5, training_};
  const RunClient ranks_{executor_, "r"};
  RunWeights weights_{{admission_, store_, dir_, uses_, ranks_}, "r", {}};
  RunSamples samples_{
      {operations_, waiting_, scheduler_, admission_, admission_, weights_}, "r", "tester"};
};

TEST_F(WaitingSamplesTest, ThoseThatWaitAreTakenOnceInTheirOrder) {
  const std::string first = add_waiting(order()).name(), second = add_waiting(order()).name();
  EXPECT_EQ(first, "operations/r/1/sample-1");
  EXPECT_EQ(second, "operations/r/1/sample-2");
  const auto taken = samples_.take_waiting();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].operation, first);
  EXPECT_EQ(taken[1].operation, second);
  EXPECT_TRUE(samples_.take_waiting().empty());
}

TEST_F(WaitingSamplesTest, ThoseThatWereCancelledMakeRoom) {
  const std::string large = add_waiting(order(10'000)).name();
  EXPECT_EQ(reason_of([&] { add_waiting(order(10'000)); }), "VERBS_FULL");
  operations_.cancel(large);
  EXPECT_NO_THROW(add_waiting(order(10'000)));
  EXPECT_EQ(samples_.take_waiting().size(), 1u);
}

TEST_F(WaitingSamplesTest, WhatWaitsAndWhatIsLostFailTogether) {
  const std::string waiting = add_waiting(order()).name();
  const SampleOrder drawn = order();
  const std::string lost = samples_.add(drawn, RunSample::make_progress(drawn)).name();
  const std::string other = samples_.add(drawn, RunSample::make_progress(drawn)).name();
  samples_.add_lost(lost);
  samples_.fail(Aborted("lost", "RUN_RECOVERED"));
  EXPECT_EQ(state_of(waiting), v1::OPERATION_STATE_FAILED);
  EXPECT_EQ(state_of(lost), v1::OPERATION_STATE_FAILED);
  EXPECT_EQ(state_of(other), v1::OPERATION_STATE_WAITING);
  EXPECT_TRUE(samples_.take_waiting().empty());
}

TEST_F(WaitingSamplesTest, ChecksTheStepOfTheWeightsAndWhatForwardCanTake) {
  const RunSamples::Model model{.step = 3, .context_length = 64, .seq_len = 4};
  EXPECT_NO_THROW(samples_.check(order(), model));
  SampleOrder stale = order();
  stale.weights_step = 2;
  EXPECT_EQ(reason_of([&] { samples_.check(stale, model); }), "WEIGHTS_STALE");
  SampleOrder from = order();
  from.origin.snapshot = "a";
  EXPECT_EQ(reason_of([&] { samples_.check(from, model); }), "SNAPSHOT_STALE");
  SampleOrder scored = order(6);
  EXPECT_NO_THROW(samples_.check(scored, model));
  scored.prompt_log_probs = true;
  EXPECT_THROW(samples_.check(scored, model), InvalidArgument);
  SampleOrder exact = order(1);
  exact.exact_log_probs = true;
  EXPECT_NO_THROW(samples_.check(exact, model)) << "five tokens are four to predict";
  exact.starts[0].params.set_max_tokens(5);
  EXPECT_THROW(samples_.check(exact, model), InvalidArgument);
}

TEST_F(WaitingSamplesTest, MemoryIsThatOfTheWeightsThatHaveTheName) {
  v1::SavedWeights saved;
  saved.set_name(weights_resource("r", "a"));
  saved.set_storage(v1::WEIGHTS_STORAGE_MEMORY);
  weights_.keep(saved, weights_.keep_snapshot("a", {}));
  SampleOrder from = order();
  from.origin.snapshot = "a";
  samples_.hold_memory(from, {});
  EXPECT_EQ(from.origin.snapshot, "a.1");
  weights_.remove(saved.name());
  EXPECT_EQ(plan_.snapshots, 1);
  from = {};
  EXPECT_EQ(plan_.snapshots, 0);
}

}  // namespace
}  // namespace meshloom::control
