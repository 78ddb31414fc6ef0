// SPDX-License-Identifier: Apache-2.0
// Models whose sequences are sharded over cp, with dropout, documents, padding and tensor
// parallelism, against one rank: loss, gradients, and generation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "daemon/dtensor/redistribute.h"
#include "daemon/parallel/parallelize_model.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/layout.h"
#include "kernels/backend_table.h"
#include "kernels/base/error.h"
#include "planner/attention/balance.h"
#include "tests/bench/profiling_backend.h"
#include "tests/support/partial_gradients.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::parallel {
namespace {

using planner::LoadBalancer;
using planner::Rotate;

constexpr std::int64_t kRows = 3, kLength = 17;

struct Setting {
  int cp = 1, tp = 1;
  bool sequence_parallel = false;
  bool documents = false;
  bool padding = false;
  LoadBalancer balancer = LoadBalancer::kAuto;
  Rotate rotate = Rotate::kAuto;
  nn::ActivationCheckpoint checkpoint = nn::ActivationCheckpoint::kNone;
  planner::FusionPlan fusion = {};
};

struct Outcome {
  double loss = 0.0;
  std::map<std::string, std::vector<double>> gradients;
};

nn::Batch make_batch(ExecutionContext& context, const nn::ModelConfig& config,
                     const Setting& setting) {
  nn::Batch batch;
  batch.input_ids = testing::random_ids(context, kRows, kLength, config.vocab_size, 5);
  batch.labels = testing::random_ids(context, kRows, kLength, config.vocab_size, 6);
  batch.labels_shifted = config.architecture == nn::Architecture::kBert;
  std::vector<std::int64_t> ids, mask;
  for (std::int64_t i = 0; i < kRows * kLength; ++i) {
    const std::int64_t row = i / kLength, at = i % kLength;
    ids.push_back(row == 0 ? at / 6 : row == 1 ? at / 11 : 0);
    mask.push_back(at < kLength - 3 * row ? 1 : 0);
  }
  if (setting.documents)
    batch.document_ids = from_values(context, {kRows, kLength}, std::span<const std::int64_t>(ids));
  if (setting.padding)
    batch.attention_mask =
        from_values(context, {kRows, kLength}, std::span<const std::int64_t>(mask));
  return batch;
}

planner::ParallelPlan plan_of(const Setting& setting) {
  planner::ParallelPlan plan;
  plan.tensor_parallel = setting.tp > 1;
  plan.sequence_parallel = setting.sequence_parallel;
  plan.fusion = setting.fusion;
  plan.context_parallel = {setting.balancer, setting.rotate, 0};
  return plan;
}

/// Summed over cp, and whole over tp.
std::vector<double> whole_gradient(const LocalParameter& local, const Shape& shape,
                                   const dtensor::MeshContext& mesh) {
  const Tensor& value = local.parameter->value;
  Tensor grad = value.grad();
  if (!grad) grad = zeros(value.context(), value.shape(), DType::kFloat32);
  if (!local.spec) return grad.to_vector();
  const planner::MeshLayout& layout = local.spec->mesh();
  planner::Placements placements = local.spec->placements();
  if (const auto cp = layout.find_dim("cp"))
    placements[static_cast<std::size_t>(*cp)] =
        planner::Placement::partial_of(planner::PartialOp::kSum);
  const auto held = planner::with_placements(*local.spec, placements);
  const auto all = std::make_shared<const planner::DTensorSpec>(
      local.spec->mesh_ptr(), planner::Placements(static_cast<std::size_t>(layout.ndim())), shape);
  return dtensor::redistribute_local(grad, {held, all}, mesh).to_vector();
}

Outcome run_model(comm::ProcessGroup& world, const nn::ModelConfig& config,
                  const Setting& setting) {
  testing::TestContext context;
  dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"cp", setting.cp}, {"tp", setting.tp}}));
  planner::PlanCache plans;
  const auto model = testing::make_random_model(context, config);
  const ParallelModel parallel(*model, &mesh, plan_of(setting));
  const Tensor loss = model->loss(make_batch(context, config, setting), 0.125f,
                                  {.training = true,
                                   .dropout_step = 7,
                                   .first_sample = 2,
                                   .activation_checkpoint = setting.checkpoint});
  Outcome outcome;
  outcome.loss = loss.item();
  autograd::backward(loss);
  testing::sum_partial_gradients(context, mesh.group(1), parallel);
  const auto parameters = model->named_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    outcome.gradients[parameters[i].name] = whole_gradient(
        parallel.local_parameters()[i], parameters[i].parameter->value.shape(), {mesh, plans});
  return outcome;
}

