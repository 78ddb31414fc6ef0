// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/embedding.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "tests/support/grad_check.h"
#include "tests/support/test_context.h"

namespace meshloom::ops {
namespace {

using test::random_ids;
using test::random_tensor;

class LossTest : public ::testing::Test {
 protected:
  testing::TestContext context_;
  std::mt19937_64 rng_{43};
};

struct Reference {
  std::vector<double> losses, grads;
  double counted = 0;
};

/// Losses and d sum(losses) / d logits of [rows, V], in double.
Reference reference_cross_entropy(const Tensor& logits, const std::vector<double>& targets,
                                  const CrossEntropyOptions& options) {
  const std::vector<double> x = logits.to_vector();
  const std::vector<double> weights =
      options.class_weights ? options.class_weights.to_vector() : std::vector<double>();
  const std::size_t rows = targets.size(), classes = x.size() / rows;
  Reference r{std::vector<double>(rows, 0.0), std::vector<double>(x.size(), 0.0)};
  for (std::size_t i = 0; i < rows; ++i) {
    if (static_cast<std::int64_t>(targets[i]) == options.ignore_index) continue;
    const double weight = weights.empty() ? 1.0 : weights[static_cast<std::size_t>(targets[i])];
    r.counted += weight;
    double total = 0;
    for (std::size_t c = 0; c < classes; ++c) total += std::exp(x[i * classes + c]);
    for (std::size_t c = 0; c < classes; ++c) {
      const double smooth = options.label_smoothing;
      const double wanted = smooth / static_cast<double>(classes) +
                            (c == static_cast<std::size_t>(targets[i]) ? 1.0 - smooth : 0.0);
      const double p = std::exp(x[i * classes + c]) / total;
      r.losses[i] -= weight * wanted * std::log(p);
      r.grads[i * classes + c] = weight * (p - wanted);
    }
  }
  return r;
}

TEST_F(LossTest, CrossEntropyMatchesTheFormula) {
  struct Kind {
    double smoothing;
    bool weighted;
  };
  for (const Kind& kind : {Kind{0.0, false}, Kind{0.1, false}, Kind{0.0, true}})
    for (const Reduction reduction : {Reduction::kNone, Reduction::kSum, Reduction::kMean}) {
      CrossEntropyOptions options{
          .ignore_index = 2, .reduction = reduction, .label_smoothing = kind.smoothing};
      if (kind.weighted)
        options.class_weights = random_tensor(context_, {7}, rng_, DType::kFloat32, 0.2, 2);
      Tensor logits = random_tensor(context_, {23, 7}, rng_, DType::kFloat32, -3, 3);
      logits.set_requires_grad(true);
      const Tensor targets = random_ids(context_, {23}, rng_, 7);
      const Reference r = reference_cross_entropy(logits, targets.to_vector(), options);
      const Tensor y = cross_entropy(logits, targets, options);
      const bool none = reduction == Reduction::kNone;
      const Tensor dy = none ? full(context_, {23}, 1.5, DType::kFloat32)
                             : full(context_, {}, 1.5, DType::kFloat32);
      autograd::backward(std::span(&y, 1), std::span(&dy, 1));
      const double scale = reduction == Reduction::kMean ? 1.0 / r.counted : 1.0;
      std::vector<double> grads = r.grads;
      for (double& g : grads) g *= 1.5 * scale;
      test::expect_near(logits.grad(), grads, 1e-6);
      if (none) {
        test::expect_near(y, r.losses, 1e-5);
      } else {
        double sum = 0;
        for (double l : r.losses) sum += l;
        EXPECT_NEAR(y.item(), sum * scale, 1e-4);
      }
    }
}

TEST_F(LossTest, CrossEntropyOfFloat64IsFloat64Throughout) {
  Tensor logits = random_tensor(context_, {9, 7}, rng_, DType::kFloat64, -3, 3);
  logits.set_requires_grad(true);
  const Tensor targets = random_ids(context_, {9}, rng_, 7);
  const CrossEntropyOptions options{.reduction = Reduction::kNone, .label_smoothing = 0.1};
  const Reference r = reference_cross_entropy(logits, targets.to_vector(), options);
  const Tensor y = cross_entropy(logits, targets, options);
  EXPECT_EQ(y.dtype(), DType::kFloat64);
  const Tensor dy = full(context_, {9}, 1.0, DType::kFloat64);
  autograd::backward(std::span(&y, 1), std::span(&dy, 1));
  test::expect_near(y, r.losses, 1e-13);
  test::expect_near(logits.grad(), r.grads, 1e-13);
}

TEST_F(LossTest, CrossEntropyOverClassDimOne) {
  Tensor logits = random_tensor(context_, {3, 5, 2, 4}, rng_, DType::kFloat32, -2, 2);
  const Tensor targets = random_ids(context_, {3, 2, 4}, rng_, 5);
  logits.set_requires_grad(true);
  const Tensor y = cross_entropy(logits, targets, {.reduction = Reduction::kNone});
  EXPECT_EQ(y.shape(), targets.shape());
  const Tensor last = permute(logits.detach(), {0, 2, 3, 1});
  const Reference r = reference_cross_entropy(last, targets.to_vector(), {});
  test::expect_near(y, r.losses, 1e-5);
  const Tensor dy = full(context_, targets.shape(), 1.0, DType::kFloat32);
  autograd::backward(std::span(&y, 1), std::span(&dy, 1));
  test::expect_near(permute(logits.grad(), {0, 2, 3, 1}), r.grads, 1e-6);
}

TEST_F(LossTest, CrossEntropyOfOneRowAndOfNothing) {
  const Tensor logits = random_tensor(context_, {5}, rng_, DType::kFloat32);
  const Tensor target = full(context_, {}, 3, DType::kInt64);
  EXPECT_NEAR(cross_entropy(logits, target).item(),
              reference_cross_entropy(logits, {3.0}, {}).losses[0], 1e-6);
  const Tensor ignored = full(context_, {2}, -100, DType::kInt64);
  EXPECT_TRUE(std::isnan(cross_entropy(zeros(context_, {2, 5}, DType::kFloat32), ignored).item()));
}

TEST_F(LossTest, CrossEntropyErrors) {
  const Tensor logits = zeros(context_, {2, 5}, DType::kFloat32);
  auto with = [&](std::vector<std::int64_t> t) {
    return cross_entropy(logits, from_values(context_, {static_cast<std::int64_t>(t.size())}, t));
  };
  EXPECT_THROW(with({1, 5}), InvalidArgument);
  EXPECT_THROW(with({-1, 0}), InvalidArgument);
  EXPECT_THROW(with({1}), InvalidArgument);
  EXPECT_NO_THROW(with({-100, 4}));
  EXPECT_THROW(cross_entropy(logits, zeros(context_, {2}, DType::kFloat32)), InvalidArgument);
}

class LinearCrossEntropy : public LossTest, public ::testing::WithParamInterface<DType> {};

TEST_P(LinearCrossEntropy, EqualsItsParts) {
  const DType dtype = GetParam();
  const double tolerance = dtype == DType::kFloat32 ? 1e-5 : 0.03;
  for (const bool has_bias : {false, true}) {
    const Tensor hidden = random_tensor(context_, {3, 7, 16}, rng_, dtype);
    const Tensor weight = random_tensor(context_, {37, 16}, rng_, dtype);
    const Tensor bias = has_bias ? random_tensor(context_, {37}, rng_, dtype) : Tensor();
    std::vector<std::int64_t> ids;
    for (int i = 0; i < 21; ++i) ids.push_back(i % 5 == 0 ? -100 : (i * 7) % 37);
    const Tensor targets = from_values(context_, {3, 7}, ids);
    struct Leaves {
      Tensor hidden, weight, bias;
    };
    auto leaves = [&](DType as) {
      Leaves l{cast(hidden, as).detach(), cast(weight, as).detach(),
               has_bias ? cast(bias, as).detach() : Tensor()};
      for (Tensor* t : {&l.hidden, &l.weight, &l.bias})
        if (*t) *t = Tensor(std::make_shared<TensorImpl>(*t->impl())).set_requires_grad(true);
      return l;
    };
    const Leaves fused = leaves(dtype), parts = leaves(DType::kFloat32);
    const float scale = 0.25f;
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      const Tensor loss = linear_cross_entropy(fused.hidden, fused.weight, fused.bias, targets,
                                               {.grad_scale = scale});
      EXPECT_EQ(loss.shape(), Shape{1});
      const Tensor logits = reshape(linear(parts.hidden, parts.weight, parts.bias), {21, 37});
      const Tensor plain =
          mul(cross_entropy(logits, reshape(targets, {21}), {.reduction = Reduction::kSum}), scale);
      EXPECT_NEAR(loss.item(), plain.item(), tolerance * std::abs(plain.item()));
      autograd::backward(loss);
      autograd::backward(plain);
    }
    test::expect_near(fused.hidden.grad(), parts.hidden.grad().to_vector(), tolerance, tolerance);
    test::expect_near(fused.weight.grad(), parts.weight.grad().to_vector(), tolerance, tolerance);
    if (has_bias)
      test::expect_near(fused.bias.grad(), parts.bias.grad().to_vector(), tolerance, tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, LinearCrossEntropy,
                         ::testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& test) { return dtype_name(test.param); });

TEST_F(LossTest, StridedLogitsOfOneRow) {
  const Tensor logits =
      from_values(context_, {4}, std::vector<double>{0.5, 9.0, 1.1, 9.0}, DType::kFloat64);
  const Tensor target = full(context_, {}, 1, DType::kInt64);
  EXPECT_NEAR(cross_entropy(slice(logits, 0, 0, 4, 2), target).item(),
              std::log(1.0 + std::exp(0.5 - 1.1)), 1e-6);
}

TEST_F(LossTest, LinearCrossEntropyRules) {
  Tensor hidden = random_tensor(context_, {4, 6}, rng_, DType::kFloat32);
  Tensor weight = random_tensor(context_, {9, 6}, rng_, DType::kFloat32);
  weight.set_requires_grad(true);
  const Tensor targets = random_ids(context_, {4}, rng_, 9);
  // A weight that is no leaf gets its gradient in backward.
  autograd::backward(linear_cross_entropy(hidden, mul(weight, 1.0), {}, targets, {}));
  const std::vector<double> derived = weight.grad().to_vector();
  weight.leaf_grad()->clear();
  const Tensor loss = linear_cross_entropy(hidden, weight, {}, targets, {});
  EXPECT_EQ(weight.grad().to_vector(), derived);
  const Tensor two = full(context_, {1}, 2.0, DType::kFloat32);
  EXPECT_THROW(autograd::backward(std::span(&loss, 1), std::span(&two, 1)), FailedPrecondition);
  // Without recording nothing is written.
  weight.leaf_grad()->clear();
  const NoGradGuard guard(context_);
  EXPECT_FALSE(linear_cross_entropy(hidden, weight, {}, targets, {}).requires_grad());
  EXPECT_FALSE(weight.leaf_grad()->has_value());
  EXPECT_THROW(linear_cross_entropy(hidden, weight, {}, random_ids(context_, {3}, rng_, 9), {}),
               InvalidArgument);
  EXPECT_THROW(linear_cross_entropy(hidden, weight, {}, full(context_, {4}, 9, DType::kInt64), {}),
               InvalidArgument);
}

TEST_F(LossTest, LinearCrossEntropyWithRowWeights) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
    const DType sums = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
    const auto leaf = [&](const Shape& shape) {
      return random_tensor(context_, shape, rng_, dtype).set_requires_grad(true);
    };
    Tensor hidden = leaf({3, 7, 16}), weight = leaf({37, 16}), bias = leaf({37});
    std::vector<std::int64_t> ids;
    for (int i = 0; i < 21; ++i) ids.push_back(i % 5 == 0 ? -100 : (i * 7) % 37);
    const Tensor targets = from_values(context_, {3, 7}, ids);
    const Tensor ones = full(context_, {3, 7}, 1.0, sums);
    const auto grads = [&] {
      std::vector<std::vector<double>> all;
      for (const Tensor& x : {hidden, weight, bias}) {
        all.push_back(x.grad().to_vector());
        x.leaf_grad()->clear();
      }
      return all;
    };
    const LinearCrossEntropyOptions options{.grad_scale = 0.25};
    const Tensor plain = linear_cross_entropy(hidden, weight, bias, targets, options);
    autograd::backward(plain);
    const auto plain_grads = grads();
    const WeightedLoss same =
        weighted_linear_cross_entropy(hidden, weight, bias, targets, ones, options);
    autograd::backward(same.sum);
    EXPECT_EQ(same.sum.to_vector(), plain.to_vector());
    EXPECT_EQ(grads(), plain_grads);

