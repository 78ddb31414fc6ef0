// SPDX-License-Identifier: Apache-2.0
// What the default plans send: collectives of forward, backward and gradients, counted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "daemon/parallel/parallelize_model.h"
#include "daemon/tensor/autograd/backward.h"
#include "tests/support/partial_gradients.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::parallel {
namespace {

using Calls = std::map<std::string, int>;

struct StepCalls {
  Calls forward, backward, gradients;
};

/// Which parameters are trained; null: all.
using Trained = std::function<bool(const std::string& name)>;

Calls calls_since(const dtensor::DeviceMesh& mesh, Calls& seen) {
  Calls now, since;
  for (const auto& [name, counter] : mesh.counters()) now[name] = static_cast<int>(counter.calls);
  for (const auto& [name, count] : now)
    if (count != seen[name]) since[name] = count - seen[name];
  seen = std::move(now);
  return since;
}

StepCalls step_calls(const nn::ModelConfig& config, bool sequence, const Trained& trained = {},
                     const planner::FusionPlan& fusion = {}) {
  StepCalls result;
  testing::run_ranks(4, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"tp", world.size()}}));
    const auto model = testing::make_random_model(context, config);
    for (const nn::NamedParameter& p : model->named_parameters())
      if (trained) p.parameter->value.set_requires_grad(trained(p.name));
    ParallelModel parallel(
        *model, &mesh, {.tensor_parallel = true, .sequence_parallel = sequence, .fusion = fusion});
    nn::Batch batch;
    batch.input_ids = testing::random_ids(context, 8, 8, config.vocab_size, 5);
    batch.labels = testing::random_ids(context, 8, 8, config.vocab_size, 6);
    batch.labels_shifted = config.architecture == nn::Architecture::kBert;
    StepCalls mine;
    for (int step = 0; step < 2; ++step) {  // the second is as every later one
      Calls seen;
      calls_since(mesh, seen);
      const Tensor loss = model->loss(batch, 0.125f, {.training = true});
      mine.forward = calls_since(mesh, seen);
      autograd::backward(loss);
      mine.backward = calls_since(mesh, seen);
      testing::sum_partial_gradients(context, mesh.group(0), parallel);
      mine.gradients = calls_since(mesh, seen);
    }
    if (world.rank() == 0) result = std::move(mine);
  });
  return result;
}

nn::ModelConfig toy_gpt2() {
  return nn::parse_hf_config(
      R"({"architectures":["GPT2LMHeadModel"],"vocab_size":8,"n_positions":16,
      "n_embd":16,"n_layer":2,"n_head":4,"n_inner":64,"bos_token_id":null,"eos_token_id":null,
      "resid_pdrop":0.0,"embd_pdrop":0.0,"attn_pdrop":0.0})");
}

nn::ModelConfig toy_llama(int key_value_heads = 4) {
  return nn::parse_hf_config(fmt::format(R"({{"architectures":["LlamaForCausalLM"],"vocab_size":8,
      "max_position_embeddings":16,"hidden_size":16,"num_hidden_layers":2,"num_attention_heads":4,
      "num_key_value_heads":{},"intermediate_size":64,"tie_word_embeddings":false,
      "bos_token_id":null,"eos_token_id":null}})",
                                         key_value_heads));
}

std::vector<nn::ModelConfig> models() { return {toy_gpt2(), toy_llama(), testing::tiny_bert()}; }

// Per layer attention and MLP sum their results once (forward) and their inputs' gradients once
// (backward); the embedding and the output projection do so once each; the loss gathers a few
// numbers per token. PyTorch's plan of the same model: 6 all_reduce and an all_gather of all logits
// forward, 9 all_reduce backward.
TEST(CollectiveCounts, TensorParallel) {
  const int layers = 2;
  for (const nn::ModelConfig& config : models()) {
    const StepCalls calls = step_calls(config, false);
    EXPECT_EQ(calls.forward, (Calls{{"all_reduce", 2 * layers + 1}, {"all_gather", 1}}));
    EXPECT_EQ(calls.backward, (Calls{{"all_reduce", 2 * layers + 1}}));
    // The biases that are added on one rank, all in one message.
    const bool biases = config.architecture != nn::Architecture::kLlama;
    EXPECT_EQ(calls.gradients, biases ? (Calls{{"all_reduce", 1}}) : Calls{});
  }
}

// PyTorch's: 6 reduce_scatter and 6 all_gather forward, 5 and 6 backward, and 30 all_reduce of
// norms' gradients in the optimizer.
TEST(CollectiveCounts, SequenceParallel) {
  const int layers = 2;
  for (const nn::ModelConfig& config : models()) {
    const StepCalls calls = step_calls(config, true);
    EXPECT_EQ(calls.forward,
              (Calls{{"reduce_scatter", 2 * layers + 1}, {"all_gather", 2 * layers + 2}}));
    EXPECT_EQ(calls.backward,
              (Calls{{"reduce_scatter", 2 * layers + 1}, {"all_gather", 2 * layers + 1}}));
    EXPECT_EQ(calls.gradients, (Calls{{"all_reduce", 1}}));
  }
}

// Fused products take along what they gather and scatter: what is left are the embedding, the
// output projection and the loss.
TEST(CollectiveCounts, FusedProducts) {
  if (testing::test_device() != kCpuDevice) GTEST_SKIP() << "fused products need host memory";
  for (const nn::ModelConfig& config : models()) {
    const StepCalls calls = step_calls(config, true, {}, {.mode = planner::FusionMode::kForce});
    EXPECT_EQ(calls.forward, (Calls{{"reduce_scatter", 1}, {"all_gather", 2}}));
    EXPECT_EQ(calls.backward, (Calls{{"reduce_scatter", 1}, {"all_gather", 1}}));
    EXPECT_EQ(calls.gradients, (Calls{{"all_reduce", 1}}));
  }
}

// One head for keys and values on four ranks: its projections are whole on every rank, and their
// gradients' shares meet once each per layer.
TEST(CollectiveCounts, FewerKeyValueHeadsThanRanks) {
  const StepCalls calls = step_calls(toy_llama(1), false);
  EXPECT_EQ(calls.forward, (Calls{{"all_reduce", 5}, {"all_gather", 1}}));
  EXPECT_EQ(calls.backward, (Calls{{"all_reduce", 5 + 2 * 2}}));
}

// Backward goes no further down than the lowest trained parameter, and a frozen norm's gradient is
// not summed.
TEST(CollectiveCounts, PartlyFrozenModels) {
  const Calls whole{{"reduce_scatter", 5}, {"all_gather", 5}}, top{{"reduce_scatter", 1}};
  const Calls one{{"all_reduce", 1}}, none;
  struct Row {
    std::vector<const char*> trained;
    Calls backward, gradients;
  };
  const Row rows[] = {
      {{"lm_head"}, none, none},
      {{"lm_head", "model.norm"}, top, one},
      {{"lm_head", "embed_tokens"}, whole, none},
      {{"lm_head", "embed_tokens", "model.norm"}, whole, one},
      {{"lm_head", "embed_tokens", "model.norm", "layers.0.post_attention_layernorm"}, whole, one},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.trained.back());
    const StepCalls calls = step_calls(toy_llama(), true, [&](const std::string& name) {
      for (const char* part : row.trained)
        if (name.find(part) != std::string::npos) return true;
      return false;
    });
    EXPECT_EQ(calls.forward, (Calls{{"reduce_scatter", 5}, {"all_gather", 6}}));
    EXPECT_EQ(calls.backward, row.backward);
    EXPECT_EQ(calls.gradients, row.gradients);
  }
}

}  // namespace
}  // namespace meshloom::parallel
