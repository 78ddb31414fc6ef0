// SPDX-License-Identifier: Apache-2.0
// Models on tensor-parallel meshes against one rank: loss, gradients, dropout, generation.
#include "daemon/parallel/parallelize_model.h"

#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "daemon/dtensor/redistribute.h"
#include "daemon/nn/models/default_styles.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/layout.h"
#include "kernels/base/error.h"
#include "tests/support/generate.h"
#include "tests/support/partial_gradients.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::parallel {
namespace {

using nn::ActivationCheckpoint;
using planner::ArgumentLayouts;
using planner::PatternStyles;
using planner::StyleKind;
using planner::StylePlan;
using Values = std::map<std::string, std::vector<double>>;

/// What one run of a model gives, by name.
struct Outcome {
  double loss = 0.0;
  Values gradients;
  std::vector<double> logits;
};

struct Setting {
  int ranks = 1;
  bool sequence_parallel = false;
  ActivationCheckpoint checkpoint = ActivationCheckpoint::kNone;
  StylePlan styles = {};  ///< empty: the default plan
  planner::FusionPlan fusion = {};
};

planner::ParallelPlan plan_of(const Setting& setting) {
  return {.tensor_parallel = true,
          .sequence_parallel = setting.sequence_parallel,
          .styles = setting.styles,
          .fusion = setting.fusion};
}

nn::Batch make_batch(ExecutionContext& context, const nn::ModelConfig& config) {
  nn::Batch batch;
  batch.input_ids = testing::random_ids(context, 3, 11, config.vocab_size, 5);
  batch.labels = testing::random_ids(context, 3, 11, config.vocab_size, 6);
  batch.labels_shifted = config.architecture == nn::Architecture::kBert;
  return batch;
}

nn::ForwardOptions training(const Setting& setting) {
  return {.training = true,
          .dropout_step = 7,
          .first_sample = 2,
          .activation_checkpoint = setting.checkpoint};
}

std::vector<double> whole_gradient(const nn::NamedParameter& p, const LocalParameter& local,
                                   const dtensor::MeshContext* mesh) {
  Tensor grad = local.parameter->value.grad();
  if (!grad)
    grad = zeros(local.parameter->value.context(), local.parameter->value.shape(), DType::kFloat32);
  if (!local.spec) return grad.to_vector();
  const auto all = std::make_shared<const planner::DTensorSpec>(
      local.spec->mesh_ptr(), planner::Placements(1), p.parameter->value.shape());
  return dtensor::redistribute_local(grad, {local.spec, all}, *mesh).to_vector();
}

Outcome run_model(comm::ProcessGroup& world, const nn::ModelConfig& config,
                  const Setting& setting) {
  testing::TestContext context;
  dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"tp", world.size()}}));
  planner::PlanCache plans;
  const dtensor::MeshContext mesh_context{mesh, plans};
  const auto model = testing::make_random_model(context, config);
  ParallelModel parallel(*model, &mesh, plan_of(setting));
  EXPECT_TRUE(parallel.warnings().empty()) << parallel.warnings().front();

  const nn::Batch batch = make_batch(context, config);
  Outcome outcome;
  const Tensor loss = model->loss(batch, 0.125f, training(setting));
  outcome.loss = loss.item();
  autograd::backward(loss);
  testing::sum_partial_gradients(context, mesh.group(0), parallel);
  const auto parameters = model->named_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    outcome.gradients[parameters[i].name] =
        whole_gradient(parameters[i], parallel.local_parameters()[i], &mesh_context);
  const NoGradGuard no_grad(context);
  outcome.logits = model->logits(batch, {}).to_vector();
  return outcome;
}

Outcome run_on(int ranks, const nn::ModelConfig& config, const Setting& setting) {
  Outcome outcome;
  testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
    Outcome mine = run_model(world, config, setting);
    if (world.rank() == 0) outcome = std::move(mine);
  });
  return outcome;
}

