// SPDX-License-Identifier: Apache-2.0
// Estimates of fully_shard against what its ranks count.
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/nn/models/model.h"
#include "daemon/parallel/fully_shard/fully_shard.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "kernels/base/error.h"
#include "planner/estimate/memory.h"
#include "planner/estimate/traffic.h"
#include "planner/name_pattern.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/nn/model_test_support.h"
#include "tests/unit/planner/estimate/models.h"
#include "tests/unit/planner/estimate/traced.h"

namespace meshloom::planner {
namespace {

constexpr std::int64_t kBatch = 2, kSequence = 64, kMicroBatches = 2;

struct Counted {
  std::map<std::string, comm::CommCounter> shard, replicas, data;
  std::int64_t peak = 0;
  std::int64_t sharded = 0;  ///< parameters
};

/// A step of this rank.
void step(nn::Model& model, parallel::FullyShard& sharded, const nn::Batch& batch) {
  sharded.begin_step();
  for (std::int64_t k = 0; k < kMicroBatches; ++k) {
    sharded.begin_forward(true);
    nn::ForwardOptions options;
    options.training = true;
    const Tensor loss = model.loss(batch, 1.0f, options);
    sharded.begin_backward(k + 1 == kMicroBatches);
    autograd::backward(loss);
    sharded.end_backward();
  }
}

using Patterns = std::vector<std::string>;

bool is_frozen(const Patterns& frozen, const std::string& name) {
  return std::any_of(frozen.begin(), frozen.end(),
                     [&](const std::string& pattern) { return covers_pattern(pattern, name); });
}

/// What rank 0 counts in its second step.
Counted run(const nn::ModelConfig& shape, const MeshSizes& mesh, const ParallelPlan& plan,
            const Patterns& frozen = {}) {
  Counted counted;
  const MeshLayout layout({{"dp", mesh.dp}, {"fsdp", mesh.fsdp}});
  meshloom::testing::run_thread_ranks(layout.size(), [&](comm::RankRuntime& runtime) {
    ExecutionContext::Options context_options;
    context_options.threads.count = 1;
    ExecutionContext context(context_options);
    const auto world = runtime.make_world_group({});
    const auto replicas = world->split(layout.groups(0), "dp");
    const auto gather = world->split(layout.groups(1), "fsdp values");
    const auto reduce = world->split(layout.groups(1), "fsdp gradients");
    const auto model = nn::make_model(context, shape, plan.dtype);
    std::vector<parallel::DataParallelInput> inputs;
    for (const auto& [name, parameter] : model->named_parameters()) {
      if (is_frozen(frozen, name)) parameter->value.set_requires_grad(false);
      inputs.push_back({{name, parameter->value.shape(), {}}, parameter});
    }
    parallel::FullyShardOptions options;
    static_cast<ShardOptions&>(options) = shard_options(plan.shards, parameter_names(shape));
    options.reshard_after_forward = plan.shards.reshard_after_forward;
    parallel::FullyShard sharded(
        context, {gather.get(), reduce.get(), mesh.dp > 1 ? replicas.get() : nullptr, world.get()},
        inputs, options);
    for (const auto& [name, parameter] : sharded.parameters())
      nn::initialize_tensor(parameter->value.detach(), name, parameter->init, 1);
    nn::Batch batch;
    batch.input_ids =
        meshloom::testing::random_ids(context, kBatch, kSequence, shape.vocab_size, 1);
    batch.labels = meshloom::testing::random_ids(context, kBatch, kSequence, shape.vocab_size, 2);
    step(*model, sharded, batch);
    context.allocator().reset_peak();
    gather->reset_counters();
    reduce->reset_counters();
    replicas->reset_counters();
    world->reset_counters();
    step(*model, sharded, batch);
    if (world->rank() != 0) return;
    counted = {gather->counters(), replicas->counters(), world->counters(),
               static_cast<std::int64_t>(context.allocator().stats().peak_bytes_in_use),
               std::count_if(sharded.choices().begin(), sharded.choices().end(),
                             [](const ShardChoice& choice) { return choice.dim.has_value(); })};
    for (const auto& [kind, counter] : reduce->counters()) {
      counted.shard[kind].calls += counter.calls;
      counted.shard[kind].bytes_sent += counter.bytes_sent;
    }
  });
  return counted;
}

/// What is sent over `dim` for parameters that are sharded, or for those that stay whole.
void expect_counts(const LocalModel& local, const std::string& dim, bool whole,
                   const std::map<std::string, comm::CommCounter>& counted,
                   std::map<std::string, comm::CommCounter> expected = {}) {
  for (const Traffic& t : step_traffic(local)) {
    if (t.mesh_dim != dim || whole != (t.what == "gradients of whole parameters")) continue;
    expected[to_string(t.kind)].calls += static_cast<std::uint64_t>(t.calls);
    expected[to_string(t.kind)].bytes_sent += static_cast<std::uint64_t>(t.bytes_sent);
  }
  EXPECT_EQ(counted.size(), expected.size()) << dim << (whole ? " whole" : "");
  for (const auto& [name, counter] : counted) {
    EXPECT_EQ(counter.calls, expected[name].calls) << dim << " " << name;
    EXPECT_EQ(counter.bytes_sent, expected[name].bytes_sent) << dim << " " << name;
  }
}

void expect_close(const MemoryEstimate& memory, std::int64_t peak, const std::string& of,
                  double tolerance = 0.1) {
  const double ratio =
      static_cast<double>(memory.tensors() - memory.optimizer) / static_cast<double>(peak);
  EXPECT_NEAR(ratio, 1.0, tolerance) << of << ": measured " << peak;
}

void expect_close(const nn::ModelConfig& shape, const MeshSizes& mesh, const ParallelPlan& plan) {
  const Counted counted = run(shape, mesh, plan);
  const LocalModel local = local_model(
      shape, mesh, plan, {mesh.dp * mesh.fsdp * kBatch * kMicroBatches, kBatch, kSequence});
  expect_counts(local, "fsdp", false, counted.shard);
  expect_counts(local, "dp", false, counted.replicas);
  // Ranks agree on which parameters have a gradient: a flag for each, which estimates leave out.
  const std::int64_t flags =
      bytes_sent(CollectiveKind::kAllReduce, counted.sharded, 4, mesh.dp * mesh.fsdp);
  std::map<std::string, comm::CommCounter> agreed;
  agreed["all_reduce"].calls = 1;
  agreed["all_reduce"].bytes_sent = static_cast<std::uint64_t>(flags);
  expect_counts(local, mesh.dp > 1 ? "dp+fsdp" : "fsdp", true, counted.data, agreed);
  expect_close(estimate_memory(local), counted.peak, to_string(mesh) + " " + to_string(plan));
}

void expect_all_close(const nn::ModelConfig& shape, FullyShardPlan shards = {}) {
  for (const MeshSizes mesh : {MeshSizes{1, 2, 1, 1}, MeshSizes{1, 3, 1, 1}, MeshSizes{2, 2, 1, 1}})
    for (const bool reshard : {true, false}) {
      shards.reshard_after_forward = reshard;
      expect_close(shape, mesh, {.fully_shard = true, .shards = shards});
    }
}

TEST(MeasuredSharded, Gpt2) {
  nn::ModelConfig model = testing::byte_gpt();
  model.hidden_size = 192;
  model.num_heads = model.num_kv_heads = 3;
  model.intermediate_size = 768;
  model.num_layers = 3;
  expect_all_close(model);
}

TEST(MeasuredSharded, Llama) {
  nn::ModelConfig model = testing::small_llama();
  model.vocab_size = 600;
  model.num_layers = 3;
  expect_all_close(model);
}

TEST(MeasuredSharded, WhatIsFrozenHasNoGradients) {
  nn::ModelConfig model = testing::byte_gpt();
  model.hidden_size = 192;
  model.num_heads = model.num_kv_heads = 3;
  model.intermediate_size = 768;
  model.num_layers = 3;
  const std::vector<Patterns> choices = {
      {"transformer.h.*.mlp"}, {"transformer.h.[1-2]"}, {"transformer.h.*.*.*.weight"}};
  for (const MeshSizes mesh : {MeshSizes{1, 2, 1, 1}, MeshSizes{1, 3, 1, 1}})
    for (const ShardPolicy policy : {ShardPolicy::kDim0, ShardPolicy::kLargestDivisible})
      for (const Patterns& frozen : choices) {
        const ParallelPlan plan{.fully_shard = true,
                                .shards = {.policy = policy, .min_elements = 1000}};
        const Counted counted = run(model, mesh, plan, frozen);
        Workload work{mesh.fsdp * kBatch * kMicroBatches, kBatch, kSequence};
        const MemoryEstimate all = estimate_memory(local_model(model, mesh, plan, work));
        work.frozen = frozen;
        const MemoryEstimate memory = estimate_memory(local_model(model, mesh, plan, work));
        const std::string of = to_string(mesh) + " " + frozen.front();
        // Some of what layers keep for the gradients of weights is not kept for frozen ones.
        expect_close(memory, counted.peak, of, 0.12);
        EXPECT_LT(memory.gathered, all.gathered) << of;
      }
}

// Some parameters stay whole, others are sharded along dim 1 and travel packed.
TEST(MeasuredSharded, LargestDivisible) {
  nn::ModelConfig model = testing::byte_gpt();
  model.hidden_size = 192;
  model.num_heads = model.num_kv_heads = 3;
  model.intermediate_size = 768;
  model.num_layers = 3;
  expect_all_close(model, {.policy = ShardPolicy::kLargestDivisible, .min_elements = 100'000});
  expect_all_close(model, {.policy = ShardPolicy::kLargestDivisible, .min_elements = 0});
  // No dim of 100 divides by 3.
  model.max_position_embeddings = 100;
  model.hidden_size = 160;
  model.num_heads = model.num_kv_heads = 5;
  model.head_dim = 32;
  model.intermediate_size = 640;
  expect_all_close(model, {.policy = ShardPolicy::kLargestDivisible, .min_elements = 1000});
}

TEST(MeasuredSharded, ChosenByHand) {
  nn::ModelConfig model = testing::small_llama();
  model.vocab_size = 600;
  model.num_layers = 2;
  FullyShardPlan shards;
  shards.choices = {{"model.embed_tokens.weight", std::nullopt},
                    {"model.norm.weight", std::nullopt},
                    {"model.layers.*.mlp.down_proj.weight", 1},
                    {"model.layers.*.self_attn.q_proj.weight", std::nullopt}};
  expect_all_close(model, shards);
}

TEST(MeasuredSharded, ChoicesThatDoNotFitAreRefused) {
  const nn::ModelConfig model = testing::small_llama();
  const MeshSizes mesh{1, 2, 1, 1};
  ParallelPlan plan{.fully_shard = true};
  plan.shards.choices = {{"model.layers.0.mlp.down_proj.weight", 1}};
  EXPECT_THROW(local_model(model, mesh, plan, {}), Unimplemented);
  plan.shards.choices = {{"model.norm.weight", 1}};
  EXPECT_THROW(local_model(model, mesh, plan, {}), InvalidArgument);
  plan.shards.choices = {{"model.norm.bias", 0}};
  EXPECT_THROW(local_model(model, mesh, plan, {}), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::planner
