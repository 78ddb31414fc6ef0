// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/verb_queue.h"

#include <gtest/gtest.h>

#include <thread>

#include "daemon/control/net/status.h"
#include "daemon/train/run/gradient_window.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/runs/stored_runs.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

v1::ForwardBackwardRequest forward_backward(std::int64_t seq) {
  v1::ForwardBackwardRequest request;
  request.mutable_id()->set_epoch(1);
  request.mutable_id()->set_seq(seq);
  return request;
}

v1::OptimStepRequest optim_step(std::int64_t seq) {
  v1::OptimStepRequest request;
  request.mutable_id()->set_epoch(1);
  request.mutable_id()->set_seq(seq);
  return request;
}

v1::LoadStateRequest load_state(std::int64_t seq) {
  v1::LoadStateRequest request;
  request.mutable_id()->set_epoch(1);
  request.mutable_id()->set_seq(seq);
  request.set_state("runs/r/states/s");
  return request;
}

class VerbQueueTest : public ::testing::Test {
 protected:
  v1::Operation submit(Verb::Request request) {
    return queue_.submit(VerbQueue::Arrival(std::move(request)));
  }
  std::string refusal(Verb::Request request) {
    try {
      submit(std::move(request));
    } catch (const Error& error) {
      return error.reason();
    }
    return "";
  }
  /// Takes the next verb; the ranks then have it.
  VerbQueue::Taken begin() {
    EXPECT_TRUE(queue_.may_start());
    VerbQueue::Taken taken = queue_.take();
    VerbInFlight one{taken.verb->operation, id_of(taken.verb->request).seq(),
                     adds_gradients(taken.verb->request)};
    std::vector<VerbInFlight> begun;
    begun.push_back(std::move(one));
    queue_.add_in_flight(std::move(begun));
    return taken;
  }
  v1::ErrorDetails fail(const Error& error) {
    EXPECT_NE(queue_.wait_for_oldest(), nullptr);
    return queue_.fail_oldest(std::make_exception_ptr(error));
  }
  static Error poisoned() {
    return FailedPrecondition("gradients are poisoned", train::kGradientsPoisoned);
  }
  v1::OperationState state_of(std::int64_t seq) {
    return operations_.get(operation_name("r", 1, std::to_string(seq))).state();
  }

  test::TempFolder folder_;
  StateDir dir_{folder_ / "state"};
  RunStore store_;
  const SetClock clock_;
  RunStates states_{store_, dir_, clock_, "r"};
  Operations operations_{1 << 20};
  WaitingMemory waiting_{{.of_run = 4096, .of_client = 1 << 20, .of_all = 1 << 20}};
  TransientUploads uploads_{folder_ / "uploads"};
  VerbQueue queue_{{operations_, waiting_, uploads_, states_, 1 << 20}, {"r", "tester"}, 1, 60s};
};