/// What every rank generates, after 5 tokens; longer than the context, so that the cache is filled
/// anew.
std::vector<std::int64_t> generate_on(int ranks, const nn::ModelConfig& config,
                                      const Setting& setting) {
  std::vector<std::int64_t> tokens;
  std::mutex mutex;
  testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"tp", ranks}}));
    const auto model = testing::make_random_model(context, config);
    const ParallelModel parallel(*model, &mesh, plan_of(setting));
    const std::vector<std::int64_t> prompt = {3, 1, 4, 1, 5};
    nn::GenerateOptions options;
    options.sampling.temperature = 0.0;
    options.max_tokens = 30;
    options.past_context = true;
    std::vector<std::int64_t> mine;
    meshloom::testing::generate(*model, prompt, options, [&](std::int64_t token) {
      mine.push_back(token);
      return true;
    });
    const std::lock_guard lock(mutex);
    if (tokens.empty()) tokens = mine;
    EXPECT_EQ(mine, tokens);
  });
  return tokens;
}

void expect_close(const std::vector<double>& a, const std::vector<double>& b,
                  const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double scale = 0.0, worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    scale = std::max(scale, std::abs(b[i]));
    worst = std::max(worst, std::abs(a[i] - b[i]));
  }
  EXPECT_LE(worst, 1e-5 * std::max(scale, 0.05)) << what;
}

void expect_equal_outcomes(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_NEAR(a.loss, b.loss, 1e-5 * std::abs(b.loss)) << what;
  expect_close(a.logits, b.logits, what + ": logits");
  for (const auto& [name, gradient] : b.gradients)
    expect_close(a.gradients.at(name), gradient, what + ": gradient of " + name);
}

struct NamedConfig {
  const char* name;
  nn::ModelConfig config;
};

std::vector<NamedConfig> configs() {
  return {{"gpt2", testing::tiny_gpt2()},
          {"llama", testing::tiny_llama()},
          {"bert", testing::tiny_bert()}};
}

TEST(ParallelModel, GivesLossGradientsAndDropoutOfOneRank) {
  for (const auto& [name, config] : configs()) {
    const Outcome one = run_on(1, config, {});
    for (const int ranks : {2, 3, 4})
      for (const bool sequence : {false, true})
        expect_equal_outcomes(run_on(ranks, config, {ranks, sequence}), one,
                              fmt::format("{} on {} ranks{}", name, ranks,
                                          sequence ? " with sequence parallelism" : ""));
  }
}

TEST(ParallelModel, ActivationCheckpointsChangeNothing) {
  for (const auto& [name, config] : configs())
    for (const bool sequence : {false, true}) {
      const Outcome plain = run_on(2, config, {2, sequence});
      for (const auto mode : {ActivationCheckpoint::kSelective, ActivationCheckpoint::kFull}) {
        const Outcome again = run_on(2, config, {2, sequence, mode});
        EXPECT_EQ(again.loss, plain.loss) << name;
        EXPECT_EQ(again.gradients, plain.gradients) << name << " sequence " << sequence;
      }
    }
}

TEST(ParallelModel, FusedProductsGiveTheSame) {
  if (testing::test_device() != kCpuDevice) GTEST_SKIP() << "fused products need host memory";
  using planner::FusionMode;
  for (const auto& [name, config] : configs())
    for (const int ranks : {2, 3}) {
      const auto fused = [&](FusionMode mode, ActivationCheckpoint checkpoint, bool again) {
        Setting setting{ranks, true, checkpoint};
        setting.fusion = {.mode = mode, .gather_again = again};
        return run_on(ranks, config, setting);
      };
      const std::string what = fmt::format("{} on {} ranks", name, ranks);
      const Outcome apart = fused(FusionMode::kForbid, ActivationCheckpoint::kNone, false);
      const Outcome forced = fused(FusionMode::kForce, ActivationCheckpoint::kNone, false);
      expect_equal_outcomes(forced, apart, what);
      // What is kept for backward, and what is made again, changes no bit.
      for (const auto& [mode, again] : {std::pair(ActivationCheckpoint::kNone, true),
                                        std::pair(ActivationCheckpoint::kSelective, false),
                                        std::pair(ActivationCheckpoint::kFull, true)}) {
        const Outcome other = fused(FusionMode::kForce, mode, again);
        EXPECT_EQ(other.loss, forced.loss) << what << ", gather again " << again;
        EXPECT_EQ(other.gradients, forced.gradients) << what << ", gather again " << again;
      }
      // The table chooses among equal bits.
      const Outcome by_table = fused(FusionMode::kAuto, ActivationCheckpoint::kNone, false);
      EXPECT_EQ(by_table.loss, apart.loss) << what;
      EXPECT_EQ(by_table.gradients, apart.gradients) << what;
    }
}

