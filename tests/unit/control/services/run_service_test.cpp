// SPDX-License-Identifier: Apache-2.0
// Runs that clients drive, over real gRPC, with fake runs on two ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "daemon/control/net/secret.h"
#include "tests/support/eventually.h"
#include "tests/support/full_disk.h"
#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST_F(RunServiceTest, VerbsRunInTheOrderOfTheirNumbers) {
  start();
  std::mt19937 random(3);
  for (int round = 0; round < 5; ++round) {
    Client client = with_run();
    // Gradients of 1, 2, 4 in two steps, then the weight.
    std::vector<std::function<grpc::Status()>> verbs = {[&] { return client.forward_backward(1, {1}); },
                                                        [&] { return client.optim_step(2, 10); },
                                                        [&] { return client.forward_backward(3, {2}); },
                                                        [&] { return client.forward_backward(4, {4}); },
                                                        [&] { return client.optim_step(5, 1); },
                                                        [&] { return client.get_weight(6); }};
    std::shuffle(verbs.begin(), verbs.end(), random);
    for (const auto& verb : verbs) EXPECT_TRUE(verb().ok());
    EXPECT_EQ(weight(client.wait(6)), -16.0);
    EXPECT_EQ(client.wait(5).result().optim_step().step(), 2);
    EXPECT_EQ(client.get().step(), 2);
    EXPECT_EQ(client.get().next_seq(), 7);
    EXPECT_TRUE(client.close().ok());
    EXPECT_EQ(client.wait_for(v1::RUN_STATE_CLOSED).state(), v1::RUN_STATE_CLOSED);
  }
  EXPECT_EQ(plan_.live_runs, 0);
}

