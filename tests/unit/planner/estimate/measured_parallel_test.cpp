// SPDX-License-Identifier: Apache-2.0
// Estimates of tensor parallelism against what its ranks count.
#include <gtest/gtest.h>

#include "daemon/comm/mesh/thread_bootstrap.h"
#include "daemon/dtensor/device_mesh.h"
#include "daemon/nn/models/model.h"
#include "daemon/parallel/parallelize_model.h"
#include "daemon/parallel/tensor_parallel/default_plan.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "planner/estimate/memory.h"
#include "planner/estimate/parameter_layout.h"
#include "planner/estimate/traffic.h"
#include "tests/support/partial_gradients.h"
#include "tests/unit/nn/model_test_support.h"
#include "tests/unit/planner/estimate/model_configs.h"
#include "tests/unit/planner/estimate/models.h"

namespace meshloom::planner {
namespace {

struct Counted {
  std::map<std::string, comm::CommCounter> collectives;
  std::int64_t peak = 0;
  std::vector<std::string> shapes;  ///< "NAME[..]" by rank, of all parameters
};

constexpr std::int64_t kBatch = 3, kSequence = 80;

nn::ActivationCheckpoint mode_of(Checkpointing checkpointing) {
  return checkpointing == Checkpointing::kNone        ? nn::ActivationCheckpoint::kNone
         : checkpointing == Checkpointing::kSelective ? nn::ActivationCheckpoint::kSelective
                                                      : nn::ActivationCheckpoint::kFull;
}

/// The entries of the model's default plan that shard these parts.
parallel::StylePlan styles_of(const ModelShape& shape, const TensorGroups& groups) {
  parallel::StylePlan plan;
  std::vector<ModuleStyle> named;
  for (const parallel::PatternStyles& entry :
       parallel::default_plan(testing::config_of(shape).architecture, false)) {
    const auto of = [&](const char* text) { return entry.pattern.find(text) != std::string::npos; };
    const bool wanted = of("attn.")     ? groups.attention
                        : of("mlp.")    ? groups.mlp
                        : of("lm_head") ? groups.output
                                        : groups.embedding;
    if (!wanted) continue;
    plan.push_back(entry);
    named.push_back({entry.pattern, parallel::style_name(entry.styles[0].kind)});
  }
  EXPECT_EQ(groups_of_styles(shape, named), groups);
  return plan;
}

/// What rank 0 counts in its second step; every rank checks its shapes.
Counted run(const ModelShape& shape, int tp, const PlanChoice& plan) {
  Counted counted;
  comm::run_thread_ranks(tp, [&](comm::RankRuntime& runtime) {
    ExecutionContext::Options context_options;
    context_options.threads.count = 1;
    ExecutionContext context(context_options);
    const auto world = runtime.make_world_group({});
    dtensor::DeviceMesh mesh(*world, MeshLayout({{"tp", tp}}));
    const auto model = nn::make_model(context, testing::config_of(shape), plan.dtype);
    nn::initialize_parameters(*model, 1);
    parallel::ParallelModel parallel(
        *model, &mesh,
        {.tensor_parallel = true,
         .sequence_parallel = plan.sequence_parallel,
         .styles = plan.tensor_groups.all() ? parallel::StylePlan()
                                            : styles_of(shape, plan.tensor_groups)});
    const auto layouts = parameter_layouts(shape, {1, 1, 1, tp}, plan, {0, 0, 0, world->rank()});
    std::int64_t elements = 0, expected = 0;
    for (const auto& [name, parameter] : parallel.named_local_parameters()) {
      elements += parameter->value.numel();
      parameter->value.leaf_grad()->buffer();
    }
    for (const ParameterLayout& p : layouts) expected += p.count * numel(p.local);
    EXPECT_EQ(elements, expected) << "rank " << world->rank();
    nn::Batch batch;
    batch.input_ids = meshloom::testing::random_ids(context, kBatch, kSequence, shape.vocab, 1);
    batch.labels = meshloom::testing::random_ids(context, kBatch, kSequence, shape.vocab, 2);
    nn::ForwardOptions options;
    options.training = true;
    options.activation_checkpoint = mode_of(plan.checkpointing);
    for (int step = 0; step < 2; ++step) {
      context.allocator().reset_peak();
      mesh.reset_counters();
      autograd::backward(model->loss(batch, 1.0f, options));
      meshloom::testing::sum_partial_gradients(context, mesh.group(0), parallel);
    }
    if (world->rank() != 0) return;
    counted.collectives = mesh.counters();
    counted.peak = static_cast<std::int64_t>(context.allocator().stats().peak_bytes_in_use);
  });
  return counted;
}

void expect_close(const ModelShape& shape, int tp, const PlanChoice& plan, double tolerance) {
  const Counted counted = run(shape, tp, plan);
  const LocalModel local = local_model(shape, {1, 1, 1, tp}, plan, {kBatch, kBatch, kSequence});
  std::map<std::string, comm::CommCounter> expected;
  for (const Traffic& t : step_traffic(local)) {
    comm::CommCounter& sum = expected[to_string(t.kind)];
    sum.calls += static_cast<std::uint64_t>(t.calls);
    sum.bytes_sent += static_cast<std::uint64_t>(t.bytes_sent);
  }
  EXPECT_EQ(counted.collectives.size(), expected.size());
  for (const auto& [name, counter] : counted.collectives) {
    EXPECT_EQ(counter.calls, expected[name].calls) << name << " " << to_string(plan) << tp;
    EXPECT_EQ(counter.bytes_sent, expected[name].bytes_sent)
        << name << " " << to_string(plan) << tp;
  }
  const MemoryEstimate memory = estimate_memory(local);
  const auto states = memory.parameters + memory.gradients;
  const auto measured = static_cast<double>(counted.peak - states);
  const auto estimated = static_cast<double>(memory.activations + memory.workspace);
  EXPECT_NEAR(estimated / measured, 1.0, tolerance) << to_string(plan) << " on " << tp;
}

ModelShape small_gpt2() {
  ModelShape model = testing::byte_gpt();
  model.hidden = 192;
  model.heads = model.kv_heads = 3;
  model.intermediate = 768;
  model.layers = 3;
  return model;
}

void expect_all_close(const ModelShape& shape) {
  for (const bool sequence : {false, true})
    for (const Checkpointing c : {Checkpointing::kNone, Checkpointing::kFull})
      for (const int tp : {2, 3})
        expect_close(shape, tp,
                     {.tensor_parallel = true, .sequence_parallel = sequence, .checkpointing = c},
                     0.1);
}

TEST(MeasuredParallel, Gpt2) { expect_all_close(small_gpt2()); }

// Plans that shard some parts of a model only.
TEST(MeasuredParallel, OwnStyles) {
  ModelShape llama = testing::small_llama();
  llama.vocab = 300;
  llama.layers = 3;
  for (const int tp : {2, 3})
    for (const ModelShape& shape : {small_gpt2(), llama})
      for (const TensorGroups groups :
           {TensorGroups{false, false, true, false}, TensorGroups{false, true, false, false},
            TensorGroups{true, false, false, true}, TensorGroups{false, true, true, false}})
        expect_close(shape, tp, {.tensor_parallel = true, .tensor_groups = groups}, 0.1);
  for (const TensorGroups groups :
       {TensorGroups{false, false, false, true}, TensorGroups{true, true, true, false}})
    expect_close(llama, 2, {.tensor_parallel = true, .tensor_groups = groups}, 0.1);
}

TEST(MeasuredParallel, Llama) {
  ModelShape model = testing::small_llama();
  model.vocab = 300;
  model.layers = 3;
  expect_all_close(model);
}

// More ranks than key-value heads: every rank has all of them.
TEST(MeasuredParallel, FewKeyValueHeads) {
  ModelShape model = testing::small_llama();
  model.vocab = 300;
  model.layers = 2;
  model.kv_heads = 2;
  for (const bool sequence : {false, true})
    for (const Checkpointing c : {Checkpointing::kNone, Checkpointing::kFull})
      expect_close(model, 3,
                   {.tensor_parallel = true, .sequence_parallel = sequence, .checkpointing = c},
                   0.1);
}

TEST(MeasuredParallel, Bert) {
  ModelShape model = testing::small_bert();
  model.layers = 3;
  model.hidden = 192;
  model.heads = model.kv_heads = 3;
  model.head_dim = 64;
  model.intermediate = 700;
  model.vocab = 300;
  model.positions = 256;
  expect_all_close(model);
}

}  // namespace
}  // namespace meshloom::planner
