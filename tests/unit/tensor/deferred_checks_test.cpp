// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/deferred_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/embedding.h"
#include "daemon/tensor/ops/loss.h"
#include "kernels/base/error.h"
#include "tests/support/fenced_device/fenced_device.h"
#include "tests/support/test_context.h"

namespace meshloom {
namespace {

using ::testing::HasSubstr;

class DeferredChecksTest : public ::testing::Test {
 protected:
  Tensor ids(const std::vector<std::int64_t>& values) {
    return from_values(context_, {static_cast<std::int64_t>(values.size())},
                       std::span<const std::int64_t>(values));
  }
  /// What is left of a number that the checks may spoil.
  double spoiled(double value, DType dtype = DType::kFloat64) {
    const Tensor number = full(context_, {1}, value, dtype);
    checks_.spoil(number);
    return number.item();
  }
  void expect_raises(const std::string& text) {
    EXPECT_TRUE(std::isnan(spoiled(2.5)));
    try {
      checks_.raise();
      ADD_FAILURE() << "nothing was raised";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }

  testing::TestContext context_;
  DeferredChecks checks_;
  Tensor weight_ = full(context_, {20, 3}, 0.5, DType::kFloat32);
};

TEST_F(DeferredChecksTest, RightValuesSpoilNothing) {
  EXPECT_EQ(spoiled(2.5), 2.5) << "no check yet";
  {
    const DeferChecksGuard defer(context_, checks_);
    ops::embedding(weight_, ids({0, 19, 3}));
    ops::cross_entropy(weight_, ids(std::vector<std::int64_t>(20, 2)));
  }
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16})
    EXPECT_EQ(spoiled(2.5, dtype), 2.5);
  EXPECT_TRUE(std::isinf(spoiled(-INFINITY)));
  EXPECT_NO_THROW(checks_.raise());
}

TEST_F(DeferredChecksTest, TheErrorIsThatOfTheOpAndComesWhenItIsAskedFor) {
  const auto look_up = [&] { ops::embedding(weight_, ids({0, 1, 2, 99})); };
  const char* text = "embedding: id at element 3 is 99, outside [0, 20)";
  EXPECT_THROW(look_up(), InvalidArgument) << "outside of a scope at once";
  {
    const DeferChecksGuard defer(context_, checks_);
    look_up();
    EXPECT_EQ(context_.deferred_checks(), &checks_);
  }
  EXPECT_EQ(context_.deferred_checks(), nullptr);
  EXPECT_THROW(look_up(), InvalidArgument);
  expect_raises(text);
  EXPECT_TRUE(std::isnan(spoiled(1.0, DType::kFloat32)));
  EXPECT_TRUE(std::isnan(spoiled(1.0, DType::kBFloat16)));
}

TEST_F(DeferredChecksTest, TheFirstThatFailedSpeaks) {
  {
    const DeferChecksGuard defer(context_, checks_);
    ops::embedding(weight_, ids({5}));
    ops::embedding(weight_, ids({0, -3}));
    ops::embedding(weight_, ids({20}));
  }
  expect_raises("embedding: id at element 1 is -3, outside [0, 20)");
}

TEST_F(DeferredChecksTest, OneOfManyIsFound) {
  {
    const DeferChecksGuard defer(context_, checks_);
    for (int i = 0; i < 130; ++i) ops::embedding(weight_, ids({i % 20}));
    EXPECT_NO_THROW(checks_.ask());
    EXPECT_EQ(spoiled(2.5), 2.5);
    ops::embedding(weight_, ids({7, 20}));
    for (int i = 0; i < 70; ++i) ops::embedding(weight_, ids({i % 20}));
  }
  expect_raises("embedding: id at element 1 is 20, outside [0, 20)");
  EXPECT_THROW(checks_.ask(), InvalidArgument);
}

TEST_F(DeferredChecksTest, WhatIsRightKeepsItsBits) {
  const DeferChecksGuard defer(context_, checks_);
  ops::embedding(weight_, ids({3}));
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16})
    EXPECT_TRUE(std::signbit(spoiled(-0.0, dtype)));
}