    // Any weights: the sum and the gradients of the losses that were told.
    const Tensor weights = random_tensor(context_, {3, 7}, rng_, sums, -2, 2);
    const WeightedLoss loss =
        weighted_linear_cross_entropy(hidden, weight, bias, targets, weights, options);
    EXPECT_FALSE(loss.losses.requires_grad());
    autograd::backward(loss.sum);
    const auto weighted_grads = grads();
    const Tensor losses = linear_token_losses(hidden, weight, bias, targets);
    EXPECT_EQ(losses.to_vector(), loss.losses.to_vector());
    EXPECT_EQ(losses.to_vector(), same.losses.to_vector());
    const Tensor back = mul(weights, 0.25);
    autograd::backward(std::span(&losses, 1), std::span(&back, 1));
    const auto token_grads = grads();
    const double tolerance = dtype == DType::kBFloat16 ? 0.02 : 1e-6;
    double sum = 0.0;
    for (int i = 0; i < 21; ++i)
      sum += 0.25 * weights.to_vector()[static_cast<std::size_t>(i)] *
             losses.to_vector()[static_cast<std::size_t>(i)];
    EXPECT_NEAR(loss.sum.item(), sum, 1e-5);
    for (std::size_t p = 0; p < 3; ++p)
      for (std::size_t i = 0; i < token_grads[p].size(); ++i)
        EXPECT_NEAR(token_grads[p][i], weighted_grads[p][i], tolerance);
  }
}

