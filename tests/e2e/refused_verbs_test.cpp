// SPDX-License-Identifier: Apache-2.0
// Malformed verbs: each is refused with its code and reason, and the same run goes on with the same
// bits.
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <limits>
#include <thread>

#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/run_client.h"

namespace meshloom::e2e {
namespace {

using grpc::StatusCode;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kSeqLen = 16;

struct VerbRefusal {
  const char* name;
  StatusCode code;
  std::string reason;
  std::string message;  ///< part of it
  std::function<Outcome(RunClient&)> send;
};
using VerbRefusals = std::vector<VerbRefusal>;

v1::LossBatch good_batch() {
  v1::LossBatch batch;
  batch.set_loss("cross_entropy");
  *batch.add_data() = next_token_datum({104, 101, 108, 108, 111, 10});
  *batch.add_data() = next_token_datum({119, 111, 114, 108, 100});
  return batch;
}

/// The same for a loss with log-probs and advantages.
v1::LossBatch policy_batch(const std::string& loss) {
  v1::LossBatch batch = good_batch();
  batch.set_loss(loss);
  for (v1::Datum& datum : *batch.mutable_data())
    for (int i = 0; i < datum.tokens_size(); ++i) {
      datum.add_logprobs(-5.0f);
      datum.add_advantages(1.0f);
    }
  return batch;
}

/// A forward_backward of a good batch that `spoil` has changed.
std::function<Outcome(RunClient&)> batch_with(v1::LossBatch batch,
                                              const std::function<void(v1::LossBatch&)>& spoil) {
  spoil(batch);
  return [batch](RunClient& client) { return client.forward_backward(batch); };
}
std::function<Outcome(RunClient&)> datum_with(const std::function<void(v1::Datum&)>& spoil,
                                              const v1::LossBatch& batch = good_batch()) {
  return batch_with(batch, [&](v1::LossBatch& b) { spoil(*b.mutable_data(1)); });
}

VerbRefusals wrong_tokens() {
  const StatusCode code = StatusCode::INVALID_ARGUMENT;
  const std::string reason = "INVALID_ARGUMENT";
  return {
      {"a token below 0", code, reason, "data[1].tokens[2]",
       datum_with([](v1::Datum& d) { d.set_tokens(2, -1); })},
      {"a token beyond the vocabulary", code, reason, "data[1].tokens[0]: 256",
       datum_with([](v1::Datum& d) { d.set_tokens(0, 256); })},
      {"a huge token", code, reason, "2147483647",
       datum_with([](v1::Datum& d) { d.set_tokens(0, std::numeric_limits<int>::max()); })},
      {"a target below 0", code, reason, "data[1].targets[1]",
       datum_with([](v1::Datum& d) { d.set_targets(1, -100); })},
      {"a target beyond the vocabulary", code, reason, "data[1].targets[3]",
       datum_with([](v1::Datum& d) { d.set_targets(3, 1000); })},
      {"fewer targets than tokens", code, reason, "has 3 values, expected 4",
       datum_with([](v1::Datum& d) { d.mutable_targets()->RemoveLast(); })},
      {"more targets than tokens", code, reason, "has 5 values, expected 4",
       datum_with([](v1::Datum& d) { d.add_targets(1); })},
      {"a negative number of targets", code, reason, "targets_per_token",
       datum_with([](v1::Datum& d) { d.set_targets_per_token(-2); })},
      {"0 targets a token", code, reason, "data[1].targets_per_token: 0 is not a number from 1",
       datum_with([](v1::Datum& d) { d.set_targets_per_token(0); })},
      {"two targets a token for ppo", code, reason, "takes one target a token",
       datum_with([](v1::Datum& d) { d.set_targets_per_token(2); }, policy_batch("ppo"))},
      {"no tokens", code, reason, "data[1].tokens", datum_with([](v1::Datum& d) { d.Clear(); })},
      {"more tokens than the run's longest datum", code, reason, "longest datum of 16",
       datum_with([](v1::Datum& d) { d = next_token_datum(std::vector<int>(kSeqLen + 2, 7)); })},
      {"document ids of another length", code, reason, "document_ids",
       datum_with([](v1::Datum& d) { d.add_document_ids(0); })},
      {"a position id beyond the context", code, reason, "position_ids[0]",
       datum_with([](v1::Datum& d) {
         for (int i = 0; i < d.tokens_size(); ++i) d.add_position_ids(1 << 20);
       })},
      {"0 samples at once", code, reason, "micro_batch_size: must be above 0, got 0",
       batch_with(good_batch(), [](v1::LossBatch& b) { b.set_micro_batch_size(0); })},
      {"no data", code, reason, "data",
       batch_with(good_batch(), [](v1::LossBatch& b) { b.clear_data(); })},
  };
}

VerbRefusals wrong_losses() {
  const StatusCode code = StatusCode::INVALID_ARGUMENT;
  const std::string reason = "INVALID_ARGUMENT";
  return {
      {"weights of another length", code, reason, "weights",
       datum_with([](v1::Datum& d) { d.add_weights(1.0f); })},
      {"a weight that is no number", code, reason, "weights[3]", datum_with([](v1::Datum& d) {
         for (int i = 0; i < d.tokens_size(); ++i) d.add_weights(i == 3 ? kNan : 1.0f);
       })},
      {"an infinite weight", code, reason, "weights[0]", datum_with([](v1::Datum& d) {
         for (int i = 0; i < d.tokens_size(); ++i) d.add_weights(kInfinity);
       })},
      {"log-probs for cross_entropy", code, reason, "logprobs",
       datum_with([](v1::Datum& d) { d.add_logprobs(-1.0f); })},
      {"weights for ppo", code, reason, "weights",
       datum_with([](v1::Datum& d) { d.add_weights(1.0f); }, policy_batch("ppo"))},
      {"importance_sampling without log-probs", code, reason, "logprobs",
       datum_with([](v1::Datum& d) { d.clear_logprobs(); }, policy_batch("importance_sampling"))},
      {"an advantage that is no number", code, reason, "advantages[1]",
       datum_with([](v1::Datum& d) { d.set_advantages(1, kNan); }, policy_batch("dro"))},
      {"gspo without a mask", code, reason, "sequence_ratio_mask",
       datum_with([](v1::Datum&) {}, policy_batch("gspo"))},
      {"a ratio that is not finite", StatusCode::FAILED_PRECONDITION, "NON_FINITE_LOSS",
       "data[1], token 2",
       datum_with([](v1::Datum& d) { d.set_logprobs(2, -1e30f); },
                  policy_batch("importance_sampling"))},
      {"an unknown loss", code, reason, "cross_entropie",
       batch_with(good_batch(), [](v1::LossBatch& b) { b.set_loss("cross_entropie"); })},
      {"no loss", code, reason, "loss",
       batch_with(good_batch(), [](v1::LossBatch& b) { b.clear_loss(); })},
      {"a key that the loss does not have", code, reason, "loss_config[beta]",
       batch_with(policy_batch("ppo"),
                  [](v1::LossBatch& b) { (*b.mutable_loss_config())["beta"] = 1; })},
      {"a threshold that is no number", code, reason, "clip_low_threshold",
       batch_with(
           policy_batch("ppo"),
           [](v1::LossBatch& b) { (*b.mutable_loss_config())["clip_low_threshold"] = kNan; })},
      {"an unknown reduction", code, reason, "reduction",
       batch_with(good_batch(),
                  [](v1::LossBatch& b) { b.set_reduction(static_cast<v1::LossReduction>(9)); })},
      {"a negative count of tokens", code, reason, "tokens",
       batch_with(good_batch(),
                  [](v1::LossBatch& b) {
                    b.set_reduction(v1::LOSS_REDUCTION_TOKEN_MEAN);
                    b.set_tokens(-5);
                  })},
      {"a count of tokens for a sum", code, reason, "tokens",
       batch_with(good_batch(), [](v1::LossBatch& b) { b.set_tokens(9); })},
      {"a negative micro batch", code, reason, "micro_batch_size",
       batch_with(good_batch(), [](v1::LossBatch& b) { b.set_micro_batch_size(-1); })},
  };
}

std::function<Outcome(RunClient&)> step_with(
    const std::function<void(v1::OptimStepParams&)>& spoil) {
  v1::OptimStepParams params;
  spoil(params);
  return [params](RunClient& client) { return client.optim_step(params); };
}

VerbRefusals wrong_steps() {
  const StatusCode code = StatusCode::INVALID_ARGUMENT;
  const std::string reason = "INVALID_ARGUMENT";
  return {
      {"a learning rate that is no number", code, reason, "lr",
       step_with([](v1::OptimStepParams& p) { p.set_lr(kNan); })},
      {"a negative learning rate", code, reason, "lr",
       step_with([](v1::OptimStepParams& p) { p.set_lr(-1); })},
      {"beta1 above 1", code, reason, "beta1",
       step_with([](v1::OptimStepParams& p) { p.set_beta1(1.5); })},
      {"an infinite eps", code, reason, "eps",
       step_with([](v1::OptimStepParams& p) { p.set_eps(kInfinity); })},
      {"momentum for adamw", code, reason, "momentum",
       step_with([](v1::OptimStepParams& p) { p.set_momentum(0.9); })},
      {"a norm that is no number", code, reason, "grad_clip_norm",
       step_with([](v1::OptimStepParams& p) { p.set_grad_clip_norm(kNan); })},
  };
}

/// With `bytes` times this byte as its values: 0, or what makes every value NaN.
v1::ParameterValue parameter(const std::string& name, std::vector<std::int64_t> shape, int bytes,
                             char byte = 0) {
  v1::ParameterValue value;
  value.set_name(name);
  value.set_dtype("float32");
  for (const std::int64_t size : shape) value.add_shape(size);
  value.set_data(std::string(static_cast<std::size_t>(bytes), byte));
  return value;
}

std::function<Outcome(RunClient&)> set_parameter(const v1::ParameterValue& value) {
  return [value](RunClient& client) {
    v1::SetParametersRequest request;
    *request.add_parameters() = value;
    return client.run(&RunClient::Runs::SetParameters, request);
  };
}

VerbRefusals wrong_states_and_parameters() {
  using Stub = RunClient::Runs;
  const StatusCode code = StatusCode::INVALID_ARGUMENT;
  const std::string reason = "INVALID_ARGUMENT";
  return {
      {"a state with a path as its name", code, reason, "name",
       [](RunClient& c) { return c.save_state("../../journal"); }},
      {"a state without a name", code, reason, "name",
       [](RunClient& c) { return c.save_state(""); }},
      {"a state that is none", code, "NAME_INVALID", "",
       [](RunClient& c) {
         v1::LoadStateRequest request;
         request.set_state("/etc/passwd");
         return c.run(&Stub::LoadState, request);
       }},
      {"a state that does not exist", StatusCode::NOT_FOUND, "STATE_NOT_FOUND", "nobody",
       [](RunClient& c) {
         v1::LoadStateRequest request;
         request.set_state("runs/nobody/states/none");
         return c.run(&Stub::LoadState, request);
       }},
      {"weights of an unknown dtype", code, reason, "dtype: \"float8\"",
       [](RunClient& c) {
         v1::SaveWeightsRequest request;
         request.set_name("hf");
         request.set_dtype("float8");
         return c.run(&Stub::SaveWeights, request);
       }},
      {"no parameters", code, reason, "names",
       [](RunClient& c) { return c.run(&Stub::GetParameters, v1::GetParametersRequest()); }},
      {"an unknown parameter", StatusCode::NOT_FOUND, "NOT_FOUND", "no_such",
       [](RunClient& c) {
         v1::GetParametersRequest request;
         request.add_names("no_such.weight");
         return c.run(&Stub::GetParameters, request);
       }},
      {"an unknown parameter to set", StatusCode::NOT_FOUND, "NOT_FOUND", "no_such",
       set_parameter(parameter("no_such.weight", {1}, 4))},
      {"a parameter of another shape", code, reason, "parameters[0].shape",
       set_parameter(parameter("transformer.ln_f.weight", {3, 5}, 60))},
      {"a parameter with a negative size", code, reason, "parameters[0].shape",
       set_parameter(parameter("transformer.ln_f.weight", {-64}, 4))},
      {"a parameter whose values are no numbers", code, reason, "parameters[0].data",
       set_parameter(parameter("transformer.ln_f.weight", {64}, 256, '\xff'))},
      {"fewer bytes than the shape says", code, reason, "parameters[0].data",
       set_parameter(parameter("transformer.ln_f.weight", {64}, 4))},
      {"a parameter of another dtype", code, reason, "parameters[0].dtype",
       [](RunClient& c) {
         v1::SetParametersRequest request;
         v1::ParameterValue& value = *request.add_parameters();
         value = parameter("transformer.ln_f.weight", {64}, 512);
         value.set_dtype("float64");
         return c.run(&Stub::SetParameters, request);
       }},
      {"a skip of no verb", code, reason, "fly",
       [](RunClient& c) {
         v1::SkipRequest request;
         request.set_verb("fly");
         return c.run(&Stub::Skip, request);
       }},
  };
}

/// An optim_step with this id.
std::function<Outcome(RunClient&)> with_id(std::int64_t seq_behind_next, std::int64_t epoch,
                                           const std::string& run = "") {
  return [=](RunClient& client) {
    v1::OptimStepRequest request;
    request.mutable_id()->set_run(run);
    request.mutable_id()->set_epoch(epoch);
    request.mutable_id()->set_seq(client.next_seq + seq_behind_next);
    return client.run_as(&RunClient::Runs::OptimStep, request);
  };
}

VerbRefusals wrong_ids() {
  const StatusCode code = StatusCode::INVALID_ARGUMENT;
  return {
      {"a number below 1", code, "SEQUENCE_INVALID", "", with_id(-1'000'000, 1)},
      {"a number far ahead", code, "SEQUENCE_INVALID", "", with_id(1'000'000, 1)},
      {"a number of another verb", code, "SEQUENCE_REUSED", "", with_id(-1, 1)},
      {"an epoch that is to come", code, "EPOCH_UNKNOWN", "epoch 9", with_id(0, 9)},
      {"an epoch below 0", code, "EPOCH_UNKNOWN", "epoch -1", with_id(0, -1)},
      {"a run that does not exist", StatusCode::NOT_FOUND, "RUN_NOT_FOUND", "nobody",
       with_id(0, 1, "runs/nobody")},
      {"a run with a path as its name", code, "NAME_INVALID", "", with_id(0, 1, "runs/../x")},
      {"another client's token", StatusCode::FAILED_PRECONDITION, "TOKEN_INVALID", "",
       [](RunClient& client) {
         const std::string own = std::exchange(client.token, std::string(32, 'a'));
         Outcome outcome = with_id(0, 1)(client);
         client.token = own;
         return outcome;
       }},
      {"no token", StatusCode::FAILED_PRECONDITION, "TOKEN_INVALID", "",
       [](RunClient& client) {
         const std::string own = std::exchange(client.token, "");
         Outcome outcome = with_id(0, 1)(client);
         client.token = own;
         return outcome;
       }},
      {"an operation that is not there", StatusCode::NOT_FOUND, "OPERATION_NOT_FOUND", "",
       [](RunClient& client) { return client.wait("operations/refusing/1/999999"); }},
      {"a cancel of what has ended", StatusCode::FAILED_PRECONDITION, "OPERATION_ENDED", "",
       [](RunClient& client) { return client.cancel("operations/refusing/1/1"); }},
  };
}

std::function<Outcome(RunClient&)> sample_request(
    const std::function<void(v1::SampleRequest&)>& spoil) {
  v1::SampleRequest request;
  request.add_prompts()->set_prompt("ab");
  request.mutable_params()->set_max_tokens(3);
  spoil(request);
  return [request](RunClient& client) { return client.sample(request); };
}

VerbRefusals wrong_samples() {
  const StatusCode code = StatusCode::INVALID_ARGUMENT;
  const std::string reason = "INVALID_ARGUMENT";
  return {
      {"no prompts", code, reason, "prompts",
       sample_request([](v1::SampleRequest& r) { r.clear_prompts(); })},
      {"a negative number of samples", code, reason, "samples",
       sample_request([](v1::SampleRequest& r) { r.set_samples(-1); })},
      {"too many samples", code, reason, "samples",
       sample_request([](v1::SampleRequest& r) { r.set_samples(1 << 30); })},
      {"a temperature that is no number", code, reason, "temperature",
       sample_request([](v1::SampleRequest& r) { r.mutable_params()->set_temperature(kNan); })},
      {"a negative number of tokens", code, reason, "max_tokens",
       sample_request([](v1::SampleRequest& r) { r.mutable_params()->set_max_tokens(-1); })},
      {"weights of another step", StatusCode::FAILED_PRECONDITION, "WEIGHTS_STALE", "",
       sample_request([](v1::SampleRequest& r) { r.set_weights_step(77); })},
  };
}

class RefusedVerbsE2e : public DaemonTest {
 protected:
  static v1::RunSpec spec(const std::string& name) {
    v1::RunSpec spec;
    spec.set_name(name);
    v1::RunConfig& config = *spec.mutable_config();
    config.mutable_model()->set_preset("byte_gpt_tiny");
    config.mutable_mesh()->set_fsdp(2);
    config.mutable_plan()->set_dtype("float32");
    config.mutable_training()->set_seq_len(kSeqLen);
    config.mutable_training()->set_seed(5);
    return spec;
  }

