// SPDX-License-Identifier: Apache-2.0
// Watches of operations over real gRPC: states, tokens, readers that are slow or gone.
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using Told = std::vector<v1::WatchOperationResponse>;

class OperationWatchTest : public RunServiceTest {
 protected:
  /// Tokens of each sequence, which come without gaps or repeats from `known` on.
  static std::map<int, std::vector<int>> tokens_of(const Told& told, std::vector<int> known = {}) {
    std::map<int, std::vector<int>> tokens;
    for (const v1::WatchOperationResponse& response : told) {
      if (!response.has_tokens()) continue;
      const v1::SampledTokens& some = response.tokens();
      std::vector<int>& drawn = tokens[some.sequence()];
      const auto sequence = static_cast<std::size_t>(some.sequence());
      const int before = sequence < known.size() ? known[sequence] : 0;
      EXPECT_EQ(some.first(), before + static_cast<int>(drawn.size()));
      EXPECT_EQ(some.logprobs_size(), some.token_ids_size());
      EXPECT_EQ(some.text(), std::string(some.token_ids().begin(), some.token_ids().end()));
      drawn.insert(drawn.end(), some.token_ids().begin(), some.token_ids().end());
    }
    return tokens;
  }
  static std::vector<v1::OperationState> states_of(const Told& told) {
    std::vector<v1::OperationState> states;
    for (const v1::WatchOperationResponse& response : told)
      if (response.has_operation()) states.push_back(response.operation().state());
    return states;
  }
  static void expect_all_tokens(const Told& told) {
    ASSERT_FALSE(told.empty());
    const v1::Operation& last = told.back().operation();
    ASSERT_EQ(last.state(), v1::OPERATION_STATE_SUCCEEDED) << last.error().message();
    const auto tokens = tokens_of(told);
    ASSERT_EQ(static_cast<int>(tokens.size()), last.result().sample().sequences_size());
    for (const auto& [index, drawn] : tokens) {
      const auto& ids = last.result().sample().sequences(index).token_ids();
      EXPECT_EQ(drawn, std::vector<int>(ids.begin(), ids.end()));
    }
  }
};

TEST_F(OperationWatchTest, TellsTokensAsTheyAreDrawnBetweenTheStates) {
  plan_.token_time = 3ms;
  start();
  Client client = with_run();
  client.wait_for(v1::RUN_STATE_READY);
  ASSERT_TRUE(client.sample(3, 20).ok());
  const Told told = client.watch(client.last_.name());
  EXPECT_TRUE(client.status_.ok()) << client.status_.error_message();
  expect_all_tokens(told);
  EXPECT_GT(told.size(), 10u);
  const auto states = states_of(told);
  ASSERT_GE(states.size(), 2u);
  EXPECT_EQ(states[states.size() - 2], v1::OPERATION_STATE_RUNNING);
  EXPECT_TRUE(told[states.size() - 2].has_operation()) << "tokens came before the state";
  int reasons = 0;
  for (const auto& response : told) reasons += response.tokens().finish_reason() == "length";
  EXPECT_EQ(reasons, 3);
}

TEST_F(OperationWatchTest, OneThatHasEndedTellsTheSame) {
  start();
  Client client = with_run();
  client.wait_for(v1::RUN_STATE_READY);
  ASSERT_TRUE(client.sample(2, 30).ok());
  client.wait(client.last_.name());
  const Told told = client.watch(client.last_.name());
  expect_all_tokens(told);
  EXPECT_EQ(states_of(told), std::vector<v1::OperationState>{v1::OPERATION_STATE_SUCCEEDED});
  const std::vector<int> known = {30, 12};
  const auto rest = tokens_of(client.watch(client.last_.name(), known), known);
  EXPECT_EQ(rest.count(0), 0u);
  EXPECT_EQ(rest.at(1).size(), 18u);
}

TEST_F(OperationWatchTest, EveryStateOfAnOrderedVerbIsTold) {
  plan_.step_time = 30ms;
  start();
  Client client = with_run();
  client.wait_for(v1::RUN_STATE_READY);
  for (int seq = 1; seq <= 12; ++seq) client.forward_backward(seq, {seq == 12 ? -1 : 1});
  const auto states = states_of(client.watch(client.name_of(12)));
  EXPECT_EQ(states, (std::vector<v1::OperationState>{v1::OPERATION_STATE_WAITING,
                                                     v1::OPERATION_STATE_RUNNING,
                                                     v1::OPERATION_STATE_FAILED}));
  client.forward_backward(14, {1});
  ASSERT_TRUE(client.cancel(14).ok());
  const Told cancelled = client.watch(client.name_of(14));
  EXPECT_EQ(states_of(cancelled), std::vector<v1::OperationState>{v1::OPERATION_STATE_CANCELLED});
  EXPECT_EQ(cancelled[0].operation().error().info().reason(), "CANCELLED_BY_CLIENT");
  client.watch(client.name_of(77));
  EXPECT_EQ(info_of(client.status_).reason(), "OPERATION_NOT_FOUND");
  client.watch(client.name_of(12), {-1});
  EXPECT_EQ(info_of(client.status_).metadata().at("field"), "known_tokens");
}

TEST_F(OperationWatchTest, ReadersThatDoNotReadOrVanishDelayNobody) {
  plan_.token_time = 1ms;
  plan_.context_length = 4096;
  start();
  Client client = with_run();
  client.wait_for(v1::RUN_STATE_READY);
  ASSERT_TRUE(client.sample(8, 200).ok());
  const std::string name = client.last_.name();
  const auto stub = v1::OperationService::NewStub(daemon_->channel());
  v1::WatchOperationRequest request;
  request.set_name(name);
  grpc::ClientContext slow_context;
  const auto slow = stub->WatchOperation(&slow_context, request);
  {
    grpc::ClientContext gone_context;
    const auto gone = stub->WatchOperation(&gone_context, request);
    v1::WatchOperationResponse response;
    EXPECT_TRUE(gone->Read(&response));
    gone_context.TryCancel();
    gone->Finish();
  }
  EXPECT_EQ(client.wait(name).state(), v1::OPERATION_STATE_SUCCEEDED);
  Told told;
  for (v1::WatchOperationResponse response; slow->Read(&response);) told.push_back(response);
  EXPECT_TRUE(slow->Finish().ok());
  expect_all_tokens(told);
}

TEST_F(OperationWatchTest, TheLeaseDoesNotRunWhileItIsHeld) {
  start();
  v1::RunSpec spec;
  spec.set_lease_seconds(1);
  Client client = with_run(spec);
  client.wait_for(v1::RUN_STATE_READY);
  auto hold = daemon_->runs().find(client.run_.name().substr(5))->hold_lease_of(client.token_);
  std::this_thread::sleep_for(1500ms);
  EXPECT_EQ(client.get().state(), v1::RUN_STATE_READY);
  hold.release();
  EXPECT_EQ(client.wait_for(v1::RUN_STATE_CLOSED).state(), v1::RUN_STATE_CLOSED);
}

}  // namespace
}  // namespace meshloom::control
