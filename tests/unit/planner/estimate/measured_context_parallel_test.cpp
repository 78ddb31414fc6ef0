// SPDX-License-Identifier: Apache-2.0
// The estimate of the memory of a step whose sequences ranks share, against what its ranks use.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>

#include "daemon/comm/symm_mem/tensors/symmetric_source.h"
#include "daemon/dtensor/device_mesh.h"
#include "daemon/nn/models/model.h"
#include "daemon/parallel/parallelize_model.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "planner/estimate/attention_exchange.h"
#include "planner/estimate/memory.h"
#include "planner/estimate/rotate_choice.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/nn/model_test_support.h"
#include "tests/unit/planner/estimate/models.h"
#include "tests/unit/planner/estimate/traced.h"

namespace meshloom::planner {
namespace {

constexpr std::int64_t kBatch = 1, kSequence = 203;

/// The most that a rank allocates in its second step, parameters and gradients aside, which live
/// on.
std::int64_t measured_passing(const nn::ModelConfig& shape, const MeshSizes& sizes,
                              const ParallelPlan& plan) {
  std::int64_t most = 0;
  std::mutex mutex;
  meshloom::testing::run_thread_ranks(sizes.cp * sizes.tp, [&](comm::RankRuntime& runtime) {
    const auto world = runtime.make_world_group({});
    ExecutionContext::Options context_options;
    context_options.threads.count = 1;
    // Keys and values lie in symmetric memory; if all does, one peak is that of all.
    context_options.allocator = context_options.symmetric_allocator =
        comm::make_symmetric_allocator(*world);
    ExecutionContext context(context_options);
    dtensor::DeviceMesh mesh(*world, MeshLayout({{"cp", sizes.cp}, {"tp", sizes.tp}}));
    const auto model = nn::make_model(context, shape, plan.dtype);
    nn::initialize_parameters(*model, 1);
    parallel::ParallelModel parallel(*model, &mesh, plan);
    for (const auto& [name, parameter] : parallel.named_local_parameters())
      parameter->value.leaf_grad()->buffer();
    nn::Batch batch;
    batch.input_ids =
        meshloom::testing::random_ids(context, kBatch, kSequence, shape.vocab_size, 1);
    batch.labels = meshloom::testing::random_ids(context, kBatch, kSequence, shape.vocab_size, 2);
    nn::ForwardOptions options;
    options.training = true;
    options.activation_checkpoint = plan.checkpointing;
    std::int64_t lasting = 0;
    for (int step = 0; step < 2; ++step) {
      context.allocator().reset_peak();
      lasting = static_cast<std::int64_t>(context.allocator().stats().bytes_in_use);
      autograd::backward(model->loss(batch, 1.0f, options));
    }
    const auto peak = static_cast<std::int64_t>(context.allocator().stats().peak_bytes_in_use);
    const std::lock_guard lock(mutex);
    most = std::max(most, peak - lasting);
  });
  return most;
}

/// A step of so small a model is fullest at its loss, where neither the workspace of kernels nor
/// the messages of attention need be there: they may be part of what is measured, or not.
void expect_estimated(const nn::ModelConfig& shape, const MeshSizes& sizes,
                      const ParallelPlan& plan) {
  const Workload work{
      .global_batch = kBatch, .micro_batch = kBatch, .sequence = kSequence, .accumulates = true};
  const MemoryEstimate memory = estimate_memory(local_model(shape, sizes, plan, work));
  const std::int64_t messages = attention_message_bytes(
      attention_sizes(plan::make_model_shape(shape), sizes, plan, work), plan.context_parallel);
  const std::int64_t measured = measured_passing(shape, sizes, plan);
  const double least =
      sizes.tp == 1 && plan.checkpointing == ActivationCheckpoint::kNone ? 0.99 : 0.9;
  SCOPED_TRACE(fmt::format("{} on cp {} tp {}", to_string(plan), sizes.cp, sizes.tp));
  EXPECT_GE(static_cast<double>(measured), least * static_cast<double>(memory.activations));
  EXPECT_LE(measured, memory.activations + memory.workspace + messages);
}

TEST(MeasuredContextParallel, MemoryOfAStep) {
  nn::ModelConfig llama = testing::small_llama();
  llama.vocab_size = 300;
  llama.num_layers = 3;
  nn::ModelConfig gpt2 = testing::byte_gpt();
  gpt2.num_layers = 3;
  for (const nn::ModelConfig& shape : {llama, gpt2})
    for (const ActivationCheckpoint c : {ActivationCheckpoint::kNone, ActivationCheckpoint::kFull})
      for (const auto& [rotate, sizes] : {std::pair{Rotate::kAllToAll, MeshSizes{.cp = 3}},
                                          {Rotate::kUlysses, MeshSizes{.cp = 2}},
                                          {Rotate::kPull, MeshSizes{.cp = 2, .tp = 2}}}) {
        const bool tensor = sizes.tp > 1;
        expect_estimated(shape, sizes,
                         {.tensor_parallel = tensor,
                          .sequence_parallel = tensor,
                          .context_parallel = {LoadBalancer::kHeadTail, rotate, 0},
                          .checkpointing = c});
      }
}

}  // namespace
}  // namespace meshloom::planner
