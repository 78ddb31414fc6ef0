// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>

#include "daemon/tensor/autograd/leaf_grad.h"
#include "kernels/base/error.h"
#include "kernels/base/half.h"
#include "tests/support/tensor_elements.h"
#include "tests/support/test_context.h"

namespace meshloom::train {
namespace {

using ::testing::HasSubstr;
using Values = std::vector<double>;

/// Two parameters, a matrix and a vector, with random values; gradients are set by hand.
class Toy : public nn::Module {
 public:
  Toy(ExecutionContext& context, DType dtype) : Module(context) {
    register_parameter("block.weight", {3, 7}, dtype, {});
    register_parameter("block.bias", {7}, dtype, {});
    std::mt19937 random(3);
    for (const auto& [name, parameter] : named_parameters())
      fill(parameter->value.detach(), random);
  }
  void set_gradients(unsigned seed, float scale = 1.0f) {
    std::mt19937 random(seed);
    for (const auto& [name, parameter] : named_parameters()) {
      const auto& grad = parameter->value.leaf_grad();
      fill(grad->buffer(), random, scale);
      grad->mark_written();
    }
  }
  std::vector<Values> values() {
    std::vector<Values> all;
    for (const auto& [name, parameter] : named_parameters())
      all.push_back(parameter->value.to_vector());
    return all;
  }
  std::vector<Values> gradients() {
    std::vector<Values> all;
    for (const auto& [name, parameter] : named_parameters())
      all.push_back(parameter->value.grad().to_vector());
    return all;
  }

 private:
  void fill(const Tensor& tensor, std::mt19937& random, float scale = 1.0f) {
    std::vector<float> data(static_cast<std::size_t>(tensor.numel()));
    for (float& value : data) value = scale * std::uniform_real_distribution<float>(-1, 1)(random);
    copy_into(tensor, from_values(context(), tensor.shape(), std::span<const float>(data)));
  }
};

/// The textbook update of one element in double precision (Kingma and Ba 2015; Loshchilov and
/// Hutter 2019; SGD with momentum as PyTorch defines it).
struct Reference {
  OptimizerSettings settings;
  double m = 0.0, v = 0.0;
  int step = 0;

