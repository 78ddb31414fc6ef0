// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/job_memory.h"

#include <gtest/gtest.h>

#include "daemon/nn/models/presets.h"

namespace meshloom::plan {
namespace {

class JobMemory : public ::testing::Test {
 protected:
  JobMemory() {
    run_.mutable_mesh()->set_dp(1);
    run_.mutable_plan()->set_dtype("float32");
    run_.mutable_training()->set_global_batch_size(4);
    run_.mutable_training()->set_micro_batch_size(2);
    run_.mutable_training()->set_seq_len(256);
  }

  planner::MemoryEstimate estimate() const { return estimate_job_memory(run_, model_); }
  void add_style(const std::string& pattern, const std::string& style) {
    v1::PatternStyles& entry = *run_.mutable_plan()->add_styles();
    entry.set_pattern(pattern);
    entry.add_styles()->set_style(style);
  }
  void shard(const std::string& pattern, int dim) {
    v1::ShardChoice& choice = *run_.mutable_plan()->mutable_fully_shard_options()->add_choices();
    choice.set_pattern(pattern);
    choice.set_dim(dim);
  }

  nn::ModelConfig model_ = nn::preset_config("gpt2_124m");
  v1::RunConfig run_;
};

TEST_F(JobMemory, CountsStateByParametersAndOptimizer) {
  const std::int64_t parameters = nn::parameter_count(model_);
  EXPECT_EQ(estimate().parameters, 4 * parameters);
  EXPECT_EQ(estimate().optimizer, 8 * parameters);
  run_.mutable_optimizer()->set_type(v1::OPTIMIZER_TYPE_SGD);
  EXPECT_EQ(estimate().optimizer, 0);
  run_.mutable_optimizer()->set_momentum(0.9);
  EXPECT_EQ(estimate().optimizer, 4 * parameters);
  run_.mutable_plan()->set_dtype("bfloat16");
  EXPECT_EQ(estimate().parameters, 2 * parameters);
}

TEST_F(JobMemory, ADeviceHasLargerPiecesOfTheOutputLoss) {
  run_.set_device("cpu");
  const planner::MemoryEstimate host = estimate();
  for (const char* device : {"cuda", "cuda:1"}) {
    run_.set_device(device);
    // All 512 rows of logits are one piece of 98 MiB, on the host two.
    EXPECT_EQ(estimate().activations - host.activations, 256 * 50257 * 4) << device;
    EXPECT_EQ(estimate().parameters, host.parameters) << device;
  }
}

TEST_F(JobMemory, FrozenParametersHaveNoStateAndNoGradient) {
  run_.mutable_mesh()->set_dp(2);
  const planner::MemoryEstimate all = estimate();
  run_.mutable_training()->add_frozen("transformer.wte");
  run_.mutable_training()->add_frozen("transformer.h.[0-3]");
  const planner::MemoryEstimate frozen = estimate();
  const std::int64_t layer = 12 * 768 * 768 + 13 * 768;
  const std::int64_t elements = 50257 * 768 + 4 * layer;
  EXPECT_EQ(frozen.parameters, all.parameters);
  EXPECT_EQ(frozen.optimizer, all.optimizer - 8 * elements);
  EXPECT_EQ(frozen.gradients, all.gradients - 4 * elements);
  run_.mutable_mesh()->set_dp(1);
  run_.mutable_mesh()->set_fsdp(2);
  run_.mutable_plan()->set_fully_shard(true);
  EXPECT_NEAR(static_cast<double>(estimate().optimizer), static_cast<double>(frozen.optimizer / 2),
              1e-3 * static_cast<double>(frozen.optimizer));
}

TEST_F(JobMemory, ARunWithoutAGlobalBatchIsAJobWithAnyNumberOfMicroBatches) {
  run_.mutable_mesh()->set_dp(2);
  run_.mutable_training()->set_global_batch_size(12);
  const std::int64_t job = estimate().total();
  run_.mutable_training()->clear_global_batch_size();
  EXPECT_EQ(estimate().total(), job);
}

TEST_F(JobMemory, StylesWithoutAnEstimateCountAsUnsharded) {
  const std::int64_t whole = estimate().parameters;
  run_.mutable_mesh()->set_tp(2);
  run_.mutable_plan()->set_tensor_parallel(true);
  EXPECT_LT(static_cast<double>(estimate().parameters), 0.6 * static_cast<double>(whole));
  // As the default plan does it, but for the MLP of some layers.
  add_style("transformer.h.[0-3].mlp.c_fc", "ColwiseParallel");
  add_style("transformer.h.[0-3].mlp.c_proj", "RowwiseParallel");
  EXPECT_EQ(estimate().parameters, whole);
}

TEST_F(JobMemory, DimsThatSomeLayersHaveCountAsWhole) {
  run_.mutable_mesh()->set_fsdp(2);
  run_.mutable_plan()->set_fully_shard(true);
  const std::int64_t sharded = estimate().parameters;
  shard("transformer.h.*.mlp.c_fc.weight", 1);
  EXPECT_EQ(estimate().parameters, sharded);
  shard("transformer.h.0.mlp.c_fc.weight", 0);
  const std::int64_t elements = model_.num_layers * model_.hidden_size * model_.intermediate_size;
  EXPECT_EQ(estimate().parameters, sharded + 4 * elements / 2);
}

TEST_F(JobMemory, BlocksThatKeepDifferentThingsCountAsThoseThatKeepMost) {
  const std::int64_t none = estimate().activations;
  run_.mutable_plan()->set_activation_checkpoint(v1::ACTIVATION_CHECKPOINT_FULL);
  EXPECT_LT(estimate().activations, none / 2);
  v1::CheckpointChoice& choice = *run_.mutable_plan()->add_activation_checkpoint_choices();
  choice.set_pattern("transformer.h.3");
  choice.set_mode(v1::ACTIVATION_CHECKPOINT_NONE);
  EXPECT_EQ(estimate().activations, none);
}

TEST_F(JobMemory, ADeviceHoldsTheTensorsAndItsHostWhatIsStaged) {
  const auto parts = [&](int dp, int fsdp, int cp, int tp) {
    v1::Mesh& mesh = *run_.mutable_mesh();
    mesh.set_dp(dp);
    mesh.set_fsdp(fsdp);
    mesh.set_cp(cp);
    mesh.set_tp(tp);
    run_.mutable_plan()->set_fully_shard(fsdp > 1);
    run_.mutable_plan()->set_tensor_parallel(tp > 1);
    const planner::MemoryEstimate all = estimate();
    EXPECT_EQ(on_device(all).total(), all.tensors() + all.exchanged);
    EXPECT_EQ(beside_device(all).total(), all.process + all.staged);
    return all;
  };
  EXPECT_EQ(parts(1, 1, 1, 1).staged, 0);
  EXPECT_EQ(parts(2, 1, 1, 1).exchanged, 0);
  EXPECT_GT(parts(2, 1, 1, 1).staged, parts(2, 1, 1, 1).communication);
  EXPECT_GT(parts(1, 2, 1, 1).staged, 0);
  EXPECT_EQ(parts(1, 1, 1, 2).exchanged, 0);
  EXPECT_GT(parts(1, 1, 1, 2).staged, 0);
  EXPECT_GT(parts(1, 1, 2, 1).exchanged, 0) << "in the device's memory";
  EXPECT_LT(parts(1, 1, 2, 1).exchanged, parts(1, 1, 2, 1).communication);
}

// The largest sizes that a config may have: no sum or product leaves 63 bits.
TEST_F(JobMemory, HoldsForTheLargestModels) {
  model_ = nn::parse_hf_config(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 1024, "hidden_size": 131072, "num_attention_heads": 1024,
    "intermediate_size": 1048576, "vocab_size": 16777216, "max_position_embeddings": 16777216})");
  run_.mutable_training()->set_seq_len(1 << 24);
  run_.mutable_training()->set_micro_batch_size(4);
  const planner::MemoryEstimate most = estimate();
  for (const std::int64_t part : {most.parameters, most.optimizer, most.activations})
    EXPECT_GT(part, std::int64_t{1} << 40);
  EXPECT_GT(most.activations, std::int64_t{1} << 56);
  EXPECT_GT(most.total(), most.activations);
}

}  // namespace
}  // namespace meshloom::plan
