// SPDX-License-Identifier: Apache-2.0
// Estimates of tensor parallelism against what its ranks count.
#include <gtest/gtest.h>

#include <random>

#include "daemon/dtensor/device_mesh.h"
#include "daemon/nn/models/default_styles.h"
#include "daemon/nn/models/model.h"
#include "daemon/parallel/parallelize_model.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "kernels/base/error.h"
#include "planner/estimate/memory.h"
#include "planner/estimate/parameter_layout.h"
#include "planner/estimate/traffic.h"
#include "tests/support/partial_gradients.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/nn/model_test_support.h"
#include "tests/unit/planner/estimate/models.h"
#include "tests/unit/planner/estimate/traced.h"

namespace meshloom::planner {
namespace {

struct Counted {
  std::map<std::string, comm::CommCounter> collectives;
  std::int64_t peak = 0;
  std::vector<std::string> shapes;  ///< "NAME[..]" by rank, of all parameters
};

constexpr std::int64_t kBatch = 3, kSequence = 80;

/// What rank 0 counts in its second step; every rank checks its shapes.
Counted run(const nn::ModelConfig& shape, int tp, const ParallelPlan& plan) {
  Counted counted;
  meshloom::testing::run_thread_ranks(tp, [&](comm::RankRuntime& runtime) {
    ExecutionContext::Options context_options;
    context_options.threads.count = 1;
    ExecutionContext context(context_options);
    const auto world = runtime.make_world_group({});
    dtensor::DeviceMesh mesh(*world, MeshLayout({{"tp", tp}}));
    const auto model = nn::make_model(context, shape, plan.dtype);
    nn::initialize_parameters(*model, 1);
    parallel::ParallelModel parallel(*model, &mesh, plan);
    const auto layouts = parameter_layouts(shape, {1, 1, 1, tp}, plan, {0, 0, 0, world->rank()});
    std::int64_t elements = 0, expected = 0;
    for (const auto& [name, parameter] : parallel.named_local_parameters()) {
      elements += parameter->value.numel();
      parameter->value.leaf_grad()->buffer();
    }
    for (const ParameterLayout& p : layouts) expected += p.count * numel(p.local);
    EXPECT_EQ(elements, expected) << "rank " << world->rank();
    nn::Batch batch;
    batch.input_ids =
        meshloom::testing::random_ids(context, kBatch, kSequence, shape.vocab_size, 1);
    batch.labels = meshloom::testing::random_ids(context, kBatch, kSequence, shape.vocab_size, 2);
    nn::ForwardOptions options;
    options.training = true;
    options.activation_checkpoint = plan.checkpointing;
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

void expect_close(const nn::ModelConfig& shape, int tp, const ParallelPlan& plan,
                  double tolerance) {
  const Counted counted = run(shape, tp, plan);
  const LocalModel local = local_model(
      shape, {1, 1, 1, tp}, plan,
      {.global_batch = kBatch, .micro_batch = kBatch, .sequence = kSequence, .accumulates = true});
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

nn::ModelConfig small_gpt2() {
  nn::ModelConfig model = testing::byte_gpt();
  model.hidden_size = 192;
  model.num_heads = model.num_kv_heads = 3;
  model.intermediate_size = 768;
  model.num_layers = 3;
  return model;
}

void expect_all_close(const nn::ModelConfig& shape) {
  for (const bool sequence : {false, true})
    for (const ActivationCheckpoint c : {ActivationCheckpoint::kNone, ActivationCheckpoint::kFull})
      for (const int tp : {2, 3})
        expect_close(shape, tp,
                     {.tensor_parallel = true, .sequence_parallel = sequence, .checkpointing = c},
                     0.1);
}

TEST(MeasuredParallel, Gpt2) { expect_all_close(small_gpt2()); }

nn::ModelConfig llama_of_three() {
  nn::ModelConfig model = testing::small_llama();
  model.vocab_size = 300;
  model.num_layers = 3;
  return model;
}

ArgumentLayouts layouts(const char* placement) { return {Placements{parse_placement(placement)}}; }

PatternStyles columns(const std::string& pattern, const char* output = nullptr) {
  ParallelStyle style{.kind = StyleKind::kColwise};
  if (output != nullptr) style.output_layouts = layouts(output);
  return {pattern, {style}};
}

PatternStyles by_rows(const std::string& pattern, const char* input = nullptr) {
  ParallelStyle style{.kind = StyleKind::kRowwise};
  if (input != nullptr) style.input_layouts = layouts(input);
  return {pattern, {style}};
}

PatternStyles prepared(const std::string& pattern, const char* from, const char* to) {
  return {pattern,
          {{.kind = StyleKind::kPrepareInput,
            .input_layouts = layouts(from),
            .desired_input_layouts = layouts(to)}}};
}

PatternStyles sequence(const std::string& pattern) {
  return {pattern, {{.kind = StyleKind::kSequence}}};
}

std::string text_of(const StylePlan& styles) {
  std::string text;
  for (const PatternStyles& entry : styles)
    text += entry.pattern + " " + to_string(entry.styles.front()) + "; ";
  return text;
}

void expect_styles_close(const nn::ModelConfig& shape, int tp, const StylePlan& styles,
                         bool recomputed, double tolerance) {
  SCOPED_TRACE(text_of(styles));
  const auto mode = recomputed ? ActivationCheckpoint::kFull : ActivationCheckpoint::kNone;
  expect_close(shape, tp, {.tensor_parallel = true, .styles = styles, .checkpointing = mode},
               tolerance);
}

// What users write: a module or two, layers of an MLP alone, the residual stream by positions.
TEST(MeasuredParallel, OwnStylesOfGpt2) {
  const std::string mlp = "transformer.h.*.mlp.", attn = "transformer.h.*.attn.";
  const StylePlan plans[] = {
      {columns(mlp + "c_fc"), by_rows(mlp + "c_proj")},
      {columns(attn + "c_attn"), by_rows(attn + "c_proj")},
      {by_rows("transformer.wte", "R"), columns("lm_head", "R")},
      {columns("lm_head")},
      {columns("transformer.wte")},
      {columns(mlp + "c_fc")},
      {columns(mlp + "c_fc", "R")},
      {by_rows(mlp + "c_proj", "R")},
      {by_rows(mlp + "c_fc"), columns(mlp + "c_proj")},
      {columns(attn + "c_attn")},
      {columns(attn + "c_proj", "R")},
      {sequence("transformer.h.*.ln_1")},
      {sequence("transformer.h.*.ln_[12]"), columns(mlp + "c_fc"), by_rows(mlp + "c_proj")},
      {prepared("transformer.h.*.mlp", "S(1)", "R"), columns(mlp + "c_fc"),
       by_rows(mlp + "c_proj")},
      {prepared("transformer.h.*.mlp", "S(1)", "S(1)")}};
  // Every plan with and without activation checkpointing, each with another tp.
  for (const int tp : {2, 3}) {
    bool recomputed = tp == 3;
    for (const StylePlan& plan : plans) {
      expect_styles_close(small_gpt2(), tp, plan, recomputed, 0.25);
      recomputed = !recomputed;
    }
    // Gradients of whole weights are most of what is there in passing.
    expect_styles_close(small_gpt2(), tp, {prepared("transformer.h.*", "R", "S(1)")}, tp == 3,
                        0.45);
  }
}

/// Any of the default styles, of either plan.
StylePlan random_styles(nn::Architecture architecture, std::mt19937& random) {
  StylePlan plan;
  while (plan.empty())
    for (const PatternStyles& entry : nn::default_styles(architecture, random() % 2 == 0))
      if (random() % 2 == 0) plan.push_back(entry);
  return plan;
}

TEST(MeasuredParallel, AnyMixOfStyles) {
  std::mt19937 random(5);
  for (const nn::ModelConfig& shape : {small_gpt2(), llama_of_three(), testing::measured_bert(3)})
    for (int i = 0; i < 8; ++i)
      expect_styles_close(shape, 2 + i % 2, random_styles(shape.architecture, random),
                          i / 2 % 2 == 1, 0.35);
}

TEST(MeasuredParallel, Llama) { expect_all_close(llama_of_three()); }

TEST(MeasuredParallel, Qwen) {
  nn::ModelConfig model = testing::small_qwen();
  model.vocab_size = 300;
  model.num_layers = 3;
  model.windowed_layers = {false, true, true};
  expect_all_close(model);
}

// More ranks than key-value heads: every rank has all of them.
TEST(MeasuredParallel, FewKeyValueHeads) {
  nn::ModelConfig model = testing::small_llama();
  model.vocab_size = 300;
  model.num_layers = 2;
  model.num_kv_heads = 2;
  for (const bool sequence : {false, true})
    for (const ActivationCheckpoint c : {ActivationCheckpoint::kNone, ActivationCheckpoint::kFull})
      expect_close(model, 3,
                   {.tensor_parallel = true, .sequence_parallel = sequence, .checkpointing = c},
                   0.1);
}

TEST(MeasuredParallel, Bert) { expect_all_close(testing::measured_bert(3)); }

TEST(MeasuredParallel, StylesWithoutAnEstimateAreRefused) {
  const auto refuse = [](const StylePlan& styles) {
    const ParallelPlan plan{.tensor_parallel = true, .styles = styles};
    EXPECT_THROW(local_model(small_gpt2(), {1, 1, 1, 2}, plan, {}), Unimplemented)
        << text_of(styles);
  };
  refuse({columns("transformer.h.[01].mlp.c_fc")});
  ParallelStyle plain{.kind = StyleKind::kColwise, .use_local_output = true};
  refuse({{"transformer.h.*.mlp.c_fc", {plain}}});
  refuse({prepared("", "R", "R")});
}

}  // namespace
}  // namespace meshloom::planner
