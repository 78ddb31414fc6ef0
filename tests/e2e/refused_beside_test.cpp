// SPDX-License-Identifier: Apache-2.0
// What is refused beside the verbs of runs: samples, times to live, weights, states, plans. Each
// has its code and reason, and a job that trains meanwhile keeps its losses.
#include <fmt/format.h>

#include <functional>
#include <limits>

#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/refusal.h"
#include "tests/e2e/run_client.h"
#include "tests/e2e/zero_requests.h"
#include "v1/checkpoint_service.grpc.pb.h"
#include "v1/plan_service.grpc.pb.h"

namespace meshloom::e2e {
namespace {

using grpc::StatusCode;
using Runs = RunClient::Runs;

template <typename Request, typename Method>
std::function<Outcome(RunClient&)> named(Method method, const std::string& name) {
  return [=](RunClient& client) {
    Request request;
    request.set_name(name);
    return client.call(method, request);
  };
}

std::function<Outcome(RunClient&)> sample_with(
    const std::function<void(v1::SampleRequest&)>& spoil) {
  v1::SampleRequest request;
  request.add_prompts()->set_prompt("ab");
  request.mutable_params()->set_max_tokens(3);
  spoil(request);
  return [request](RunClient& client) { return client.sample(request); };
}

std::function<Outcome(RunClient&)> state_with(
    const std::function<void(v1::SaveStateRequest&)>& spoil) {
  v1::SaveStateRequest request;
  request.set_name("s");
  spoil(request);
  return [request](RunClient& client) { return client.run(&Runs::SaveState, request); };
}

std::function<Outcome(RunClient&)> weights_with(
    const std::function<void(v1::SaveWeightsRequest&)>& spoil) {
  v1::SaveWeightsRequest request;
  request.set_name("w");
  spoil(request);
  return [request](RunClient& client) { return client.run(&Runs::SaveWeights, request); };
}

/// Of a run that waits for the ranks.
Refusals of_states_and_weights() {
  const StatusCode invalid = StatusCode::INVALID_ARGUMENT;
  const std::string reason = "INVALID_ARGUMENT";
  return {
      {"a negative time to live", invalid, reason, "ttl_seconds",
       state_with([](auto& r) { r.set_ttl_seconds(-1); })},
      {"a time to live of ages", invalid, reason, "ttl_seconds",
       state_with([](auto& r) { r.set_ttl_seconds(std::numeric_limits<std::int64_t>::max()); })},
      {"metadata beyond what is kept", invalid, reason, "user_metadata",
       state_with([](auto& r) { (*r.mutable_user_metadata())["k"] = std::string(100'000, 'x'); })},
      {"an unknown storage", invalid, reason, "storage",
       weights_with([](auto& r) { r.set_storage(static_cast<v1::WeightsStorage>(9)); })},
      {"a dtype of weights in memory", invalid, reason, "dtype", weights_with([](auto& r) {
         r.set_storage(v1::WEIGHTS_STORAGE_MEMORY);
         r.set_dtype("float32");
       })},
      {"weights with a path as their name", invalid, reason, "name",
       weights_with([](auto& r) { r.set_name("../w"); })},
      {"weights that there are not", StatusCode::NOT_FOUND, "WEIGHTS_NOT_FOUND", "",
       named<v1::DeleteWeightsRequest>(&Runs::DeleteWeights, "runs/queued/weights/none")},
      {"weights of another run", StatusCode::FAILED_PRECONDITION, "TOKEN_INVALID", "",
       named<v1::DeleteWeightsRequest>(&Runs::DeleteWeights, "runs/closed/weights/kept")},
      {"weights without a run", invalid, "NAME_INVALID", "",
       named<v1::DeleteWeightsRequest>(&Runs::DeleteWeights, "weights/kept")},
      {"a state that there is not", StatusCode::NOT_FOUND, "STATE_NOT_FOUND", "",
       named<v1::DeleteStateRequest>(&Runs::DeleteState, "runs/queued/states/none")},
      {"a state of another run", StatusCode::FAILED_PRECONDITION, "TOKEN_INVALID", "",
       named<v1::DeleteStateRequest>(&Runs::DeleteState, "runs/closed/states/s1")},
  };
}

/// Of a run that has ended.
Refusals of_a_closed_run() {
  const StatusCode wrong_state = StatusCode::FAILED_PRECONDITION;
  return {
      {"a sample", wrong_state, "RUN_CLOSED", "", sample_with([](auto&) {})},
      {"a sample of weights on disk", wrong_state, "RUN_CLOSED", "",
       sample_with([](auto& r) { r.set_weights("runs/closed/weights/kept"); })},
      {"a state", wrong_state, "RUN_CLOSED", "", state_with([](auto& r) { r.set_ttl_seconds(5); })},
      {"weights", wrong_state, "RUN_CLOSED", "", weights_with([](auto&) {})},
  };
}

std::function<Outcome(RunClient&)> download(const std::string& address, const std::string& name,
                                            std::int64_t offset) {
  return [=](RunClient& client) {
    const auto stub = v1::CheckpointService::NewStub(
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    v1::ReadCheckpointRequest request;
    request.set_name(name);
    request.set_offset(offset);
    return client.call(*stub, &v1::CheckpointService::Stub::ReadCheckpoint, request);
  };
}

Refusals of_downloads(const std::string& address) {
  return {
      {"a download of no weights", StatusCode::NOT_FOUND, "WEIGHTS_NOT_FOUND", "",
       download(address, "runs/closed/weights/none", 0)},
      {"a download from behind the end", StatusCode::OUT_OF_RANGE, "OFFSET_INVALID", "",
       download(address, "runs/closed/weights/kept", std::int64_t{1} << 40)},
      {"a download of a run that there is not", StatusCode::NOT_FOUND, "RUN_NOT_FOUND", "",
       download(address, "runs/nobody/weights/kept", 0)},
  };
}

Refusals of_plans(const std::string& address) {
  using Plans = v1::PlanService::Stub;
  const std::shared_ptr<Plans> stub =
      v1::PlanService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  const auto with = [&](auto method, auto request, const auto& spoil) {
    request.mutable_model()->set_preset("byte_gpt_tiny");
    spoil(request);
    return [=](RunClient& client) { return client.call(*stub, method, request); };
  };
  const auto one = [&](auto method, auto request, const std::string& name) {
    request.set_name(name);
    return [=](RunClient& client) { return client.call(*stub, method, request); };
  };
  const StatusCode invalid = StatusCode::INVALID_ARGUMENT;
  return {
      {"a plan of other ranks", StatusCode::FAILED_PRECONDITION, "NEEDS_OTHER_RANKS", "",
       with(&Plans::CreatePlan, v1::CreatePlanRequest(),
            [](auto& r) { r.mutable_query()->mutable_mesh()->set_dp(3); })},
      {"a plan of a model that there is not", StatusCode::NOT_FOUND, "PRESET_NOT_FOUND", "",
       with(&Plans::EstimatePlan, v1::EstimatePlanRequest(),
            [](auto& r) { r.mutable_model()->set_preset("unheard_of"); })},
      {"a mesh with a negative size", invalid, "INVALID_ARGUMENT", "",
       with(&Plans::EstimatePlan, v1::EstimatePlanRequest(),
            [](auto& r) { r.mutable_query()->mutable_mesh()->set_tp(-2); })},
      {"a rank beyond the mesh", invalid, "INVALID_ARGUMENT", "",
       with(&Plans::DescribePlan, v1::DescribePlanRequest(), [](auto& r) { r.set_rank(2); })},
      {"a search of no ranks", invalid, "INVALID_ARGUMENT", "",
       with(&Plans::SearchPlans, v1::SearchPlansRequest(),
            [](auto& r) { r.mutable_query()->set_ranks(-1); })},
      {"a search of too many ranks", invalid, "INVALID_ARGUMENT", "",
       with(&Plans::SearchPlans, v1::SearchPlansRequest(),
            [](auto& r) { r.mutable_query()->set_ranks(1 << 30); })},
      {"a plan that there is not", StatusCode::NOT_FOUND, "PLAN_NOT_FOUND", "",
       one(&Plans::GetPlan, v1::GetPlanRequest(), "plans/0123456789abcdef")},
      {"a plan that is no digest", invalid, "NAME_INVALID", "",
       one(&Plans::GetPlan, v1::GetPlanRequest(), "plans/../x")},
      {"a plan to delete that there is not", StatusCode::NOT_FOUND, "PLAN_NOT_FOUND", "",
       one(&Plans::DeletePlan, v1::DeletePlanRequest(), "plans/0123456789abcdef")},
  };
}

class RefusedBesideE2e : public DaemonTest {
 protected:
  static v1::RunSpec spec(const std::string& name) {
    v1::RunSpec spec;
    spec.set_name(name);
    spec.mutable_config()->mutable_model()->set_preset("byte_gpt_tiny");
    spec.mutable_config()->mutable_training()->set_seq_len(16);
    return spec;
  }
};

TEST_F(RefusedBesideE2e, AJobThatTrainsKeepsItsLosses) {
  start();
  submit_endless("dp2", "undisturbed", 2000);
  ASSERT_NO_FATAL_FAILURE(cancel("undisturbed"));
  RunClient closed(address_), queued(address_);
  ASSERT_TRUE(closed.create(spec("closed")));
  ASSERT_TRUE(closed.save_weights("kept").ok());
  ASSERT_TRUE(closed.save_state("s1").ok());
  EXPECT_TRUE(closed.close().ok());

  submit_endless("dp2", "beside", 3);
  ASSERT_TRUE(queued.submit(spec("queued")).ok());
  expect_refused(queued, of_states_and_weights());
  expect_refused(closed, of_a_closed_run());
  expect_refused(closed, of_downloads(address_));
  expect_refused(queued, of_plans(address_));
  send_zeros(address_, queued);
  EXPECT_EQ(queued.get().state(), v1::RUN_STATE_QUEUED);
  EXPECT_EQ(job("beside")["state"], "running");
  ASSERT_NO_FATAL_FAILURE(cancel("beside"));
  expect_same_losses("beside", "undisturbed");
  // The run comes to its turn with nothing but used up numbers behind it.
  ASSERT_TRUE(queued.wait_ready());
  EXPECT_TRUE(queued.save_weights("w").ok());
  EXPECT_TRUE(queued.close().ok());
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