TEST(ParallelModel, SomeProductsAreFused) {
  if (testing::test_device() != kCpuDevice) GTEST_SKIP() << "fused products need host memory";
  for (const auto& [name, config] : configs()) {
    Setting setting{3, true};
    const Outcome apart = run_on(3, config, setting);
    setting.fusion.mode = planner::FusionMode::kForce;
    const char* pattern =
        config.architecture == nn::Architecture::kGpt2    ? "transformer.h.1.mlp.c_fc"
        : config.architecture == nn::Architecture::kLlama ? "model.layers.*.self_attn"
                                                          : "bert.encoder.layer.*.output.dense";
    setting.fusion.choices = {{pattern, planner::FusionMode::kForbid}};
    expect_equal_outcomes(run_on(3, config, setting), apart, name);
  }
}

TEST(ParallelModel, GeneratesThroughFusedProducts) {
  if (testing::test_device() != kCpuDevice) GTEST_SKIP() << "fused products need host memory";
  for (const auto& config : {testing::tiny_gpt2(), testing::tiny_llama()}) {
    Setting setting{3, true};
    setting.fusion.mode = planner::FusionMode::kForce;
    EXPECT_EQ(generate_on(3, config, setting), generate_on(1, config, {}));
  }
}

TEST(ParallelModel, RefusesToFuseAcrossHosts) {
  testing::run_thread_ranks(
      2,
      [](comm::RankRuntime& runtime) {
        const auto world = testing::make_test_world(runtime);
        testing::TestContext context;
        dtensor::DeviceMesh mesh(*world, planner::MeshLayout({{"tp", 2}}));
        const auto model = nn::make_model(context, testing::tiny_llama(), DType::kFloat32);
        Setting setting{2, true};
        setting.fusion.mode = planner::FusionMode::kForce;
        try {
          const ParallelModel parallel(*model, &mesh, plan_of(setting));
          ADD_FAILURE() << "ranks of two hosts were to share memory";
        } catch (const FailedPrecondition& error) {
          EXPECT_EQ(error.reason(), "SYMM_MEM_UNAVAILABLE");
          EXPECT_NE(std::string(error.what()).find("fusion: force of model.layers.0"),
                    std::string::npos)
              << error.what();
        }
        for (const nn::NamedParameter& p : model->named_parameters())
          EXPECT_FALSE(p.parameter->value.has_layout());
        runtime.bootstrap().barrier();
      },
      std::chrono::seconds(100), {}, {.hosts = {0, 1}});
}

/// Some of the styles of the default plans, which fit together in any way.
StylePlan random_plan(nn::Architecture architecture, std::mt19937& random) {
  StylePlan plan;
  while (plan.empty())
    for (const PatternStyles& entry : nn::default_styles(architecture, random() % 2 == 0))
      if (random() % 3 != 0) plan.push_back(entry);
  return plan;
}

std::string describe(const StylePlan& plan) {
  std::string text;
  for (const PatternStyles& entry : plan)
    text += fmt::format("\n  {}: {}", entry.pattern, to_string(entry.styles.front()));
  return text;
}