  double update(double w, double g, double lr, double decay) {
    ++step;
    if (settings.kind == OptimizerSettings::Kind::kSgd) {
      g += decay * w;
      if (settings.momentum != 0.0) {
        m = step == 1 ? g : settings.momentum * m + (1 - settings.dampening) * g;
        g = settings.nesterov ? g + settings.momentum * m : m;
      }
      return w - lr * g;
    }
    if (settings.kind == OptimizerSettings::Kind::kAdamW)
      w -= lr * decay * w;
    else
      g += decay * w;
    m = settings.beta1 * m + (1 - settings.beta1) * g;
    v = settings.beta2 * v + (1 - settings.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(settings.beta1, step));
    const double v_hat = v / (1 - std::pow(settings.beta2, step));
    return w - lr * m_hat / (std::sqrt(v_hat) + settings.eps);
  }
};

/// What a parameter has of its own.
struct Own {
  double lr_factor = 1.0;
  std::optional<double> weight_decay;
};

void expect_reference(
    const OptimizerSettings& settings,
    const std::function<Own(std::size_t)>& of_own = [](std::size_t) { return Own(); }) {
  testing::TestContext context;
  Toy toy(context, DType::kFloat32);
  Optimizer optimizer(context, toy.named_parameters(), settings);
  std::vector<Values> expected = toy.values();
  std::vector<std::vector<Reference>> state;
  for (const Values& values : expected) state.emplace_back(values.size(), Reference{settings});
  for (unsigned step = 1; step <= 4; ++step) {
    toy.set_gradients(100 + step);
    const auto gradients = toy.gradients();
    const double lr = 0.01 / step;
    for (std::size_t p = 0; p < expected.size(); ++p) {
      const Own own = of_own(p);
      const double decay = optimizer.decays(p) ? settings.weight_decay : 0.0;
      for (std::size_t i = 0; i < expected[p].size(); ++i)
        expected[p][i] = state[p][i].update(expected[p][i], gradients[p][i], lr * own.lr_factor,
                                            own.weight_decay.value_or(decay));
    }
    optimizer.step(step, lr);
    optimizer.zero_grad();
  }
  const auto found = toy.values();
  for (std::size_t p = 0; p < expected.size(); ++p)
    for (std::size_t i = 0; i < expected[p].size(); ++i)
      EXPECT_NEAR(found[p][i], expected[p][i], 2e-6);
}

OptimizerSettings settings_of(OptimizerSettings::Kind kind) {
  OptimizerSettings settings;
  settings.kind = kind;
  settings.weight_decay = 0.3;
  return settings;
}

TEST(Optimizer, AdamWMatchesTheTextbook) {
  expect_reference(settings_of(OptimizerSettings::Kind::kAdamW));
}

TEST(Optimizer, AdamMatchesTheTextbook) {
  expect_reference(settings_of(OptimizerSettings::Kind::kAdam));
}

TEST(Optimizer, SgdMatchesPyTorchsDefinition) {
  OptimizerSettings settings = settings_of(OptimizerSettings::Kind::kSgd);
  expect_reference(settings);
  settings.momentum = 0.9;
  expect_reference(settings);
  settings.nesterov = true;
  expect_reference(settings);
  settings.nesterov = false;
  settings.dampening = 0.4;
  expect_reference(settings);
}

TEST(Optimizer, GroupsMatchTheTextbookWithTheirOwnRateAndDecay) {
  using Kind = OptimizerSettings::Kind;
  for (const Kind kind : {Kind::kAdamW, Kind::kAdam, Kind::kSgd}) {
    OptimizerSettings settings = settings_of(kind);
    settings.groups = {{"block.bias", 0.25, 0.7}};
    expect_reference(settings, [](std::size_t p) { return p == 1 ? Own{0.25, 0.7} : Own(); });
    settings.groups = {{"block.weight", 4.0, {}}, {"block.bias", 4.0, 0.0}};
    expect_reference(settings, [](std::size_t p) {
      return p == 1 ? Own{4.0, 0.0} : Own{4.0, std::nullopt};
    });
  }
}

TEST(Optimizer, FrozenParametersHaveNoMomentsAndStay) {
  testing::TestContext context;
  Toy toy(context, DType::kFloat32);
  toy.named_parameters()[1].parameter->value.set_requires_grad(false);
  const Values before = toy.values()[1];
  Optimizer optimizer(context, toy.named_parameters(),
                      settings_of(OptimizerSettings::Kind::kAdamW));
  EXPECT_TRUE(optimizer.is_frozen(1));
  std::vector<std::string> names;
  for (const StateTensor& tensor : optimizer.state()) names.push_back(tensor.name);
  EXPECT_THAT(names, ::testing::ElementsAre("model.block.weight", "optimizer.moment1.block.weight",
                                            "optimizer.moment2.block.weight", "model.block.bias"));
  const auto& grad = toy.named_parameters()[0].parameter->value.leaf_grad();
  context.backend().fill(context.kernel_context(), grad->buffer().view(), 2.0);
  grad->mark_written();
  optimizer.clip(0.0);
  EXPECT_FLOAT_EQ(static_cast<float>(optimizer.norm().item()), 2.0f * std::sqrt(21.0f));
  optimizer.step(1, 0.1);
  optimizer.reset_moments();
  optimizer.zero_grad();
  EXPECT_EQ(toy.values()[1], before);
}

TEST(Optimizer, DecaysMatricesByDefaultAndPatternsWhereGiven) {
  testing::TestContext context;
  Toy toy(context, DType::kFloat32);
  OptimizerSettings settings;
  const Optimizer by_default(context, toy.named_parameters(), settings);
  EXPECT_TRUE(by_default.decays(0));
  EXPECT_FALSE(by_default.decays(1));
  settings.decay = OptimizerSettings::Decay::kPatterns;
  settings.decay_patterns = {"*.bias"};
  const Optimizer by_pattern(context, toy.named_parameters(), settings);
  EXPECT_FALSE(by_pattern.decays(0));
  EXPECT_TRUE(by_pattern.decays(1));
  settings.decay_patterns = {"*.bias", "*.gamma"};
  try {
    const Optimizer wrong(context, toy.named_parameters(), settings);
    FAIL() << "a pattern without a match was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("*.gamma"));
    EXPECT_EQ(error.metadata().at("field"), "run.optimizer.decay[1]");
  }
}

TEST(Optimizer, ClipsByTheGlobalNorm) {
  testing::TestContext context;
  OptimizerSettings settings = settings_of(OptimizerSettings::Kind::kSgd);
  settings.weight_decay = 0.0;
  for (const double max_norm : {0.0, 0.5, 100.0}) {
    Toy toy(context, DType::kFloat32);
    Optimizer optimizer(context, toy.named_parameters(), settings);
    toy.set_gradients(9);
    double squares = 0.0;
    for (const Values& values : toy.gradients())
      for (const double g : values) squares += g * g;
    const double norm = std::sqrt(squares);
    const double factor = max_norm == 0.0 ? 1.0 : std::min(1.0, max_norm / (norm + 1e-6));
    const auto before = toy.values();
    const auto gradients = toy.gradients();
    optimizer.clip(max_norm);
    optimizer.step(1, 0.1);
    EXPECT_NEAR(optimizer.norm().item(), norm, 1e-5);
    const auto after = toy.values();
    for (std::size_t p = 0; p < before.size(); ++p)
      for (std::size_t i = 0; i < before[p].size(); ++i)
        EXPECT_NEAR(after[p][i], before[p][i] - 0.1 * factor * gradients[p][i], 1e-6);
  }
}

TEST(Optimizer, NamesTheFirstBadGradient) {
  testing::TestContext context;
  Toy toy(context, DType::kFloat32);
  Optimizer optimizer(context, toy.named_parameters(), {});
  toy.set_gradients(1);
  EXPECT_EQ(optimizer.first_nonfinite_gradient(), -1);
  testing::set_element(toy.named_parameters()[1].parameter->value.leaf_grad()->buffer(), 6,
                       std::numeric_limits<double>::infinity());
  EXPECT_EQ(optimizer.first_nonfinite_gradient(), 1);
  const auto before = toy.values();
  optimizer.clip(1.0);
  optimizer.step(1, 0.1);
  EXPECT_FALSE(std::isfinite(optimizer.norm().item()));
  EXPECT_EQ(toy.values(), before);

  toy.set_gradients(1);
  optimizer.clip(1.0);
  optimizer.step(1, 0.1, full(context, {1}, std::nan(""), DType::kFloat64));
  EXPECT_EQ(toy.values(), before) << "a loss that is NaN";
  optimizer.clip(1.0);
  optimizer.step(1, 0.1, full(context, {1}, 3.0, DType::kFloat64));
  EXPECT_NE(toy.values(), before);
}

// Updates far below bfloat16's resolution add up in the master and reach the working copy.
TEST(Optimizer, BfloatParametersFollowAFloatMaster) {
  testing::TestContext context;
  Toy toy(context, DType::kBFloat16);
  Toy twin(context, DType::kFloat32);
  OptimizerSettings settings = settings_of(OptimizerSettings::Kind::kSgd);
  settings.weight_decay = 0.0;
  std::vector<Tensor> masters;
  for (const auto& [name, parameter] : twin.named_parameters())
    masters.push_back(parameter->value.detach());
  Optimizer optimizer(context, toy.named_parameters(), settings, masters);
  optimizer.refresh_working_copies();
  const auto start = twin.values();
  for (int step = 1; step <= 100; ++step) {
    toy.set_gradients(5);
    optimizer.step(step, 1e-4);
  }
  const auto gradients = toy.gradients();
  const auto master = twin.values();
  const auto working = toy.values();
  for (std::size_t p = 0; p < start.size(); ++p)
    for (std::size_t i = 0; i < start[p].size(); ++i) {
      EXPECT_NEAR(master[p][i], start[p][i] - 100 * 1e-4 * gradients[p][i], 1e-5);
      EXPECT_EQ(working[p][i], static_cast<float>(bfloat16(static_cast<float>(master[p][i]))));
    }
}

TEST(Optimizer, StateHoldsEverythingUnderItsName) {
  testing::TestContext context;
  Toy toy(context, DType::kFloat32);
  OptimizerSettings settings;
  std::vector<std::string> names;
  for (const auto& item : Optimizer(context, toy.named_parameters(), settings).state())
    names.push_back(item.name);
  EXPECT_THAT(names, ::testing::ElementsAre("model.block.weight", "optimizer.moment1.block.weight",
                                            "optimizer.moment2.block.weight", "model.block.bias",
                                            "optimizer.moment1.block.bias",
                                            "optimizer.moment2.block.bias"));
  settings.kind = OptimizerSettings::Kind::kSgd;
  EXPECT_EQ(Optimizer(context, toy.named_parameters(), settings).state().size(), 2u);
}

}  // namespace
}  // namespace meshloom::train
