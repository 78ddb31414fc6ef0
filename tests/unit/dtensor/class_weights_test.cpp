// SPDX-License-Identifier: Apache-2.0
// Cross entropy with class weights where rows or classes are sharded, against the formula in
// double.
#include <gtest/gtest.h>

#include <cmath>

#include "daemon/dtensor/api/distribute_tensor.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/loss.h"
#include "kernels/base/error.h"
#include "tests/support/test_context.h"
#include "tests/unit/dtensor/engine_rank.h"

namespace meshloom::dtensor {
namespace {

using test::EngineRank;
using test::on_engine_mesh;
using test::placements;

constexpr std::int64_t kRows = 7, kClasses = 5, kIgnored = -100;

double logit(std::int64_t i) { return std::sin(1.3 * static_cast<double>(i)) * 2.0; }
std::int64_t target(std::int64_t row) { return row == 3 ? kIgnored : (row * 3) % kClasses; }
double class_weight(std::int64_t c) { return 0.25 + static_cast<double>(c * c) / 4; }

struct Expected {
  std::vector<double> losses, grads;  ///< grads of the reduced loss, or of the sum of losses
};

Expected formula(ops::Reduction reduction) {
  Expected e;
  double counted = 0.0;
  for (std::int64_t r = 0; r < kRows; ++r) {
    const double weight = target(r) == kIgnored ? 0.0 : class_weight(target(r));
    counted += weight;
    double total = 0.0;
    for (std::int64_t c = 0; c < kClasses; ++c) total += std::exp(logit(r * kClasses + c));
    double loss = 0.0;
    for (std::int64_t c = 0; c < kClasses; ++c) {
      const double p = std::exp(logit(r * kClasses + c)) / total;
      if (c == target(r)) loss = -weight * std::log(p);
      e.grads.push_back(weight * (p - (c == target(r) ? 1.0 : 0.0)));
    }
    e.losses.push_back(loss);
  }
  if (reduction == ops::Reduction::kNone) return e;
  const double scale = reduction == ops::Reduction::kMean ? 1.0 / counted : 1.0;
  double sum = 0.0;
  for (const double loss : e.losses) sum += loss * scale;
  for (double& grad : e.grads) grad *= scale;
  e.losses = {sum};
  return e;
}

void expect_close(const std::vector<double>& seen, const std::vector<double>& expected) {
  ASSERT_EQ(seen.size(), expected.size());
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], expected[i], 2e-5) << i;
}

TEST(ClassWeights, RowsAndClassesSharded) {
  for (const std::vector<int>& sizes : {std::vector<int>{2}, {3}, {2, 2}}) {
    on_engine_mesh(sizes, [&](EngineRank& rank) {
      std::vector<float> logits, weights;
      std::vector<std::int64_t> targets;
      for (std::int64_t i = 0; i < kRows * kClasses; ++i)
        logits.push_back(static_cast<float>(logit(i)));
      for (std::int64_t r = 0; r < kRows; ++r) targets.push_back(target(r));
      for (std::int64_t c = 0; c < kClasses; ++c)
        weights.push_back(static_cast<float>(class_weight(c)));
      const std::vector<const char*> whole(sizes.size(), "R");
      ops::CrossEntropyOptions options;
      options.class_weights = from_values(rank.context, {kClasses}, weights);
      const Tensor y = distribute_tensor(from_values(rank.context, {kRows}, targets), rank.engine,
                                         placements(whole), std::nullopt);
      for (const char* first : {"R", "S(0)", "S(1)"})
        for (const char* second : {"S(1)", "S(0)"})
          for (const auto reduction :
               {ops::Reduction::kNone, ops::Reduction::kSum, ops::Reduction::kMean}) {
            std::vector<const char*> texts = {first};
            if (sizes.size() > 1) texts.push_back(second);
            SCOPED_TRACE(fmt::format("{} reduction {}", planner::to_string(placements(texts)),
                                     static_cast<int>(reduction)));
            Tensor plain = from_values(rank.context, {kRows, kClasses}, logits);
            plain.set_requires_grad(true);
            const Tensor x = distribute_tensor(plain, rank.engine, placements(texts), std::nullopt);
            options.reduction = reduction;
            const Tensor loss = full_tensor(ops::cross_entropy(x, y, options));
            const Expected expected = formula(reduction);
            expect_close(loss.to_vector(), expected.losses);
            const Tensor ones = meshloom::full(rank.context, loss.shape(), 1.0, loss.dtype());
            autograd::backward(std::span(&loss, 1), std::span(&ones, 1));
            expect_close(full_tensor(x.grad()).to_vector(), expected.grads);
          }
    });
  }
}

TEST(ClassWeights, RefusedWhereTheyDoNotFit) {
  testing::TestContext context;
  const Tensor logits = meshloom::zeros(context, {2, 3}, DType::kFloat32);
  const Tensor targets = meshloom::zeros(context, {2}, DType::kInt64);
  ops::CrossEntropyOptions options;
  options.class_weights = meshloom::zeros(context, {2}, DType::kFloat32);
  EXPECT_THROW(ops::cross_entropy(logits, targets, options), InvalidArgument);
  options.class_weights = meshloom::zeros(context, {3}, DType::kFloat32);
  options.label_smoothing = 0.1f;
  EXPECT_THROW(ops::cross_entropy(logits, targets, options), Unimplemented);
}

}  // namespace
}  // namespace meshloom::dtensor