TEST_F(RunServiceTest, ARepeatGetsTheSameOperationAndAnotherVerbIsRefused) {
  start();
  Client client = with_run();
  ASSERT_TRUE(client.forward_backward(1, {1}).ok());
  client.wait(1);
  ASSERT_TRUE(client.forward_backward(1, {1}).ok());
  EXPECT_EQ(client.last_.name(), client.name_of(1));
  EXPECT_EQ(client.last_.state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(info_of(client.forward_backward(1, {2})).reason(), "SEQUENCE_REUSED");
  client.optim_step(2);
  client.get_weight(3);
  EXPECT_EQ(weight(client.wait(3)), -1.0);
}

TEST_F(RunServiceTest, AForwardBackwardThatFailsOnTheRanksPoisonsTheStep) {
  start();
  Client client = with_run();
  client.forward_backward(1, {5});
  client.forward_backward(2, {1, kBadToken});
  client.optim_step(3);
  client.forward_backward(4, {3});
  client.optim_step(5);
  EXPECT_EQ(client.wait(2).error().info().reason(), "NON_FINITE_LOSS");
  EXPECT_THAT(client.wait(3).error().message(), HasSubstr("verb 2 (forward_backward) failed"));
  EXPECT_EQ(client.wait(3).error().info().metadata().at("seq"), "2");
  EXPECT_EQ(client.wait(5).state(), v1::OPERATION_STATE_SUCCEEDED);
}

TEST_F(RunServiceTest, AFailedForwardBackwardPoisonsTheStep) {
  start();
  Client client = with_run();
  client.forward_backward(1, {5});
  client.forward_backward(2, {-1});
  client.optim_step(3);
  client.forward_backward(4, {3});
  client.optim_step(5);
  client.get_weight(6);
  EXPECT_EQ(client.wait(1).state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(client.wait(2).error().info().metadata().at("field"), "data[0].tokens[0]");
  EXPECT_EQ(client.wait(3).error().info().reason(), "GRADIENTS_POISONED");
  EXPECT_THAT(client.wait(3).error().message(), HasSubstr("verb 2 (forward_backward) failed"));
  EXPECT_EQ(client.wait(3).error().info().metadata().at("seq"), "2");
  EXPECT_EQ(client.wait(5).state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(weight(client.wait(6)), -3.0);
}

TEST_F(RunServiceTest, ARefusedVerbUsesItsNumberUpAndPoisons) {
  start();
  Client client = with_run();
  EXPECT_EQ(info_of(client.save_state(1, "no/slash")).reason(), "INVALID_ARGUMENT");
  client.forward_backward(2, {5});
  EXPECT_TRUE(client.skip(3).ok());  // a ForwardBackward that never arrived
  client.optim_step(4);
  client.get_weight(5);
  EXPECT_EQ(client.wait(4).error().info().reason(), "GRADIENTS_POISONED");
  EXPECT_THAT(client.wait(4).error().message(), HasSubstr("verb 3 (skip) never arrived"));
  EXPECT_EQ(weight(client.wait(5)), 0.0);
  EXPECT_EQ(info_of(client.forward_backward(1, {1})).reason(), "SEQUENCE_REUSED");
}

TEST_F(RunServiceTest, AGapFailsWhatWaitsAndNamesTheNextNumber) {
  start();
  v1::RunSpec spec;
  spec.set_gap_timeout_seconds(1);
  Client client = with_run(spec);
  client.forward_backward(1, {5});
  client.optim_step(3);
  client.optim_step(4);
  const v1::Operation waiting = client.wait(client.name_of(3), 0);
  EXPECT_EQ(waiting.state(), v1::OPERATION_STATE_WAITING) << "0 asks without waiting";
  const v1::Operation lost = client.wait(3);
  EXPECT_EQ(lost.error().info().reason(), "SEQUENCE_GAP");
  EXPECT_EQ(lost.error().info().metadata().at("missing_seq"), "2");
  EXPECT_EQ(lost.error().info().metadata().at("next_seq"), "5");
  EXPECT_EQ(info_of(client.forward_backward(2, {1})).reason(), "SEQUENCE_USED");
  client.optim_step(5);
  EXPECT_EQ(client.wait(5).error().info().reason(), "GRADIENTS_POISONED");
  client.forward_backward(6, {2});
  client.optim_step(7);
  EXPECT_EQ(client.wait(7).state(), v1::OPERATION_STATE_SUCCEEDED);
}

TEST_F(RunServiceTest, ACancelledForwardBackwardPoisons) {
  plan_.step_time = 50ms;
  start();
  Client client = with_run();
  for (int seq = 1; seq <= 12; ++seq) client.forward_backward(seq, {1});
  EXPECT_TRUE(client.cancel(12).ok());
  client.optim_step(13);
  EXPECT_EQ(client.wait(12).state(), v1::OPERATION_STATE_CANCELLED);
  EXPECT_THAT(client.wait(13).error().message(),
              HasSubstr("verb 12 (forward_backward) was cancelled"));
  EXPECT_EQ(info_of(client.cancel(13)).reason(), "OPERATION_ENDED");
}

TEST_F(RunServiceTest, TokensAndEpochsAreChecked) {
  start();
  Client client = with_run();
  EXPECT_EQ(client.token_.size(), 32u);
  EXPECT_EQ(client.get().client(), "tester");
  const std::string token = client.token_;
  client.token_ = random_secret();
  EXPECT_EQ(info_of(client.forward_backward(1, {1})).reason(), "TOKEN_INVALID");
  EXPECT_EQ(info_of(client.close()).reason(), "TOKEN_INVALID");
  client.token_ = token;
  EXPECT_EQ(info_of(client.forward_backward(1, {1}, 2)).reason(), "EPOCH_UNKNOWN");
  EXPECT_EQ(info_of(client.forward_backward(0, {1})).reason(), "SEQUENCE_INVALID");
  EXPECT_TRUE(client.forward_backward(1, {1}).ok());
}

TEST_F(RunServiceTest, ARunWaitsBehindAnotherAndBehindAJob) {
  plan_.step_time = 1ms;
  start();
  Client first = with_run();
  first.wait_for(v1::RUN_STATE_READY);
  v1::JobSpec job;
  job.set_name("between");
  job.mutable_run()->mutable_training()->set_steps(3);
  daemon_->store().submit(job, job.run(), {});
  test::eventually([&] { return daemon_->store().get("between").notes_size() > 0; });
  Client second = with_run();
  second.forward_backward(1, {1});
  EXPECT_THAT(daemon_->store().get("between").notes(0), HasSubstr("behind " + first.run_.name()));
  std::vector<std::string> ahead;
  for (int i = 0; i < 2000 && ahead.size() < 2; ++i) {
    const v1::Run seen = second.get();
    ahead.assign(seen.ahead().begin(), seen.ahead().end());
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(ahead, (std::vector<std::string>{first.run_.name(), "jobs/between"}));
  EXPECT_THAT(second.wait(second.name_of(1), 1).waits_for(), HasSubstr("jobs/between"));
  EXPECT_EQ(daemon_->store().get("between").state(), v1::JOB_STATE_QUEUED);
  first.close();
  EXPECT_EQ(second.wait(1).state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(daemon_->store().get("between").state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(RunServiceTest, SavedStatesAreLoadedAndReplacedOnRequestAlone) {
  start();
  Client client = with_run();
  client.forward_backward(1, {1});
  client.optim_step(2);
  client.save_state(3, "a");
  client.forward_backward(4, {1});
  client.optim_step(5);
  client.save_state(6, "a");
  client.load_state(7, client.run_.name() + "/states/a");
  client.get_weight(8);
  client.load_state(9, client.run_.name() + "/states/b");
  EXPECT_EQ(client.wait(3).result().saved_state().next_seq(), 4);
  EXPECT_EQ(client.wait(3).result().saved_state().step(), 1);
  EXPECT_EQ(client.wait(6).error().info().reason(), "STATE_EXISTS");
  EXPECT_EQ(weight(client.wait(8)), -1.0);
  EXPECT_EQ(client.wait(9).error().info().reason(), "STATE_NOT_FOUND");
}

TEST_F(RunServiceTest, AStateWhoseRecordIsRefusedLeavesNoFolder) {
  start();
  Client client = with_run();
  const auto count = [&] {
    const auto folder = daemon_->state().root() / client.run_.name() / "states";
    return std::distance(std::filesystem::directory_iterator(folder), {});
  };
  client.save_state(1, "one");
  EXPECT_EQ(client.wait(1).state(), v1::OPERATION_STATE_SUCCEEDED);
  {
    const test::FileSizeLimit full(std::filesystem::file_size(daemon_->state().journal()) + 1);
    client.save_state(2, "two");
    EXPECT_EQ(client.wait(2).error().info().reason(), "DISK_FULL");
  }
  EXPECT_EQ(count(), 1);
  client.save_state(3, "two");
  EXPECT_EQ(client.wait(3).state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(count(), 2);
}

TEST_F(RunServiceTest, ARequestThatIsNoVerbMayHaveFourMiB) {
  start();
  const std::string name(5 << 20, 'x');
  v1::GetRunRequest run;
  run.set_name(name);
  v1::GetRunResponse no_run;
  grpc::ClientContext first, second;
  EXPECT_EQ(
      info_of(v1::RunService::NewStub(daemon_->channel())->GetRun(&first, run, &no_run)).reason(),
      "REQUEST_TOO_LARGE");
  v1::WaitOperationRequest wait;
  wait.set_name(name);
  v1::WaitOperationResponse no_operation;
  const auto operations = v1::OperationService::NewStub(daemon_->channel());
  EXPECT_EQ(info_of(operations->WaitOperation(&second, wait, &no_operation)).reason(),
            "REQUEST_TOO_LARGE");
}

TEST_F(RunServiceTest, ALoadedStateBringsItsStep) {
  start();
  Client client = with_run();
  client.save_state(1, "zero");
  client.forward_backward(2, {1});
  client.optim_step(3);
  client.load_state(4, client.run_.name() + "/states/zero");
  client.save_weights(5, "w", v1::WEIGHTS_STORAGE_MEMORY);
  EXPECT_EQ(client.wait(5).result().saved_weights().step(), 0);
  EXPECT_EQ(client.get().step(), 0);
  v1::SampleRequest request = client.sample_request(1, 2);
  request.set_weights_step(0);
  EXPECT_TRUE(client.sample(request).ok());
  EXPECT_EQ(client.wait(client.last_.name()).result().sample().sequences(0).weights_step(), 0);
}

TEST_F(RunServiceTest, WhatPoisonsIsNamedUntilItsGradientsAreDiscarded) {
  start();
  Client client = with_run();
  client.save_state(1, "a");
  client.forward_backward(2, {kBadToken});
  client.load_state(3, client.run_.name() + "/states/a");  // drops the gradients
  client.forward_backward(4, {kBadToken});
  client.optim_step(5, std::nan(""));  // is refused, and drops nothing
  client.optim_step(6);
  EXPECT_EQ(client.wait(5).error().code(), static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
  EXPECT_THAT(client.wait(6).error().message(), HasSubstr("verb 4 (forward_backward) failed"));
  EXPECT_EQ(client.wait(6).error().info().metadata().at("seq"), "4");
}

/// How a ForwardBackward comes to add no gradients, and what a step says of it.
enum class Lost { kOnTheRanks, kInItsTurn, kRefused, kCancelled, kSkipped };

std::string told_of(Lost lost, std::int64_t seq) {
  switch (lost) {
    case Lost::kOnTheRanks:
    case Lost::kInItsTurn: return fmt::format("verb {} (forward_backward) failed", seq);
    case Lost::kRefused: return fmt::format("verb {} (forward_backward) was refused", seq);
    case Lost::kCancelled: return fmt::format("verb {} (forward_backward) was cancelled", seq);
    case Lost::kSkipped: return fmt::format("verb {} (skip) never arrived", seq);
  }
  return "";
}

void lose(Client& client, Lost lost, std::int64_t seq) {
  switch (lost) {
    case Lost::kOnTheRanks: client.forward_backward(seq, {kBadToken}); break;
    case Lost::kInItsTurn: client.forward_backward(seq, {-1}); break;
    case Lost::kRefused:
      EXPECT_EQ(info_of(client.forward_backward_of(seq, "uploads/none")).reason(),
                "UPLOAD_NOT_FOUND");
      break;
    case Lost::kCancelled:
      client.forward_backward(seq, {1});
      EXPECT_TRUE(client.cancel(seq).ok());
      break;
    case Lost::kSkipped: client.skip(seq); break;
  }
}

void expect_blamed(const v1::Operation& step, std::int64_t seq, const std::string& told) {
  EXPECT_EQ(step.error().info().reason(), "GRADIENTS_POISONED");
  EXPECT_EQ(step.error().info().metadata().at("seq"), std::to_string(seq));
  EXPECT_THAT(step.error().info().metadata().at("cause"), HasSubstr(told));
  EXPECT_THAT(step.error().message(), HasSubstr(told));
}

TEST_F(RunServiceTest, AStepBlamesTheFirstOfThoseThatAreMissing) {
  start();
  Client first = with_run();  // verbs wait behind it, so that they can be cancelled
  first.wait_for(v1::RUN_STATE_READY);
  Client client = with_run();
  const std::vector<Lost> all = {Lost::kOnTheRanks, Lost::kInItsTurn, Lost::kRefused,
                                 Lost::kCancelled, Lost::kSkipped};
  std::int64_t seq = 0;
  for (const Lost earlier : all)
    for (const Lost later : all) {
      client.forward_backward(++seq, {1});
      lose(client, earlier, ++seq);
      lose(client, later, ++seq);
      client.optim_step(++seq);
    }
  client.forward_backward(++seq, {2});
  client.optim_step(++seq);
  first.close();
  EXPECT_EQ(client.wait(seq).result().optim_step().step(), 1);
  seq = 0;
  for (const Lost earlier : all)
    for (const Lost later : all) {
      SCOPED_TRACE(fmt::format("{}, then {}", static_cast<int>(earlier), static_cast<int>(later)));
      seq += 4;
      expect_blamed(client.wait(seq), seq - 2, told_of(earlier, seq - 2));
    }
}

TEST_F(RunServiceTest, ARunMayWaitForNoMissingNumber) {
  start();
  v1::RunSpec spec;
  spec.set_gap_timeout_seconds(0);
  Client client = with_run(spec);
  client.forward_backward(2, {5});
  EXPECT_EQ(client.wait(2).error().info().reason(), "SEQUENCE_GAP");
  spec.set_lease_seconds(0);
  const grpc::Status refused = Client(client.channel()).create(spec);
  EXPECT_EQ(info_of(refused).metadata().at("field"), "spec.lease_seconds");
  EXPECT_THAT(refused.error_message(), HasSubstr("must be above 0, got 0; leave it out for 600"));
}

TEST_F(RunServiceTest, AStepBlamesAGapInItsPlace) {
  start();
  v1::RunSpec spec;
  spec.set_gap_timeout_seconds(1);
  Client client = with_run(spec);
  const auto lose_in_gap = [&](std::int64_t missing) {
    client.optim_step(missing + 1);
    EXPECT_EQ(client.wait(missing + 1).error().info().reason(), "SEQUENCE_GAP");
  };
  lose_in_gap(1);
  lose_in_gap(3);
  client.forward_backward(5, {kBadToken});
  client.optim_step(6);
  expect_blamed(client.wait(6), 1, "verb 1 never arrived");
  client.forward_backward(7, {kBadToken});
  lose_in_gap(8);
  client.skip(10);
  client.optim_step(11);
  expect_blamed(client.wait(11), 7, "verb 7 (forward_backward) failed");
}

TEST_F(RunServiceTest, ParametersThatAreSetDropTheGradientsThatFailed) {
  start();
  Client client = with_run();
  client.forward_backward(1, {kBadToken});
  client.set_weight(2, 1.0);
  client.wait(2);
  client.forward_backward(3, {kBadToken});
  client.optim_step(4);
  EXPECT_EQ(client.wait(4).error().info().metadata().at("seq"), "3");
}

TEST_F(RunServiceTest, ACancelledVerbThatIsNoLongerKeptIsPassedOver) {
  start();
  Client first = with_run();
  first.wait_for(v1::RUN_STATE_READY);
  Client client = with_run();
  client.forward_backward(1, {1});
  EXPECT_TRUE(client.cancel(1).ok());
  const int last = static_cast<int>(Operations::kKept) + 20;
  for (int seq = 2; seq <= last; ++seq) client.forward_backward(seq, {1});
  EXPECT_EQ(info_of(client.cancel(1)).reason(), "OPERATION_NOT_FOUND");
  first.close();
  EXPECT_EQ(client.wait(last).state(), v1::OPERATION_STATE_SUCCEEDED);
  client.optim_step(last + 1);
  EXPECT_THAT(client.wait(last + 1).error().message(),
              HasSubstr("verb 1 (forward_backward) was cancelled"));
}

TEST_F(RunServiceTest, SavesAreToldOfAfterARestart) {
  start();
  Client client = with_run();
  client.save_state(1, "a");
  client.save_weights(2, "w", v1::WEIGHTS_STORAGE_DISK);
  client.forward_backward(3, {1});
  client.wait(3);
  const std::string name = client.run_.name(), token = client.token_;
  restart();
  Client after = this->client();
  after.run_.set_name(name);
  after.token_ = token;
  EXPECT_EQ(after.wait(1).result().saved_state().name(), name + "/states/a");
  EXPECT_EQ(after.wait(2).result().saved_weights().name(), name + "/weights/w");
  after.wait(3);
  EXPECT_EQ(info_of(after.status_).reason(), "RUN_RECOVERED");
  // A repeat is told the same; another verb of that number is not.
  EXPECT_TRUE(after.save_state(1, "a").ok());
  EXPECT_EQ(after.last_.state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(info_of(after.save_state(1, "b")).reason(), "RUN_RECOVERED");
}

TEST_F(RunServiceTest, ASampleWaitsForTheRanks) {
  start();
  Client first = with_run();
  first.wait_for(v1::RUN_STATE_READY);
  Client client = with_run();
  v1::SampleRequest stale = client.sample_request(1, 3);
  stale.set_weights_step(5);
  EXPECT_TRUE(client.sample(stale).ok());
  const std::string refused = client.last_.name();
  EXPECT_TRUE(client.sample(1, 3).ok());
  const std::string cancelled = client.last_.name();
  EXPECT_TRUE(client.sample(2, 3).ok());
  const std::string drawn = client.last_.name();
  EXPECT_THAT(client.wait(drawn, 1).waits_for(), HasSubstr("behind " + first.run_.name()));
  EXPECT_TRUE(client.cancel(cancelled).ok());
  first.close();
  EXPECT_EQ(client.wait(drawn).result().sample().sequences_size(), 2);
  EXPECT_EQ(client.wait(refused).error().info().reason(), "WEIGHTS_STALE");
  EXPECT_EQ(client.wait(cancelled).state(), v1::OPERATION_STATE_CANCELLED);
}

TEST_F(RunServiceTest, ASampleThatWaitsEndsWithItsRun) {
  start();
  Client first = with_run();
  first.wait_for(v1::RUN_STATE_READY);
  Client client = with_run();
  client.sample(1, 3);
  const std::string waiting = client.last_.name();
  client.close();
  EXPECT_EQ(client.wait(waiting).error().info().reason(), "RUN_CLOSED");
}

TEST_F(RunServiceTest, ASampleThatIsDrawnEndsWithItsRunToo) {
  plan_.token_time = 2ms;
  start();
  Client client = with_run();
  client.wait_for(v1::RUN_STATE_READY);
  client.sample(1, 60);
  const std::string drawn = client.last_.name();
  test::eventually([&] { return client.wait(drawn, 1).state() == v1::OPERATION_STATE_RUNNING; });
  client.close();
  EXPECT_EQ(client.wait(drawn).error().info().reason(), "RUN_CLOSED");
}

TEST_F(RunServiceTest, EachSequenceHasARandomStreamOfItsOwn) {
  start();
  Client client = with_run();
  std::set<std::uint64_t> seeds;
  for (const std::uint64_t seed : {5, 6, 7, 8}) {
    v1::SampleRequest request = client.sample_request(4, 1);
    request.mutable_params()->set_seed(seed);
    client.sample(request);
    const v1::SampleOutput drawn = client.wait(client.last_.name()).result().sample();
    EXPECT_EQ(drawn.sequences(0).seed(), seed) << "that of the first is the request's";
    for (const v1::SampledSequence& sequence : drawn.sequences()) seeds.insert(sequence.seed());
  }
  EXPECT_EQ(seeds.size(), 16U);
}

TEST_F(RunServiceTest, ARestartGoesOnFromTheLastSavedState) {
  start();
  Client client = with_run();
  client.forward_backward(1, {1});
  client.optim_step(2);
  client.save_state(3, "a");
  client.wait(3);
  const std::string name = client.run_.name(), token = client.token_;
  restart();
  Client after = this->client();
  after.run_.set_name(name);
  after.token_ = token;
  v1::Run run = after.wait_for(v1::RUN_STATE_READY);
  EXPECT_EQ(run.epoch(), 2);
  EXPECT_EQ(run.step(), 1);
  after.wait(after.name_of(2));
  EXPECT_EQ(info_of(after.status_).reason(), "RUN_RECOVERED");
  const v1::ErrorInfo stale = info_of(after.forward_backward(4, {1}));
  EXPECT_EQ(stale.reason(), "RUN_RECOVERED");
  EXPECT_EQ(stale.metadata().at("epoch"), "2");
  EXPECT_EQ(stale.metadata().at("next_seq"), std::to_string(run.next_seq()));
  after.get_weight(run.next_seq(), 2);
  EXPECT_EQ(weight(after.wait(after.name_of(run.next_seq(), 2))), -1.0);
}

TEST_F(RunServiceTest, ARankThatFailsAloneBeginsTheNextEpoch) {
  plan_.fail_alone_at_step = 2;
  start();
  Client client = with_run();
  client.forward_backward(1, {1});
  client.optim_step(2);
  client.save_state(3, "a");
  client.wait(3);
  client.forward_backward(4, {1});
  client.forward_backward(6, {1});  // waits for number 5
  client.optim_step(5);
  EXPECT_EQ(client.wait(5).error().info().reason(), "ODD");
  EXPECT_NE(client.wait(6).state(), v1::OPERATION_STATE_SUCCEEDED);
  plan_.fail_alone_at_step = -1;
  test::eventually(
      [&] { return client.get().epoch() == 2 && client.get().state() == v1::RUN_STATE_READY; });
  const v1::ErrorInfo stale = info_of(client.forward_backward(7, {1}));
  EXPECT_EQ(stale.reason(), "RUN_RECOVERED");
  EXPECT_EQ(stale.metadata().at("next_seq"), "4");
  EXPECT_EQ(stale.metadata().at("state"), client.run_.name() + "/states/a");
  client.get_weight(4, 2);
  EXPECT_EQ(weight(client.wait(client.name_of(4, 2))), -1.0);
  EXPECT_EQ(plan_.live_runs, 2);
}

TEST_F(RunServiceTest, ALargeResultIsReadInPieces) {
  plan_.parameter_bytes = 3'000'000;
  start();
  Client client = with_run();
  client.get_weight(1);
  const v1::Operation done = client.wait(1);
  EXPECT_EQ(done.state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_FALSE(done.has_result());
  std::vector<std::size_t> pieces;
  v1::VerbResult result;
  ASSERT_TRUE(result.ParseFromString(client.read_result(client.name_of(1), &pieces)));
  EXPECT_EQ(pieces.size(), 12u);
  EXPECT_GT(result.parameters().parameters(0).data().size(), 3'000'000u);
}

TEST_F(RunServiceTest, SamplesAreOperations) {
  start();
  Client client = with_run();
  client.wait_for(v1::RUN_STATE_READY);
  ASSERT_TRUE(client.sample(3, 4).ok());
  const v1::Operation done = client.wait(client.last_.name());
  ASSERT_EQ(done.state(), v1::OPERATION_STATE_SUCCEEDED) << done.error().message();
  ASSERT_EQ(done.result().sample().sequences_size(), 3);
  for (const v1::SampledSequence& sequence : done.result().sample().sequences()) {
    EXPECT_EQ(sequence.token_ids_size(), 4);
    EXPECT_EQ(sequence.finish_reason(), "length");
    EXPECT_EQ(sequence.prompt(), 0);
  }
}

TEST_F(RunServiceTest, ARepeatedCreationIsTheSameRunWithANewToken) {
  start();
  Client client = this->client();
  v1::RunSpec spec;
  ASSERT_TRUE(client.create(spec, "0b3c").ok());
  const std::string name = client.run_.name(), token = client.token_;
  ASSERT_TRUE(client.create(spec, "0b3c").ok());
  EXPECT_EQ(client.run_.name(), name);
  EXPECT_TRUE(client.forward_backward(1, {1}).ok());
  client.token_ = token;
  EXPECT_EQ(info_of(client.forward_backward(2, {1})).reason(), "TOKEN_INVALID");
}

TEST_F(RunServiceTest, ARequestIdIsItsClientsOwn) {
  start();
  Client owner = client(), other = client();
  other.client_ = "other";
  v1::RunSpec spec;
  ASSERT_TRUE(owner.create(spec, "0b3c").ok());
  ASSERT_TRUE(other.create(spec, "0b3c").ok());
  EXPECT_NE(owner.run_.name(), other.run_.name());
  EXPECT_EQ(other.get().client(), "other");
  EXPECT_TRUE(owner.heartbeat().ok()) << "the owner's token has ended";
  // Each client's repeat finds its own, also after a restart.
  restart();
  Client owner_again = client(), other_again = client();
  other_again.client_ = "other";
  ASSERT_TRUE(owner_again.create(spec, "0b3c").ok());
  ASSERT_TRUE(other_again.create(spec, "0b3c").ok());
  EXPECT_EQ(owner_again.run_.name(), owner.run_.name());
  EXPECT_EQ(other_again.run_.name(), other.run_.name());
  spec.set_lease_seconds(77);
  const v1::ErrorInfo reused = info_of(other_again.create(spec, "0b3c"));
  EXPECT_EQ(reused.reason(), "REQUEST_ID_REUSED");
  EXPECT_EQ(reused.metadata().at("request_id"), "0b3c");
  EXPECT_EQ(reused.metadata().at("resource"), other.run_.name());
}

TEST_F(RunServiceTest, UploadsOfVerbsNeedTheTokenOfARunThatIsOpen) {
  start();
  Client client = with_run();
  const auto uploads = v1::UploadService::NewStub(daemon_->channel());
  v1::CreateUploadRequest request;
  request.set_kind(v1::UPLOAD_KIND_TRANSIENT);
  request.set_size_bytes(3);
  const auto create = [&](const std::string& run, const std::string& token) {
    request.set_run(run);
    grpc::ClientContext context;
    context.AddMetadata(kRunTokenKey, token);
    v1::CreateUploadResponse response;
    return uploads->CreateUpload(&context, request, &response);
  };
  EXPECT_EQ(info_of(create("runs/nobody", client.token_)).reason(), "RUN_NOT_FOUND");
  EXPECT_EQ(info_of(create(client.run_.name(), random_secret())).reason(), "TOKEN_INVALID");
  EXPECT_TRUE(create(client.run_.name(), client.token_).ok());
  client.close();
  client.wait_for(v1::RUN_STATE_CLOSED);
  EXPECT_EQ(info_of(create(client.run_.name(), client.token_)).reason(), "RUN_CLOSED");
}

TEST_F(RunServiceTest, AStateThatAllRanksCouldReadInPartAloneEndsTheEpoch) {
  start();
  Client client = with_run();
  client.forward_backward(1, {2});
  client.optim_step(2);
  client.save_state(3, "a");
  client.forward_backward(4, {3});
  client.optim_step(5);
  client.wait(5);
  EXPECT_EQ(client.wait(3).state(), v1::OPERATION_STATE_SUCCEEDED);
  plan_.failing_loads = 2;
  client.load_state(6, client.run_.name() + "/states/a");
  EXPECT_EQ(client.wait(6).error().info().reason(), "CHECKPOINT_CORRUPT");
  test::eventually([&] { return client.get().epoch() == 2; });
  client.wait_for(v1::RUN_STATE_READY);
  client.get_weight(4, 2);
  EXPECT_EQ(weight(client.wait(client.name_of(4, 2))), -2.0);
}

}  // namespace
}  // namespace meshloom::control