TEST(ParallelModel, AnyMixOfStylesGivesTheSame) {
  std::mt19937 random(17);
  for (const auto& [name, config] : configs()) {
    const Outcome one = run_on(1, config, {});
    for (int draw = 0; draw < 8; ++draw) {
      const StylePlan plan = random_plan(config.architecture, random);
      const int ranks = 2 + draw % 2;
      expect_equal_outcomes(
          run_on(ranks, config, {ranks, false, ActivationCheckpoint::kNone, plan}), one,
          fmt::format("{} on {} ranks, plan {}", name, ranks, describe(plan)));
    }
  }
}

TEST(ParallelModel, StylesSpelledAsInPyTorchKeepLayouts) {
  const StylePlan plan = {
      {"transformer.h.*.mlp.c_fc", {{.kind = StyleKind::kColwise}}},
      {"transformer.h.*.mlp.c_proj", {{.kind = StyleKind::kRowwise}}},
  };
  const nn::ModelConfig config = testing::tiny_gpt2();
  expect_equal_outcomes(run_on(3, config, {3, false, ActivationCheckpoint::kNone, plan}),
                        run_on(1, config, {}), "feed-forward parts alone");
}

TEST(ParallelModel, GeneratesTheTokensOfOneRank) {
  for (const auto& config : {testing::tiny_gpt2(), testing::tiny_llama()}) {
    const std::vector<std::int64_t> one = generate_on(1, config, {});
    ASSERT_EQ(one.size(), 30U);
    for (const int ranks : {2, 3})
      for (const bool sequence : {false, true})
        EXPECT_EQ(generate_on(ranks, config, {ranks, sequence}), one)
            << ranks << " ranks, " << sequence;
  }
}

// Styles that leave the residual stream sharded by positions: keys and values come so too.
TEST(ParallelModel, GeneratesWhateverTheStyles) {
  const ArgumentLayouts positions{planner::Placements{planner::Placement::shard(1)}};
  const StylePlan gpt2_plans[] = {
      {{"transformer.wte", {{.kind = StyleKind::kColwise}}}},
      {{"transformer.h.*.ln_1", {{.kind = StyleKind::kSequence}}}},
      {{"transformer.h.*.mlp",
        {{.kind = StyleKind::kPrepareInput,
          .input_layouts = positions,
          .desired_input_layouts = positions}}}},
  };
  for (const StylePlan& plan : gpt2_plans)
    for (const int ranks : {2, 3})
      EXPECT_EQ(generate_on(ranks, testing::tiny_gpt2(), {.ranks = ranks, .styles = plan}),
                generate_on(1, testing::tiny_gpt2(), {}))
          << ranks << " ranks" << describe(plan);
  std::mt19937 random(23);
  for (const auto& config : {testing::tiny_gpt2(), testing::tiny_llama()}) {
    const std::vector<std::int64_t> one = generate_on(1, config, {});
    for (int draw = 0; draw < 8; ++draw) {
      const StylePlan plan = random_plan(config.architecture, random);
      const int ranks = 2 + draw % 3;
      EXPECT_EQ(generate_on(ranks, config, {.ranks = ranks, .styles = plan}), one)
          << ranks << " ranks" << describe(plan);
    }
  }
}

TEST(ParallelModel, RefusesAPlanThatDoesNotFitOnEveryRank) {
  std::mutex mutex;
  std::vector<std::string> texts;
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"tp", 2}}));
    const auto model = nn::make_model(context, testing::tiny_llama(), DType::kFloat32);
    const StylePlan plan = {{"model.norm", {{.kind = StyleKind::kColwise}}}};
    try {
      const ParallelModel parallel(*model, &mesh, {true, false, plan});
      ADD_FAILURE() << "a norm was sharded by columns";
    } catch (const InvalidArgument& error) {
      const std::lock_guard lock(mutex);
      texts.emplace_back(error.what());
    }
    // Nothing was changed.
    for (const nn::NamedParameter& p : model->named_parameters())
      EXPECT_FALSE(p.parameter->value.has_layout());
  });
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_NE(texts[0].find("ColwiseParallel of model.norm"), std::string::npos) << texts[0];
}

}  // namespace
}  // namespace meshloom::parallel