  static void expect_refused(RunClient& client, const VerbRefusals& refusals) {
    for (const VerbRefusal& refusal : refusals) expect_refused(refusal, refusal.send(client));
  }

  /// The same of a run that waits for the ranks: some are refused at once, the others once it has
  /// them. Returns what is left to be told.
  static std::vector<std::pair<VerbRefusal, std::string>> send_all(RunClient& client,
                                                                   const VerbRefusals& refusals) {
    std::vector<std::pair<VerbRefusal, std::string>> waiting;
    client.waits = false;
    for (const VerbRefusal& refusal : refusals) {
      const Outcome outcome = refusal.send(client);
      if (outcome.ok())
        waiting.emplace_back(refusal, outcome.operation.name());
      else
        expect_refused(refusal, outcome);
    }
    client.waits = true;
    return waiting;
  }
  static void expect_refused(const VerbRefusal& refusal, const Outcome& outcome) {
    SCOPED_TRACE(refusal.name);
    EXPECT_EQ(outcome.code, refusal.code) << outcome.message;
    EXPECT_EQ(outcome.reason, refusal.reason) << outcome.message;
    EXPECT_NE(outcome.message.find(refusal.message), std::string::npos) << outcome.message;
  }

  /// Two steps; the weights behind them.
  std::string train(RunClient& client) const {
    for (int i = 0; i < 2; ++i) {
      const Outcome gradients = client.forward_backward(good_batch());
      EXPECT_TRUE(gradients.ok()) << gradients.message;
      const Outcome stepped = client.optim_step();
      EXPECT_TRUE(stepped.ok()) << stepped.message;
      EXPECT_EQ(stepped.operation.result().optim_step().step(), i + 1);
    }
    return client.weights(state_);
  }
};

TEST_F(RefusedVerbsE2e, EachHasItsCodeAndReasonAndTheRunGoesOnWithTheSameBits) {
  start();
  RunClient clean(address_);
  ASSERT_TRUE(clean.create(spec("clean")));
  const std::string expected = train(clean);
  ASSERT_GT(expected.size(), 1000u);
  EXPECT_TRUE(clean.close().ok());

  RunClient client(address_);
  ASSERT_TRUE(client.create(spec("refusing")));
  ASSERT_TRUE(client.forward_backward(good_batch()).ok());
  expect_refused(client, wrong_steps());  // the gradients stay
  expect_refused(client, wrong_ids());
  expect_refused(client, wrong_samples());
  expect_refused(client, wrong_tokens());
  expect_refused(client, wrong_losses());
  expect_refused(client, wrong_states_and_parameters());
  const Outcome poisoned = client.optim_step();
  EXPECT_EQ(poisoned.code, StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(poisoned.reason, "GRADIENTS_POISONED") << poisoned.message;
  const Outcome nothing = client.optim_step();
  EXPECT_EQ(nothing.code, StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(nothing.reason, "NO_GRADIENTS") << nothing.message;
  EXPECT_EQ(client.get().epoch(), 1);
  EXPECT_TRUE(train(client) == expected);

  EXPECT_TRUE(client.close().ok());
  const Outcome closed = client.forward(good_batch());
  EXPECT_EQ(closed.code, StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(closed.reason, "RUN_CLOSED") << closed.message;
  shut_down();
}

TEST_F(RefusedVerbsE2e, ALongLossIsLeftAndTheRunGoesOnWithTheSameBits) {
  start();
  RunClient clean(address_);
  ASSERT_TRUE(clean.create(spec("clean")));
  const std::string expected = train(clean);
  EXPECT_TRUE(clean.close().ok());

  RunClient client(address_);
  ASSERT_TRUE(client.create(spec("long")));
  v1::LossBatch batch = good_batch();
  batch.set_micro_batch_size(1);
  while (batch.data_size() < 30'000) *batch.add_data() = batch.data(batch.data_size() % 2);
  const auto begin = [&] {
    client.waits = false;
    const std::string name = client.forward_backward(batch).operation.name();
    client.waits = true;
    EXPECT_TRUE(eventually(
        30s, [&] { return client.look(name).operation.state() == v1::OPERATION_STATE_RUNNING; }));
    std::this_thread::sleep_for(500ms);
    return name;
  };
  const std::string cancelled = begin();
  const auto asked = std::chrono::steady_clock::now();
  ASSERT_TRUE(client.cancel(cancelled).ok());
  EXPECT_EQ(client.look(cancelled).operation.state(), v1::OPERATION_STATE_CANCELLED);
  const Outcome poisoned = client.optim_step();
  EXPECT_EQ(poisoned.reason, "GRADIENTS_POISONED") << poisoned.message;
  EXPECT_NE(poisoned.message.find("it was stopped behind"), std::string::npos) << poisoned.message;
  EXPECT_LT(std::chrono::steady_clock::now() - asked, 4s) << "the whole takes several times that";
  EXPECT_TRUE(train(client) == expected);

  const std::string closed = begin();
  const auto closing = std::chrono::steady_clock::now();
  ASSERT_TRUE(client.close().ok());
  EXPECT_EQ(client.wait(closed).reason, "RUN_CLOSED");
  EXPECT_TRUE(eventually(10s, [&] { return client.get().state() == v1::RUN_STATE_CLOSED; }));
  EXPECT_LT(std::chrono::steady_clock::now() - closing, 4s);
  shut_down();
}

TEST_F(RefusedVerbsE2e, AJobThatTrainsMeanwhileKeepsItsBits) {
  start();
  TinyJob tiny;
  tiny.steps = 400;
  submit(tiny, "undisturbed");
  ASSERT_TRUE(reaches("undisturbed", "succeeded")) << job("undisturbed").dump(2);
  RunClient clean(address_), closed(address_), queued(address_);
  ASSERT_TRUE(clean.create(spec("clean")));
  const std::string expected = train(clean);
  EXPECT_TRUE(clean.close().ok());
  ASSERT_TRUE(closed.create(spec("closed")));
  EXPECT_TRUE(closed.close().ok());

  submit(tiny, "beside");
  ASSERT_TRUE(reaches_step("beside", 3)) << job("beside").dump(2);
  ASSERT_TRUE(queued.submit(spec("queued")).ok());
  std::vector<std::pair<VerbRefusal, std::string>> waiting;
  for (const VerbRefusals& refusals :
       {wrong_steps(), wrong_tokens(), wrong_losses(), wrong_states_and_parameters()}) {
    for (auto& left : send_all(queued, refusals)) waiting.push_back(std::move(left));
    for (const VerbRefusal& refusal : refusals) {
      const Outcome outcome = refusal.send(closed);
      EXPECT_EQ(outcome.code, StatusCode::FAILED_PRECONDITION) << refusal.name;
      EXPECT_EQ(outcome.reason, "RUN_CLOSED") << refusal.name;
    }
  }
  for (auto& left : send_all(queued, wrong_samples())) waiting.push_back(std::move(left));
  EXPECT_GT(waiting.size(), 20u);
  EXPECT_EQ(queued.get().state(), v1::RUN_STATE_QUEUED);
  EXPECT_EQ(job("beside")["state"], "running") << "the job has ended before: make it longer";
  ASSERT_TRUE(reaches("beside", "succeeded")) << job("beside").dump(2);
  EXPECT_EQ(step_losses("beside"), step_losses("undisturbed"));

  for (const auto& [refusal, operation] : waiting) expect_refused(refusal, queued.wait(operation));
  EXPECT_EQ(queued.optim_step().reason, "GRADIENTS_POISONED");
  EXPECT_TRUE(train(queued) == expected);
  EXPECT_TRUE(queued.close().ok());
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