TEST_F(LossTest, LinearTokenLossesOfSeveralTargets) {
  Tensor hidden, weight, bias;
  for (const std::int64_t count : {1, 3}) {
    hidden = random_tensor(context_, {2, 5, 6}, rng_);
    weight = random_tensor(context_, {9, 6}, rng_);
    bias = random_tensor(context_, {9}, rng_);
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < 10 * count; ++i)
      ids.push_back(i / count == 4 ? -100 : (i * i + i / count) % 9);
    const Tensor targets = from_values(context_, {2, 5, count}, ids);
    const auto losses = [&](const std::vector<Tensor>& in) {
      return linear_token_losses(in[0], in[1], in[2], targets);
    };
    const Tensor given = losses({hidden, weight, bias});
    ASSERT_EQ(given.shape(), targets.shape());
    // Each target by itself gives the same bits.
    for (std::int64_t k = 0; k < count; ++k)
      EXPECT_EQ(linear_token_losses(hidden, weight, bias, squeeze(slice(targets, 2, k, k + 1), 2))
                    .to_vector(),
                squeeze(slice(given, 2, k, k + 1), 2).to_vector());
    test::expect_gradients(losses, {hidden, weight, bias});
  }
  EXPECT_THROW(linear_token_losses(hidden, weight, {}, random_ids(context_, {2, 4}, rng_, 9)),
               InvalidArgument);
}