Outcome run_on(const nn::ModelConfig& config, const Setting& setting) {
  Outcome outcome;
  testing::run_ranks(setting.cp * setting.tp, [&](comm::ProcessGroup& world) {
    Outcome mine = run_model(world, config, setting);
    if (world.rank() == 0) outcome = std::move(mine);
  });
  return outcome;
}

void expect_one_rank(const nn::ModelConfig& config, Setting setting) {
  const Outcome seen = run_on(config, setting);
  setting.cp = setting.tp = 1;
  setting.sequence_parallel = false;
  const Outcome one = run_on(config, setting);
  EXPECT_NEAR(seen.loss, one.loss, 1e-5 * std::abs(one.loss));
  ASSERT_EQ(seen.gradients.size(), one.gradients.size());
  // Some gradients are sums that cancel, such as those of BERT's key biases.
  double of_all = 0.0;
  for (const auto& [name, expected] : one.gradients)
    for (const double value : expected) of_all = std::max(of_all, std::abs(value));
  for (const auto& [name, expected] : one.gradients) {
    const std::vector<double>& values = seen.gradients.at(name);
    ASSERT_EQ(values.size(), expected.size()) << name;
    double largest = 0.0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], expected[i], 1e-5 * (largest + 0.02 * of_all)) << name << " " << i;
  }
}

TEST(ContextParallelModel, DropoutIsThatOfOneRank) {
  expect_one_rank(testing::tiny_gpt2(), {.cp = 2, .balancer = LoadBalancer::kHeadTail});
  expect_one_rank(testing::tiny_gpt2(),
                  {.cp = 3, .documents = true, .balancer = LoadBalancer::kPerDocument});
  expect_one_rank(testing::tiny_gpt2(), {.cp = 2, .tp = 2, .sequence_parallel = true});
}

// Tokens are sharded over cp first, also row by row, and what that leaves over tp.
TEST(ContextParallelModel, ProductsOfTensorParallelismAreFused) {
  if (testing::test_device() != kCpuDevice) GTEST_SKIP() << "symmetric memory is the host's";
  const planner::FusionPlan fusion{.mode = planner::FusionMode::kForce};
  expect_one_rank(testing::tiny_gpt2(),
                  {.cp = 2, .tp = 2, .sequence_parallel = true, .fusion = fusion});
  expect_one_rank(testing::tiny_llama(), {.cp = 2,
                                          .tp = 2,
                                          .sequence_parallel = true,
                                          .documents = true,
                                          .balancer = LoadBalancer::kPerDocument,
                                          .fusion = fusion});
}

TEST(ContextParallelModel, EveryWayOfMovingKeysTrainsTheSame) {
  for (const Rotate rotate :
       {Rotate::kAllGather, Rotate::kAllToAll, Rotate::kPull, Rotate::kUlysses})
    expect_one_rank(testing::tiny_llama(), {.cp = 3, .documents = true, .rotate = rotate});
}

TEST(ContextParallelModel, LlamaOverTensorParallelRanksToo) {
  expect_one_rank(testing::tiny_llama(), {.cp = 2, .tp = 2, .documents = true});
  expect_one_rank(
      testing::tiny_llama(),
      {.cp = 2, .tp = 2, .sequence_parallel = true, .documents = true, .padding = true});
}

TEST(ContextParallelModel, BertWithPaddingAndDocuments) {
  expect_one_rank(testing::tiny_bert(), {.cp = 2, .padding = true});
  expect_one_rank(testing::tiny_bert(), {.cp = 3, .documents = true, .padding = true});
  expect_one_rank(testing::tiny_bert(), {.cp = 2, .tp = 2, .sequence_parallel = true});
}

TEST(ContextParallelModel, ActivationCheckpointsRecomputeTheSame) {
  for (const auto mode : {nn::ActivationCheckpoint::kFull, nn::ActivationCheckpoint::kSelective})
    for (const Rotate rotate : {Rotate::kPull, Rotate::kUlysses})
      expect_one_rank(testing::tiny_gpt2(), {.cp = 2, .rotate = rotate, .checkpoint = mode});
}

