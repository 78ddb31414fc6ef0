// SPDX-License-Identifier: Apache-2.0
// Estimates of activations against what the models' allocator counts.
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/nn/models/model.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "planner/estimate/memory.h"
#include "tests/unit/nn/model_test_support.h"
#include "tests/unit/planner/estimate/models.h"
#include "tests/unit/planner/estimate/traced.h"

namespace meshloom::planner {
namespace {

struct Run {
  std::int64_t batch, sequence;
  ActivationCheckpoint checkpointing;
  DType dtype;
};

/// Most bytes in use in a step after the first, without an optimizer. `kept`: gradients stay.
std::int64_t measured_peak(const nn::ModelConfig& shape, const Run& run, bool kept) {
  ExecutionContext context;
  const auto model = nn::make_model(context, shape, run.dtype);
  nn::initialize_parameters(*model, 1);
  nn::Batch batch;
  batch.input_ids =
      meshloom::testing::random_ids(context, run.batch, run.sequence, shape.vocab_size, 1);
  batch.labels =
      meshloom::testing::random_ids(context, run.batch, run.sequence, shape.vocab_size, 2);
  nn::ForwardOptions options;
  options.training = true;
  options.activation_checkpoint = run.checkpointing;
  for (int step = 0; step < 2; ++step) {
    for (const auto& [name, parameter] : model->named_parameters()) {
      autograd::LeafGrad& grad = *parameter->value.leaf_grad();
      kept ? void(grad.buffer()) : grad.release();
    }
    context.allocator().reset_peak();
    autograd::backward(model->loss(batch, 1.0f, options));
  }
  return static_cast<std::int64_t>(context.allocator().stats().peak_bytes_in_use);
}

void expect_close(const nn::ModelConfig& shape, const Run& run, double tolerance) {
  const ParallelPlan plan{.checkpointing = run.checkpointing, .dtype = run.dtype};
  Workload work{run.batch, run.batch, run.sequence};
  work.accumulates = true;
  const MemoryEstimate estimate = estimate_memory(local_model(shape, {}, plan, work));
  const auto states = estimate.parameters + estimate.gradients;
  const auto measured = static_cast<double>(measured_peak(shape, run, true) - states);
  const auto estimated = static_cast<double>(estimate.activations + estimate.workspace);
  work.accumulates = false;
  const MemoryEstimate passing = estimate_memory(local_model(shape, {}, plan, work));
  EXPECT_NEAR(static_cast<double>(passing.tensors() - passing.optimizer) /
                  static_cast<double>(measured_peak(shape, run, false)),
              1.0, std::max(0.1, tolerance))
      << "gradients in passing, batch " << run.batch << " vocabulary " << shape.vocab_size;
  EXPECT_NEAR(estimated / measured, 1.0, tolerance)
      << "estimated " << estimated << " measured " << measured << " checkpointing "
      << static_cast<int>(run.checkpointing) << " " << dtype_name(run.dtype) << " batch "
      << run.batch << " sequence " << run.sequence << " vocabulary " << shape.vocab_size;
}

void expect_all_close(const nn::ModelConfig& shape, double tolerance = 0.03) {
  for (const ActivationCheckpoint checkpointing :
       {ActivationCheckpoint::kNone, ActivationCheckpoint::kSelective,
        ActivationCheckpoint::kFull}) {
    expect_close(shape, {3, 128, checkpointing, DType::kFloat32}, tolerance);
  }
}

nn::ModelConfig small_gpt2() {
  nn::ModelConfig model = testing::byte_gpt();
  model.hidden_size = 192;
  model.num_heads = model.num_kv_heads = 3;
  model.intermediate_size = 768;
  model.num_layers = 4;
  return model;
}

TEST(MeasuredMemory, Gpt2) {
  expect_all_close(small_gpt2());
  expect_close(small_gpt2(), {1, 200, ActivationCheckpoint::kNone, DType::kFloat32}, 0.05);
}

TEST(MeasuredMemory, Gpt2WithOtherActivationsAndDropout) {
  nn::ModelConfig model = small_gpt2();
  model.residual_dropout = model.embedding_dropout = 0.1;
  expect_all_close(model);
  model.activation = nn::ActivationKind::kRelu;
  expect_all_close(model);
  model.activation = nn::ActivationKind::kSilu;
  expect_all_close(model, 0.05);
}

TEST(MeasuredMemory, Llama) {
  nn::ModelConfig model = testing::small_llama();
  model.vocab_size = 300;
  expect_all_close(model, 0.05);
  model.num_kv_heads = 2;
  model.intermediate_size = 300;
  expect_all_close(model, 0.05);
}

TEST(MeasuredMemory, Qwen) {
  nn::ModelConfig model = testing::small_qwen();
  model.vocab_size = 300;
  expect_all_close(model, 0.05);
}

TEST(MeasuredMemory, Bert) { expect_all_close(testing::measured_bert(4)); }

// Where the loss is the fullest moment: few narrow layers, a wide vocabulary.
TEST(MeasuredMemory, WideVocabulary) {
  nn::ModelConfig model = small_gpt2();
  model.num_layers = 2;
  model.vocab_size = 20'000;
  expect_all_close(model);
}

TEST(MeasuredMemory, OneLayer) {
  nn::ModelConfig model = small_gpt2();
  model.num_layers = 1;
  expect_all_close(model);
}

// Products of bfloat16 take scratch of their own, by CPU; it is not in the estimate.
TEST(MeasuredMemory, Bfloat16) {
  nn::ModelConfig model = small_gpt2();
  for (const ActivationCheckpoint checkpointing :
       {ActivationCheckpoint::kNone, ActivationCheckpoint::kFull})
    expect_close(model, {8, 256, checkpointing, DType::kBFloat16}, 0.15);
}

}  // namespace
}  // namespace meshloom::planner
