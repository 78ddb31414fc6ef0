// SPDX-License-Identifier: Apache-2.0
// A batch that is dealt on the host: the bits of one that came as tensors, this rank's tokens
// alone, and what goes between host and device.
#include "daemon/parallel/context_parallel/batch_order.h"

#include <gtest/gtest.h>

#include "daemon/parallel/parallelize_model.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/layout.h"
#include "kernels/backend_table.h"
#include "tests/bench/profiling_backend.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::parallel {
namespace {

enum class Loss { kSum, kWeighted, kTokens };

struct HostCase {
  std::int64_t rows = 3, length = 17, targets = 1;
  bool documents = false, positions = false;
  Loss loss = Loss::kSum;
  int cp = 2, tp = 1;
  planner::Rotate rotate = planner::Rotate::kAuto;
};

nn::HostBatch host_batch_of(const nn::ModelConfig& config, const HostCase& c) {
  nn::HostBatch host{.rows = c.rows, .length = c.length, .targets = c.targets};
  for (std::int64_t i = 0; i < c.rows * c.length; ++i) {
    const std::int64_t row = i / c.length, at = i % c.length;
    host.inputs.push_back((7 * i + 3) % config.vocab_size);
    for (std::int64_t k = 0; k < c.targets; ++k)
      host.labels.push_back(i % 5 == 4 ? -100 : (5 * i + k) % config.vocab_size);
    if (c.loss == Loss::kWeighted) host.weights.push_back(0.25f * static_cast<float>(i % 7));
    if (c.documents) host.documents.push_back(row == 0 ? at / 6 : row == 1 ? at / 11 : 0);
    if (c.positions) host.positions.push_back(at % 9);
  }
  return host;
}

planner::ParallelPlan plan_of_case(const HostCase& c) {
  planner::ParallelPlan plan;
  plan.tensor_parallel = c.tp > 1;
  plan.context_parallel.rotate = c.rotate;
  return plan;
}

/// Loss (or losses) and this rank's gradients, one behind the other.
std::vector<double> numbers_of(const nn::ModelConfig& config, const HostCase& c,
                               comm::ProcessGroup& world, bool on_host) {
  testing::TestContext context;
  dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"cp", c.cp}, {"tp", c.tp}}));
  const auto model = testing::make_random_model(context, config);
  ParallelModel parallel(*model, &mesh, plan_of_case(c));
  HostUploads uploads(context);
  const nn::HostBatch host = host_batch_of(config, c);
  const nn::Batch batch = on_host ? parallel.place(host) : nn::to_batch(uploads, host);
  const nn::ForwardOptions options{.training = true, .dropout_step = 3, .first_sample = 1};
  std::vector<double> numbers;
  const auto add = [&](const Tensor& x) {
    const std::vector<double> values = x.to_vector();
    numbers.insert(numbers.end(), values.begin(), values.end());
  };
  Tensor output, gradient;
  if (c.loss == Loss::kSum) output = model->loss(batch, 0.125f, options);
  if (c.loss == Loss::kWeighted) {
    ops::WeightedLoss loss = model->weighted_loss(batch, 0.125f, options);
    add(loss.losses);
    output = loss.sum;
  }
  if (c.loss == Loss::kTokens) {
    output = model->token_losses(batch, options);
    gradient = full(context, output.shape(), 0.125, DType::kFloat32);
  }
  add(output);
  autograd::backward(std::span(&output, 1), std::span(&gradient, gradient ? 1 : 0));
  for (const LocalParameter& local : parallel.local_parameters())
    if (const Tensor grad = local.parameter->value.grad()) add(grad);
  return numbers;
}

void expect_the_bits_of_tensors(const nn::ModelConfig& config, const HostCase& c) {
  testing::run_ranks(c.cp * c.tp, [&](comm::ProcessGroup& world) {
    EXPECT_EQ(numbers_of(config, c, world, true), numbers_of(config, c, world, false));
  });
}

TEST(HostBatchOverRanks, HasTheBitsOfTensors) {
  for (const bool documents : {false, true})
    for (const Loss loss : {Loss::kSum, Loss::kWeighted, Loss::kTokens}) {
      SCOPED_TRACE(fmt::format("documents {} loss {}", documents, static_cast<int>(loss)));
      expect_the_bits_of_tensors(testing::tiny_gpt2(), {.documents = documents, .loss = loss});
      expect_the_bits_of_tensors(
          testing::tiny_llama(),
          {.documents = documents, .positions = documents, .loss = loss, .cp = 2, .tp = 2});
      expect_the_bits_of_tensors(testing::tiny_bert(),
                                 {.documents = documents, .loss = loss, .cp = 3});
    }
}