TEST_F(DeferredChecksTest, AReadTellsValuesAndErrors) {
  EXPECT_EQ(checks_.read(ids({4, 5}), DType::kInt64).as<std::int64_t>()[1], 5) << "no check yet";
  const DeferChecksGuard defer(context_, checks_);
  const Tensor rows = ops::embedding(weight_, ids({0, 19}));
  const HostValues values = checks_.read(rows, DType::kFloat64);
  EXPECT_THAT(values.as<double>(), ::testing::ElementsAre(0.5, 0.5, 0.5, 0.5, 0.5, 0.5));
  EXPECT_TRUE(
      checks_.read(empty(context_, {0, 3}, DType::kFloat32), DType::kFloat32).as<float>().empty());
  // Where a model has diverged, its ids are right all the same.
  const Tensor none = full(context_, {1}, NAN, DType::kFloat32);
  EXPECT_TRUE(std::isnan(checks_.read(none, DType::kFloat32).as<float>()[0]));
  ops::embedding(weight_, ids({-1}));
  EXPECT_THROW(checks_.read(rows, DType::kFloat32), InvalidArgument);
  EXPECT_THROW(checks_.read(empty(context_, {0}, DType::kFloat32), DType::kFloat32),
               InvalidArgument);
}

TEST(DeferredChecks, OneWaitTellsAll) {
  testing::FencedBackend& device = testing::fenced_device(0);
  ExecutionContext::Options options;
  options.device = {DeviceKind::kCuda, 0};
  options.backend = &device;
  ExecutionContext context(options);
  const Tensor weight = full(context, {20, 3}, 0.5, DType::kFloat32);
  const Tensor ids = from_values(context, {2}, std::vector<std::int64_t>{1, 19});
  DeferredChecks checks;
  device.reset_counts();
  const auto waits = [&] { return device.counts().waits; };
  {
    const DeferChecksGuard defer(context, checks);
    Tensor rows;
    for (int i = 0; i < 100; ++i) rows = ops::embedding(weight, ids);
    EXPECT_EQ(waits(), 0);
    EXPECT_EQ(checks.read(rows, DType::kFloat32).as<float>()[5], 0.5f);
    EXPECT_EQ(waits(), 1);
    checks.ask();
    EXPECT_EQ(waits(), 2);
    ops::embedding(weight, from_values(context, {1}, std::vector<std::int64_t>{20}));
  }
  EXPECT_THROW(checks.ask(), InvalidArgument);
}

TEST_F(DeferredChecksTest, TargetsOfLosses) {
  {
    const DeferChecksGuard defer(context_, checks_);
    ops::cross_entropy(full(context_, {2, 4}, 0.0, DType::kFloat32), ids({3, 4}));
  }
  expect_raises("cross_entropy: target at element 1 is 4, outside [0, 4)");
}

TEST_F(DeferredChecksTest, PositionsOfRope) {
  const Tensor table = full(context_, {4, 1}, 1.0, DType::kFloat32);
  const Tensor positions = from_values(context_, {1, 2}, std::vector<std::int64_t>{1, 4});
  {
    const DeferChecksGuard defer(context_, checks_);
    ops::rope(full(context_, {1, 1, 2, 2}, 1.0, DType::kFloat32), table, table, positions);
  }
  expect_raises("rope: position at element 1 is 4, outside [0, 4)");
}

// Gradients were computed in the forward call and cannot be scaled any more.
TEST_F(DeferredChecksTest, TheGradientOfTheFusedLoss) {
  Tensor weight = full(context_, {4, 3}, 0.5, DType::kFloat32);
  weight.set_requires_grad(true);
  const Tensor hidden = full(context_, {2, 3}, 1.0, DType::kFloat32);
  const auto run = [&](double gradient) {
    const Tensor loss = ops::linear_cross_entropy(hidden, weight, {}, ids({0, 3}), {});
    const Tensor grad = full(context_, loss.shape(), gradient, DType::kFloat32);
    autograd::backward({&loss, 1}, {&grad, 1});
  };
  const DeferChecksGuard defer(context_, checks_);
  run(1.0);
  EXPECT_EQ(spoiled(2.5), 2.5);
  run(1.0 + 0x1p-23);
  run(0.5);
  expect_raises("backward got the gradient 1.0000001192092896, expected 1");
}

}  // namespace
}  // namespace meshloom