TEST_F(VerbQueueTest, ARepeatIsTheSameOperationAndAnotherVerbOfItsNumberIsRefused) {
  const v1::Operation first = submit(optim_step(1));
  EXPECT_EQ(submit(optim_step(1)).name(), first.name());
  EXPECT_EQ(refusal(forward_backward(1)), "SEQUENCE_REUSED");
  EXPECT_EQ(refusal(optim_step(0)), "SEQUENCE_INVALID");
  EXPECT_EQ(refusal(optim_step(10'002)), "SEQUENCE_INVALID");
  begin();
  EXPECT_EQ(submit(optim_step(1)).name(), first.name()) << "also once it has begun";
  queue_.forget_numbers();
  EXPECT_EQ(refusal(optim_step(1)), "SEQUENCE_USED");
}

TEST_F(VerbQueueTest, WhatIsRefusedUsesItsNumberUpAndStandsInTheOrder) {
  v1::ForwardBackwardRequest large = forward_backward(1);
  for (int i = 0; i < 2000; ++i) large.mutable_batch()->add_data()->add_tokens(i);
  EXPECT_EQ(refusal(large), "VERBS_FULL");
  submit(optim_step(2));
  EXPECT_EQ(queue_.next_new(), 3);
  const VerbQueue::Taken taken = begin();
  EXPECT_EQ(taken.verb->operation, "");
  EXPECT_TRUE(adds_gradients(taken.verb->request));
  EXPECT_EQ(queue_.next(), 2);
}

TEST_F(VerbQueueTest, EightAreInFlightAndOneThatReadsFilesIsAlone) {
  for (int seq = 1; seq <= 9; ++seq) submit(optim_step(seq));
  for (int seq = 1; seq <= 8; ++seq) begin();
  EXPECT_FALSE(queue_.may_start());
  queue_.finish_oldest({});
  begin();
  submit(load_state(10));
  for (int left = 8; left > 0; --left) {
    EXPECT_FALSE(queue_.may_start());
    queue_.finish_oldest({});
  }
  EXPECT_TRUE(queue_.none_in_flight());
  EXPECT_TRUE(queue_.may_start());
}

TEST_F(VerbQueueTest, AGapFailsWhatIsBehindItAndGoesToTheRanksInFrontOfTheNext) {
  submit(forward_backward(2));
  EXPECT_EQ(queue_.waits_for(2), "number 1, which has not arrived");
  EXPECT_FALSE(queue_.end_gap(VerbQueue::Clock::now()));
  EXPECT_TRUE(queue_.end_gap(VerbQueue::Clock::now() + 61s));
  const v1::Operation failed = operations_.get(operation_name("r", 1, "2"));
  EXPECT_EQ(failed.error().info().reason(), "SEQUENCE_GAP");
  EXPECT_EQ(failed.error().message(),
            "verb 1 of run \"r\" has not arrived in 60 s; the next number is 3");
  submit(optim_step(3));
  submit(optim_step(4));
  const VerbQueue::Taken taken = begin();
  ASSERT_TRUE(taken.gap);
  EXPECT_EQ(taken.gap->seq, 1);
  EXPECT_EQ(taken.gap->cause, "verb 1 never arrived");
  EXPECT_FALSE(begin().gap);
}

TEST_F(VerbQueueTest, AStepWithoutGradientsNamesTheFirstVerbThatFailed) {
  for (int seq = 1; seq <= 2; ++seq) submit(forward_backward(seq));
  for (int seq = 3; seq <= 4; ++seq) submit(optim_step(seq));
  for (int seq = 1; seq <= 4; ++seq) begin();
  EXPECT_EQ(fail(NumericError("loss is nan")).message(), "loss is nan");
  fail(NumericError("loss is inf"));
  const v1::ErrorDetails step = fail(poisoned());
  EXPECT_EQ(step.message(),
            "optim_step: the gradients since the last optimizer step were discarded: verb 1 "
            "(forward_backward) failed: loss is nan");
  EXPECT_EQ(step.info().metadata().at("seq"), "1");
  EXPECT_EQ(fail(poisoned()).message(), "gradients are poisoned") << "the first were discarded";
}

TEST_F(VerbQueueTest, AStepThatWasMadeForgetsWhatWasMissing) {
  submit(forward_backward(1));
  for (int seq = 2; seq <= 3; ++seq) submit(optim_step(seq));
  for (int seq = 1; seq <= 3; ++seq) begin();
  fail(NumericError("loss is nan"));
  v1::VerbResult made;
  made.mutable_optim_step()->set_step(1);
  queue_.finish_oldest(made);
  EXPECT_EQ(fail(poisoned()).message(), "gradients are poisoned");
}

TEST_F(VerbQueueTest, AnEpochFailsWhatWaitsAndBeginsWithNumbersOfItsOwn) {
  submit(optim_step(1));
  submit(optim_step(2));
  queue_.begin_epoch(7, Aborted("lost", "RUN_RECOVERED"));
  EXPECT_EQ(state_of(1), v1::OPERATION_STATE_FAILED);
  EXPECT_EQ(state_of(2), v1::OPERATION_STATE_FAILED);
  EXPECT_EQ(queue_.next(), 7);
  EXPECT_EQ(queue_.next_new(), 7);
  EXPECT_FALSE(queue_.may_start());
}

TEST_F(VerbQueueTest, WhoCollectsWaitsForVerbsAndTakesAllBeforeItEnds) {
  submit(optim_step(1));
  int collected = 0;
  std::thread collector([&] {
    while (queue_.wait_for_oldest() != nullptr) {
      queue_.finish_oldest({});
      ++collected;
    }
  });
  begin();
  queue_.end_collecting();
  collector.join();
  EXPECT_EQ(collected, 1);
  EXPECT_TRUE(queue_.none_in_flight());
}

TEST_F(VerbQueueTest, WhatAVerbHoldsIsLetGoBeforeItsClientIsTold) {
  submit(optim_step(1));
  const VerbQueue::Taken taken = queue_.take();
  const auto held = std::make_shared<int>(1);
  std::vector<VerbInFlight> begun(1);
  begun[0].finish = [held] { return v1::VerbResult(); };
  queue_.add_in_flight(std::move(begun));
  EXPECT_EQ(held.use_count(), 2);
  queue_.finish_oldest({});
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace meshloom::control
