// SPDX-License-Identifier: Apache-2.0
// Properties that hold for every model, without a reference implementation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "daemon/nn/models/model.h"
#include "daemon/nn/models/presets.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/ops/loss.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "tests/support/test_context.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::nn {
namespace {

using meshloom::testing::make_random_model;
using meshloom::testing::random_ids;

class Models : public ::testing::TestWithParam<ModelConfig (*)()> {};
INSTANTIATE_TEST_SUITE_P(All, Models,
                         ::testing::Values(&meshloom::testing::tiny_gpt2,
                                           &meshloom::testing::tiny_llama,
                                           &meshloom::testing::tiny_qwen3,
                                           &meshloom::testing::tiny_bert));

Batch random_batch(ExecutionContext& context, std::int64_t rows, std::int64_t length,
                   std::uint32_t seed) {
  Batch batch;
  batch.input_ids = random_ids(context, rows, length, 37, seed);
  batch.labels = random_ids(context, rows, length, 37, seed + 1);
  return batch;
}

double loss_of(Model& model, const Batch& batch, const ForwardOptions& options) {
  const NoGradGuard no_grad(model.context());
  return model.loss(batch, 1.0f, options).item();
}

TEST_P(Models, ParameterCountIsThatOfTheTensors) {
  testing::TestContext context;
  const auto model = make_model(context, GetParam()(), DType::kFloat32);
  std::int64_t count = 0;
  for (const NamedParameter& p : model->named_parameters()) count += p.parameter->value.numel();
  EXPECT_EQ(count, parameter_count(model->config()));
}

/// A key of every row is hidden, of one row also the first, which a causal query sees alone.
Tensor some_mask(ExecutionContext& context, std::int64_t rows, std::int64_t length) {
  std::vector<std::int64_t> mask(static_cast<std::size_t>(rows * length), 1);
  for (std::int64_t row = 0; row < rows; ++row)
    mask[static_cast<std::size_t>(row * length + length / 2 + row)] = 0;
  mask[0] = 0;
  return from_values(context, {rows, length}, std::span<const std::int64_t>(mask));
}

/// The derivative along a random direction, with dropout and a mask and without: independent of
/// every backward formula.
TEST_P(Models, GradientIsTheSlopeOfTheLoss) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  Batch batch = random_batch(context, 3, 17, 5);
  for (bool training : {false, true}) {
    if (training) batch.attention_mask = some_mask(context, 3, 17);
    const ForwardOptions options{.training = training, .dropout_step = 9, .first_sample = 4};
    for (const NamedParameter& p : model->named_parameters())
      p.parameter->value.leaf_grad()->clear();
    autograd::backward(model->loss(batch, 1.0f, options));

    std::mt19937 random(11);
    for (const NamedParameter& p : model->named_parameters()) {
      SCOPED_TRACE(p.name);
      std::normal_distribution<double> normal;
      const std::vector<double> before = p.parameter->value.to_vector();
      const std::vector<double> grad = p.parameter->value.grad().to_vector();
      std::vector<double> direction(before.size());
      double slope = 0.0, grad_norm = 0.0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        direction[i] = normal(random) / std::sqrt(static_cast<double>(before.size()));
        slope += grad[i] * direction[i];
        grad_norm += grad[i] * grad[i];
      }
      // Half along the gradient, so that the slope is not lost in rounding.
      grad_norm = std::sqrt(grad_norm);
      for (std::size_t i = 0; i < before.size(); ++i)
        direction[i] = 0.5 * direction[i] + (grad_norm > 0 ? 0.5 * grad[i] / grad_norm : 0.0);
      slope = 0.5 * slope + 0.5 * grad_norm;
      const auto loss_at = [&](double step) {
        std::vector<double> moved(before.size());
        for (std::size_t i = 0; i < before.size(); ++i) moved[i] = before[i] + step * direction[i];
        copy_into(p.parameter->value,
                  from_values(context, p.parameter->value.shape(), moved, DType::kFloat32));
        return loss_of(*model, batch, options);
      };
      const double step = 4e-3;
      const double near = (loss_at(step) - loss_at(-step)) / (2 * step);
      const double far = (loss_at(2 * step) - loss_at(-2 * step)) / (4 * step);
      loss_at(0.0);
      EXPECT_NEAR((4 * near - far) / 3, slope, 2e-2 + 4e-3 * std::abs(slope))
          << "training " << training;
    }
  }
}