TEST(HostBatchOverRanks, HasThemWithSeveralTargetsAndInEveryWayOfMovingKeys) {
  expect_the_bits_of_tensors(testing::tiny_gpt2(),
                             {.targets = 3, .documents = true, .loss = Loss::kTokens});
  for (const planner::Rotate rotate : {planner::Rotate::kAllGather, planner::Rotate::kAllToAll,
                                       planner::Rotate::kPull, planner::Rotate::kUlysses})
    expect_the_bits_of_tensors(testing::tiny_llama(),
                               {.documents = true, .cp = 4, .rotate = rotate});
}

TEST(HostBatchOverRanks, MayHaveFewerTokensThanRanks) {
  expect_the_bits_of_tensors(testing::tiny_gpt2(),
                             {.rows = 2, .length = 2, .loss = Loss::kWeighted, .cp = 3});
}

// A long sequence is attended to step by step, each with positions of its own.
TEST(HostBatchOverRanks, OfMoreKeysThanAreSeenAtOnce) {
  nn::ModelConfig config = testing::tiny_llama();
  config.max_position_embeddings = 256;
  for (const planner::Rotate rotate :
       {planner::Rotate::kAllGather, planner::Rotate::kAllToAll, planner::Rotate::kPull})
    expect_the_bits_of_tensors(
        config, {.rows = 2, .length = 150, .documents = true, .cp = 3, .rotate = rotate});
}

TEST(HostBatchOverRanks, GivesARankItsOwnTokensAlone) {
  testing::run_ranks(2, [](comm::ProcessGroup& world) {
    testing::TestContext context;
    dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"cp", 2}}));
    const nn::ModelConfig config = testing::tiny_gpt2();
    const auto model = testing::make_random_model(context, config);
    const HostCase c{.length = 16, .loss = Loss::kWeighted};
    ParallelModel parallel(*model, &mesh, plan_of_case(c));
    const nn::HostBatch host = host_batch_of(config, c);
    const nn::Batch batch = parallel.place(host);
    for (const Tensor* x :
         {&batch.input_ids, &batch.labels, &batch.position_ids, &batch.label_weights}) {
      EXPECT_EQ(x->shape(), (Shape{3, 16}));
      EXPECT_EQ(local_of(*x).shape(), (Shape{3, 8}));
    }
    const std::vector<double> positions = local_of(batch.position_ids).to_vector();
    const std::vector<double> ids = local_of(batch.input_ids).to_vector();
    const std::vector<double> labels = local_of(batch.labels).to_vector();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto at = i / 8 * 16 + static_cast<std::size_t>(positions[i]);
      EXPECT_EQ(ids[i], static_cast<double>(host.inputs[at]));
      EXPECT_EQ(labels[i], static_cast<double>(host.labels[at]));
    }
    // Head and tail.
    const bool first = world.rank() == 0;
    EXPECT_EQ(positions[0], first ? 0.0 : 4.0);
    EXPECT_EQ(positions[7], first ? 15.0 : 11.0);
  });
}

TEST(HostBatchOverRanks, MovesNothingBackAndPositionsOnce) {
  testing::run_ranks(2, [](comm::ProcessGroup& world) {
    kernels::ProfilingBackend backend(kernels::backend_for(kCpuDevice));
    ExecutionContext::Options options;
    options.backend = &backend;
    ExecutionContext context(options);
    dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"cp", 2}}));
    nn::ModelConfig config = testing::tiny_llama();
    config.num_layers = 4;
    const auto model = testing::make_random_model(context, config);
    ParallelModel parallel(*model, &mesh, plan_of_case({}));
    const auto calls_of_step = [&](bool documents) {
      backend.take();
      const nn::Batch batch = parallel.place(host_batch_of(config, {.documents = documents}));
      autograd::backward(model->loss(
          batch, 0.125f,
          {.training = true, .activation_checkpoint = nn::ActivationCheckpoint::kFull}));
      std::map<std::string, std::int64_t> calls;
      for (const auto& [key, profile] : backend.take()) calls[key.second] += profile.calls;
      return calls;
    };
    calls_of_step(false);
    std::size_t in_use = 0;
    for (int step = 0; step < 3; ++step) {
      auto with = calls_of_step(true), without = calls_of_step(false);
      // Ids and labels are checked by reading.
      EXPECT_EQ(with["copy_to_host"], without["copy_to_host"]);
      EXPECT_EQ(without["copy_from_host"], 0) << "a plan of the same layouts is kept";
      EXPECT_EQ(with["copy_from_host"], 1) << "the positions of a batch's blocks";
      const std::size_t now = context.allocator().stats().bytes_in_use;
      if (step > 0) {
        EXPECT_EQ(now, in_use) << "the plans of a batch go with its documents";
      }
      in_use = now;
    }
  });
}

}  // namespace
}  // namespace meshloom::parallel