TEST(ContextParallelModel, MoreRanksThanTokensOfSomeDocuments) {
  expect_one_rank(testing::tiny_gpt2(), {.cp = 6, .documents = true});
}

/// The order in which the balancer by area deals a batch of the model to three ranks.
planner::DimOrderPtr order_by_area(const nn::ModelConfig& config) {
  planner::DimOrderPtr order;
  testing::run_ranks(3, [&](comm::ProcessGroup& world) {
    const Setting setting{.cp = 3, .balancer = LoadBalancer::kMaskArea};
    testing::TestContext context;
    dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"cp", 3}}));
    const auto model = testing::make_random_model(context, config);
    const ParallelModel parallel(*model, &mesh, plan_of(setting));
    nn::ForwardHook hook;
    hook.before = [&](std::span<Tensor> in) {
      if (world.rank() == 0) order = in[0].layout()->spec->dim_order(0);
    };
    model->add_hook(std::move(hook));
    model->loss(make_batch(context, config, setting), 1.0f, {});
  });
  return order;
}

TEST(ContextParallelModel, AreasAreThoseOfTheWindowsOfItsLayers) {
  const auto expected = [](const std::vector<planner::LayerWindow>& layers) {
    const std::vector<planner::RowMask> rows(kRows, {{.is_causal = true}, nullptr});
    return planner::balanced_order(LoadBalancer::kMaskArea, kLength, 3, 0, rows, layers);
  };
  // One layer of two has a window of 5.
  nn::ModelConfig config = testing::tiny_qwen3();
  EXPECT_TRUE(planner::same_order(order_by_area(config), expected({{-1, 1}, {4, 1}})));
  expect_one_rank(config, {.cp = 3, .balancer = LoadBalancer::kMaskArea});
  config.windowed_layers.clear();
  EXPECT_TRUE(planner::same_order(order_by_area(config), expected({{4, 2}})));
  EXPECT_FALSE(planner::same_order(order_by_area(config), expected({})));
}

/// Copies from the device to the host since the last call.
std::int64_t reads(kernels::ProfilingBackend& backend) {
  std::int64_t calls = 0;
  for (const auto& [key, profile] : backend.take())
    if (key.second == "copy_to_host") calls += profile.calls;
  return calls;
}

TEST(ContextParallelModel, DocumentIdsAreReadOnceForAllLayersAndPasses) {
  testing::run_ranks(2, [](comm::ProcessGroup& world) {
    kernels::ProfilingBackend backend(kernels::backend_for(kCpuDevice));
    ExecutionContext::Options options;
    options.backend = &backend;
    ExecutionContext context(options);
    dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"cp", 2}}));
    nn::ModelConfig config = testing::tiny_llama();
    config.num_layers = 4;
    const auto model = testing::make_random_model(context, config);
    const ParallelModel parallel(*model, &mesh, plan_of({.cp = 2}));
    const auto reads_of_step = [&](bool documents) {
      const nn::Batch batch = make_batch(context, config, {.cp = 2, .documents = documents});
      reads(backend);
      autograd::backward(model->loss(
          batch, 0.125f,
          {.training = true, .activation_checkpoint = nn::ActivationCheckpoint::kFull}));
      return reads(backend);
    };
    // Ids and labels are checked by reading, too.
    for (int step = 0; step < 3; ++step) EXPECT_EQ(reads_of_step(true), reads_of_step(false) + 1);
  });
}

TEST(ContextParallelModel, RefusesDocumentsThatAreNotThere) {
  testing::run_ranks(2, [](comm::ProcessGroup& world) {
    testing::TestContext context;
    dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"cp", 2}}));
    const nn::ModelConfig config = testing::tiny_gpt2();
    const auto model = testing::make_random_model(context, config);
    const Setting setting{.cp = 2, .balancer = LoadBalancer::kPerDocument};
    const ParallelModel parallel(*model, &mesh, plan_of(setting));
    try {
      model->loss(make_batch(context, config, setting), 1.0f, {});
      FAIL() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("per_document"));
    }
  });
}

}  // namespace
}  // namespace meshloom::parallel
