// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/shape.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "daemon/tensor/ops/elementwise.h"
#include "kernels/base/error.h"
#include "tests/support/grad_check.h"
#include "tests/support/test_context.h"

namespace meshloom::ops {
namespace {

using test::expect_gradients;
using test::random_tensor;

class ShapeTest : public ::testing::Test {
 protected:
  Tensor count_up(const Shape& shape) {
    std::vector<double> values(static_cast<std::size_t>(numel(shape)));
    std::iota(values.begin(), values.end(), 0.0);
    return from_values(context_, shape, values, DType::kFloat64);
  }
  Tensor random(const Shape& shape) { return random_tensor(context_, shape, rng_); }

  testing::TestContext context_;
  std::mt19937_64 rng_{31};
};

TEST_F(ShapeTest, GradientsOfViews) {
  auto check = [&](const Shape& shape, auto op) {
    expect_gradients([&](const std::vector<Tensor>& in) { return op(in[0]); }, {random(shape)});
  };
  check({2, 3, 4}, [](const Tensor& x) { return permute(x, {2, 0, -2}); });
  check({2, 3, 4}, [](const Tensor& x) { return transpose(x, -1, 0); });
  check({2, 3, 4}, [](const Tensor& x) { return reshape(x, {4, -1}); });
  check({2, 3, 4}, [](const Tensor& x) { return reshape(transpose(x, 0, 2), {3, 8}); });
  check({2, 3}, [](const Tensor& x) { return unsqueeze(x, -1); });
  check({2, 1, 3}, [](const Tensor& x) { return squeeze(x, 1); });
  check({7, 3}, [](const Tensor& x) { return slice(x, 0, 1, -1, 2); });
  check({2, 1, 3}, [](const Tensor& x) { return expand(x, {4, 2, 5, -1}); });
  check({2, 3}, [](const Tensor& x) { return contiguous(transpose(x, 0, 1)); });
}

TEST_F(ShapeTest, ViewsShareMemoryWhereStridesAllow) {
  const Tensor x = count_up({4, 6});
  EXPECT_EQ(reshape(x, {2, 2, 6}).storage(), x.storage());
  const Tensor t = transpose(x, 0, 1);
  EXPECT_NE(reshape(t, {24}).storage(), x.storage());
  EXPECT_EQ(reshape(t, {2, 3, 4}).storage(), x.storage());
  EXPECT_EQ(reshape(slice(x, 1, 0, 4), {2, 2, 2, 2}).storage(), x.storage());
  EXPECT_EQ(reshape(slice(x, 0, 1, 3), {12}).storage(), x.storage());
  EXPECT_NE(reshape(slice(x, 1, 0, 4), {16}).storage(), x.storage());
}

TEST_F(ShapeTest, ReshapeOfAnyViewReadsRowMajor) {
  std::mt19937_64 rng(5);
  const Shape targets[] = {{24}, {2, 12}, {12, 2}, {3, 8}, {2, 1, 3, 4}, {1, 24, 1}, {4, 3, 2}};
  const Tensor base = count_up({4, 1, 6, 2});
  const Tensor views[] = {slice(base, 3, 0, 1), slice(permute(base, {2, 3, 1, 0}), 0, 0, 3),
                          slice(transpose(base, 0, 2), 2, 0, 2), slice(base, 0, 0, 4, 2)};
  for (const Tensor& v : views)
    for (const Shape& target : targets)
      EXPECT_EQ(reshape(v, target).to_vector(), v.to_vector())
          << to_string(v.shape()) << " -> " << to_string(target);
}

TEST_F(ShapeTest, MergingHeadsOfATransposedTensorIsAView) {
  const Tensor bshd = count_up({2, 5, 3, 4});
  const Tensor heads = transpose(bshd, 1, 2);
  EXPECT_EQ(reshape(transpose(heads, 1, 2), {2, 5, 12}).storage(), bshd.storage());
}

TEST_F(ShapeTest, SliceFollowsPython) {
  const Tensor x = count_up({7});
  EXPECT_EQ(slice(x, 0, -3, 1000).to_vector(), (std::vector<double>{4, 5, 6}));
  EXPECT_EQ(slice(x, 0, 1, 6, 2).to_vector(), (std::vector<double>{1, 3, 5}));
  EXPECT_EQ(slice(x, 0, -1000, 2).to_vector(), (std::vector<double>{0, 1}));
  EXPECT_EQ(slice(x, 0, 5, 2).numel(), 0);
  EXPECT_EQ(slice(x, 0, 9, 12).numel(), 0);
  EXPECT_THROW(slice(x, 0, 0, 3, 0), InvalidArgument);
  EXPECT_THROW(slice(x, 1, 0, 3), InvalidArgument);
}

TEST_F(ShapeTest, SplitAndCat) {
  const Tensor x = random({5, 7});
  const std::vector<Tensor> pieces = split(x, 3, -1);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[2].shape(), (Shape{5, 1}));
  EXPECT_EQ(cat(pieces, 1).to_vector(), x.to_vector());
  for (const std::int64_t dim : {0, 1})
    for (std::size_t used = 0; used < 2; ++used) {
      expect_gradients(
          [&](const std::vector<Tensor>& in) { return mul(split(in[0], 3, dim)[used], 2.0); },
          {x.detach()});
      expect_gradients(
          [&](const std::vector<Tensor>& in) {
            std::vector<Tensor> parts = split(in[0], 2, dim);
            std::swap(parts[0], parts[1]);
            return cat(parts, dim);
          },
          {x.detach()});
    }
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return cat({in[0], in[1], in[0]}, 0);
      },
      {random({2, 3}), random({4, 3})});
}