TEST_P(Models, RowsDoNotDependOnTheirBatch) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  const Batch both = random_batch(context, 2, 13, 21);
  double sum = 0.0;
  for (std::int64_t row = 0; row < 2; ++row) {
    Batch one;
    one.input_ids = ops::slice(both.input_ids, 0, row, row + 1);
    one.labels = ops::slice(both.labels, 0, row, row + 1);
    sum += loss_of(
        *model, one,
        {.training = true, .dropout_step = 2, .first_sample = 6 + static_cast<std::uint64_t>(row)});
  }
  const double together =
      loss_of(*model, both, {.training = true, .dropout_step = 2, .first_sample = 6});
  EXPECT_NEAR(together, sum, 1e-4 * sum);
  const double other_step =
      loss_of(*model, both, {.training = true, .dropout_step = 3, .first_sample = 6});
  EXPECT_GT(std::abs(other_step - together), 1e-3 * sum);
}

std::vector<double> gradients(Model& model) {
  std::vector<double> all;
  for (const NamedParameter& p : model.named_parameters()) {
    const std::vector<double> grad = p.parameter->value.grad().to_vector();
    all.insert(all.end(), grad.begin(), grad.end());
    p.parameter->value.leaf_grad()->clear();
  }
  return all;
}

TEST_P(Models, RecomputationChangesNothing) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  const Batch batch = random_batch(context, 2, 19, 81);
  ForwardOptions options{.training = true, .dropout_step = 5, .first_sample = 2};
  autograd::backward(model->loss(batch, 1.0f, options));
  const std::vector<double> kept = gradients(*model);
  for (auto mode : {ActivationCheckpoint::kSelective, ActivationCheckpoint::kFull}) {
    options.activation_checkpoint = mode;
    autograd::backward(model->loss(batch, 1.0f, options));
    EXPECT_EQ(gradients(*model), kept) << "bit for bit";
  }
}

TEST_P(Models, GradientsOfMicroBatchesAddUp) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  const Batch both = random_batch(context, 2, 19, 91);
  autograd::backward(
      model->loss(both, 1.0f, {.training = true, .dropout_step = 5, .first_sample = 2}));
  const std::vector<double> together = gradients(*model);
  for (std::int64_t row = 0; row < 2; ++row) {
    Batch one;
    one.input_ids = ops::slice(both.input_ids, 0, row, row + 1);
    one.labels = ops::slice(both.labels, 0, row, row + 1);
    const auto first = 2 + static_cast<std::uint64_t>(row);
    autograd::backward(
        model->loss(one, 1.0f, {.training = true, .dropout_step = 5, .first_sample = first}));
  }
  const std::vector<double> added = gradients(*model);
  for (std::size_t i = 0; i < added.size(); ++i)
    ASSERT_NEAR(added[i], together[i], 1e-4 + 1e-4 * std::abs(together[i])) << i;
}

TEST_P(Models, AnEmptyBatchGivesZero) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  Batch batch;
  batch.input_ids = batch.labels = zeros(context, {0, 8}, DType::kInt64);
  const Tensor loss = model->loss(batch, 1.0f, {.training = true});
  EXPECT_EQ(loss.item(), 0.0);
  autograd::backward(loss);
  for (double g : gradients(*model)) ASSERT_EQ(g, 0.0);
}

TEST_P(Models, DocumentsArePrivate) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  // Two documents of 9 and 6 tokens in one row, positions starting anew, against each alone.
  Batch packed = random_batch(context, 1, 15, 31);
  std::vector<std::int64_t> documents, positions;
  for (std::int64_t i = 0; i < 15; ++i) {
    documents.push_back(i < 9 ? 4 : 5);
    positions.push_back(i < 9 ? i : i - 9);
  }
  packed.document_ids = from_values(context, {1, 15}, std::span<const std::int64_t>(documents));
  packed.position_ids = from_values(context, {1, 15}, std::span<const std::int64_t>(positions));
  double sum = 0.0;
  for (const auto& [begin, end] : {std::pair{0, 9}, std::pair{9, 15}}) {
    Batch alone;
    alone.input_ids = ops::slice(packed.input_ids, 1, begin, end);
    alone.labels = ops::slice(packed.labels, 1, begin, end);
    sum += loss_of(*model, alone, {});
  }
  EXPECT_NEAR(loss_of(*model, packed, {}), sum, 1e-4 * sum);
}

TEST_P(Models, LabelsOfMinus100DoNotCount) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  Batch batch = random_batch(context, 1, 8, 41);
  const double all = loss_of(*model, batch, {});
  std::vector<double> labels = batch.labels.to_vector();
  double parts = 0.0;
  for (int half = 0; half < 2; ++half) {
    std::vector<std::int64_t> some;
    for (std::size_t i = 0; i < 8; ++i)
      some.push_back(static_cast<int>(i % 2) == half ? static_cast<std::int64_t>(labels[i]) : -100);
    batch.labels = from_values(context, {1, 8}, std::span<const std::int64_t>(some));
    parts += loss_of(*model, batch, {});
  }
  EXPECT_NEAR(parts, all, 1e-5 * all);
}