TEST_F(LossTest, EmbeddingGradients) {
  const Tensor ids = from_values(context_, {2, 3}, std::vector<std::int64_t>{4, 0, 4, 2, 1, 1});
  for (const std::int64_t padding : {-1, 1}) {
    const Tensor dy_free = random_tensor(context_, {5, 3}, rng_);
    auto lookup = [&](const std::vector<Tensor>& in) { return embedding(in[0], ids, padding); };
    if (padding < 0) test::expect_gradients(lookup, {dy_free});
    auto derived = [&](const std::vector<Tensor>& in) {
      return embedding(transpose(in[0], 0, 1), ids);
    };
    test::expect_gradients(derived, {random_tensor(context_, {3, 5}, rng_)});
  }
  Tensor table = random_tensor(context_, {5, 2}, rng_, DType::kFloat32);
  table.set_requires_grad(true);
  const Tensor dy = full(context_, {2, 3, 2}, 1.0, DType::kFloat32);
  for (int i = 0; i < 2; ++i) {
    const Tensor y = embedding(table, ids, 1);
    autograd::backward(std::span(&y, 1), std::span(&dy, 1));
  }
  test::expect_near(table.grad(), {2, 2, 0, 0, 2, 2, 0, 0, 4, 4}, 0.0);
}

TEST_F(LossTest, EmbeddingErrors) {
  const Tensor table = zeros(context_, {5, 2}, DType::kFloat32);
  try {
    embedding(table, from_values(context_, {2}, std::vector<std::int64_t>{1, 5}));
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find("5"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("embedding"), std::string::npos);
  }
  EXPECT_THROW(embedding(table, full(context_, {1}, -1, DType::kInt64)), InvalidArgument);
  EXPECT_THROW(embedding(table, zeros(context_, {2}, DType::kFloat32)), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::ops