TEST_F(ShapeTest, SplitReceivesAnAlreadyJoinedGradientWithoutCopy) {
  Tensor x = random({4, 6});
  x.set_requires_grad(true);
  const Tensor before = mul(x, 1.0);
  const std::vector<Tensor> pieces = split(before, 2, 1);
  const Tensor whole = random({4, 6});
  std::vector<Tensor> grads = split(whole, 2, 1);
  const std::size_t held = context_.allocator().stats().bytes_in_use;
  context_.allocator().reset_peak();
  autograd::backward(pieces, grads);
  EXPECT_EQ(x.grad().to_vector(), whole.to_vector());
  // mul's gradient and x's buffer, and nothing for a joined copy.
  const std::size_t tensor_bytes = 4 * 6 * 8;
  EXPECT_LE(context_.allocator().stats().peak_bytes_in_use - held, 2 * tensor_bytes);
  // In another order they must be copied.
  const std::vector<Tensor> again = split(mul(x, 1.0), 2, 1);
  std::swap(grads[0], grads[1]);
  autograd::backward(again, grads);
  const std::vector<double> w = whole.to_vector(), seen = x.grad().to_vector();
  EXPECT_NEAR(seen[0], w[0] + w[2], 1e-15);
}

TEST_F(ShapeTest, ErrorsNameTheOp) {
  const Tensor x = count_up({4, 6});
  auto text = [](auto call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(text([&] { reshape(x, {5, 2}); }).find("reshape"), std::string::npos);
  EXPECT_NE(text([&] { reshape(x, {-1, -1}); }).find("reshape"), std::string::npos);
  EXPECT_NE(text([&] { reshape(x, {0, -1}); }).find("reshape"), std::string::npos);
  EXPECT_NE(text([&] { permute(x, {0, 0}); }).find("dim"), std::string::npos);
  EXPECT_NE(text([&] { permute(x, {0}); }).find("permute"), std::string::npos);
  EXPECT_NE(text([&] { transpose(x, 0, -3); }).find("dim"), std::string::npos);
  EXPECT_NE(text([&] { expand(x, {3, 8}); }).find("expand"), std::string::npos);
  EXPECT_NE(text([&] { expand(x, {6}); }).find("expand"), std::string::npos);
  EXPECT_NE(text([&] { split(x, 2, 5); }).find("dim"), std::string::npos);
  EXPECT_NE(text([&] { split(x, 0, 0); }).find("split"), std::string::npos);
  EXPECT_NE(text([&] { cat({x, count_up({4, 5})}, 0); }).find("cat"), std::string::npos);
  EXPECT_NE(text([&] { cat({x, count_up({4})}, 0); }).find("cat"), std::string::npos);
  EXPECT_NE(text([&] { cat({}, 0); }).find("cat"), std::string::npos);
}

}  // namespace
}  // namespace meshloom::ops