TEST_P(Models, LossesByTokenAreThoseOfTheLogits) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  Batch batch = random_batch(context, 2, 9, 17);
  const NoGradGuard no_grad(context);
  const Tensor logits = ops::reshape(model->logits(batch, {}), {18, -1});
  const Tensor expected = ops::cross_entropy(logits, ops::reshape(batch.labels, {18}),
                                             {.reduction = ops::Reduction::kNone});
  const std::vector<double> losses = model->token_losses(batch, {}).to_vector();
  ASSERT_EQ(losses.size(), 18u);
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], expected.to_vector()[i], 1e-5);

  batch.label_weights = full(context, {2, 9}, 0.5, DType::kFloat32);
  const ops::WeightedLoss weighted = model->weighted_loss(batch, 2.0f, {});
  EXPECT_EQ(weighted.losses.to_vector(), losses);
  EXPECT_NEAR(weighted.sum.item(), loss_of(*model, batch, {}), 1e-4);

  // The same labels twice for each token.
  batch.label_weights = {};
  batch.labels = ops::contiguous(ops::expand(ops::unsqueeze(batch.labels, 2), {2, 9, 2}));
  const std::vector<double> twice = model->token_losses(batch, {}).to_vector();
  for (std::size_t i = 0; i < twice.size(); ++i) EXPECT_EQ(twice[i], losses[i / 2]);
}

TEST_P(Models, Bfloat16IsClose) {
  testing::TestContext context;
  const auto exact = make_random_model(context, GetParam()());
  const auto rounded = make_random_model(context, GetParam()(), DType::kBFloat16);
  const Batch batch = random_batch(context, 2, 20, 51);
  const double expected = loss_of(*exact, batch, {});
  const Tensor loss = rounded->loss(batch, 1.0f, {});
  EXPECT_NEAR(loss.item(), expected, 0.02 * expected);
  autograd::backward(loss);
  for (const NamedParameter& p : rounded->named_parameters()) {
    ASSERT_TRUE(p.parameter->value.grad().defined()) << p.name;
    EXPECT_EQ(p.parameter->value.grad().dtype(), DType::kFloat32);
  }
}

TEST_P(Models, WrongBatchesAreRefused) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  const auto message = [&](const Batch& batch) -> std::string {
    try {
      loss_of(*model, batch, {});
      return "";
    } catch (const InvalidArgument& e) {
      return e.what();
    }
  };
  EXPECT_NE(message({}).find("input_ids"), std::string::npos);
  EXPECT_NE(message(random_batch(context, 1, 25, 1)).find("24"), std::string::npos)
      << "past the context";
  Batch batch = random_batch(context, 2, 5, 1);
  batch.labels = random_ids(context, 2, 6, 37, 1);
  EXPECT_NE(message(batch).find("labels"), std::string::npos);
  batch.labels = {};
  EXPECT_NE(message(batch).find("labels"), std::string::npos);
  batch = random_batch(context, 2, 5, 1);
  batch.input_ids = from_values(context, {2, 5}, std::vector<float>(10));
  EXPECT_NE(message(batch).find("int64"), std::string::npos);
  batch = random_batch(context, 1, 3, 1);
  batch.token_type_ids = zeros(context, {1, 3}, DType::kInt64);
  EXPECT_EQ(message(batch).find("token_type_ids") != std::string::npos,
            model->config().architecture != Architecture::kBert);
  batch = random_batch(context, 1, 3, 1);
  batch.input_ids = from_values(context, {1, 3}, std::vector<std::int64_t>{0, 37, 1});
  EXPECT_NE(message(batch).find("37"), std::string::npos);
  batch = random_batch(context, 1, 3, 1);
  batch.labels = from_values(context, {1, 3}, std::vector<std::int64_t>{0, -1, 1});
  EXPECT_NE(message(batch).find("-1"), std::string::npos);
}

TEST(InitialLoss, IsNearLogOfTheVocabulary) {
  for (const char* name :
       {"byte_gpt_tiny", "byte_gpt_1m", "byte_gpt_10m", "bpe_gpt_0_5m", "llama_tiny"}) {
    testing::TestContext context;
    const ModelConfig config = preset_config(name);
    const auto model = make_model(context, config, DType::kFloat32);
    initialize_parameters(*model, 1234);
    Batch batch;
    batch.input_ids = random_ids(context, 2, 64, config.vocab_size, 61);
    batch.labels = random_ids(context, 2, 64, config.vocab_size, 62);
    EXPECT_NEAR(loss_of(*model, batch, {}) / 128.0,
                std::log(static_cast<double>(config.vocab_size)), 0.15)
        << name;
  }
}

/// Random weights of GPT-2's recipe give logits of variance 768 * 0.02^2, which adds half of that.
TEST(InitialLoss, OfGpt2Is11) {
  ExecutionContext::Options two;
  two.threads = Threads{2};
  ExecutionContext context(two);
  const auto model = make_model(context, preset_config("gpt2_124m"), DType::kFloat32);
  initialize_parameters(*model, 42);
  Batch batch;
  batch.input_ids = random_ids(context, 1, 64, 50257, 63);
  batch.labels = random_ids(context, 1, 64, 50257, 64);
  EXPECT_NEAR(loss_of(*model, batch, {}) / 64.0, std::log(50257.0) + 0.5 * 768 * 0.0004, 0.2);
}

/// The logits of other positions keep every bit when a masked token becomes another one.
TEST_P(Models, MaskedKeysAreSeenByNoQuery) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  const NoGradGuard no_grad(context);
  const std::int64_t masked = 3, length = 11, vocabulary = 37;
  Batch batch = random_batch(context, 2, length, 71);
  std::vector<std::int64_t> mask(static_cast<std::size_t>(2 * length), 1);
  mask[masked] = mask[static_cast<std::size_t>(length + masked)] = 0;
  const auto logits_at = [&](std::int64_t added) {
    std::vector<std::int64_t> ids;
    for (double id : batch.input_ids.to_vector()) ids.push_back(static_cast<std::int64_t>(id));
    for (const std::int64_t at : {masked, length + masked}) {
      auto& id = ids[static_cast<std::size_t>(at)];
      id = (id + added) % vocabulary;
    }
    Batch changed = batch;
    changed.input_ids = from_values(context, {2, length}, std::span<const std::int64_t>(ids));
    return model->logits(changed, {}).to_vector();
  };
  const auto differing_positions = [&] {
    const std::vector<double> a = logits_at(0), b = logits_at(5);
    std::set<std::int64_t> positions;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i]) positions.insert(static_cast<std::int64_t>(i) / vocabulary % length);
    return positions;
  };
  EXPECT_GT(differing_positions().size(), 1u) << "seen without a mask";
  batch.attention_mask = from_values(context, {2, length}, std::span<const std::int64_t>(mask));
  EXPECT_EQ(differing_positions(), (std::set<std::int64_t>{masked}));
  for (std::int64_t& seen : mask) seen *= 7;
  const std::vector<double> before = logits_at(0);
  batch.attention_mask = from_values(context, {2, length}, std::span<const std::int64_t>(mask));
  EXPECT_EQ(logits_at(0), before) << "any mask but 0 means that the key is seen";
}

/// A row that sees no key gets no value, and no NaN into any gradient.
TEST_P(Models, RowsWithoutAnyKeyAreFinite) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  Batch batch = random_batch(context, 2, 6, 73);
  std::vector<std::int64_t> mask(12, 1);
  std::fill_n(mask.begin(), 6, 0);
  batch.attention_mask = from_values(context, {2, 6}, std::span<const std::int64_t>(mask));
  const Tensor loss = model->loss(batch, 1.0f, {});
  EXPECT_TRUE(std::isfinite(loss.item()));
  autograd::backward(loss);
  for (double g : gradients(*model)) ASSERT_TRUE(std::isfinite(g));
}

std::vector<double> logits_at(Model& model, const std::vector<std::int64_t>& ids,
                              std::int64_t position) {
  const NoGradGuard no_grad(model.context());
  Batch batch;
  batch.input_ids = from_values(model.context(), {1, static_cast<std::int64_t>(ids.size())},
                                std::span<const std::int64_t>(ids));
  const Tensor logits = model.logits(batch, {});
  return ops::slice(logits, 1, position, position + 1).to_vector();
}

TEST(Window, OfTwoLayersReachesSoFarAndNoFurther) {
  testing::TestContext context;
  ModelConfig config = meshloom::testing::tiny_qwen3();
  config.windowed_layers = {};
  const auto model = make_random_model(context, config);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 20; ++i) ids.push_back(i);
  const std::int64_t last = 15, farthest = last - 2 * (config.sliding_window - 1);
  const std::vector<double> before = logits_at(*model, ids, last);
  for (std::int64_t changed = 0; changed < 20; ++changed) {
    std::vector<std::int64_t> other = ids;
    other[static_cast<std::size_t>(changed)] = 30;
    const bool seen = changed >= farthest && changed <= last;
    EXPECT_EQ(logits_at(*model, other, last) != before, seen) << "position " << changed;
  }
}

TEST(Bert, DoesNotGenerate) {
  testing::TestContext context;
  const auto model = make_random_model(context, meshloom::testing::tiny_bert());
  EXPECT_THROW(model->make_cache(8), Unimplemented);
}

}  // namespace
}  // namespace meshloom::nn
