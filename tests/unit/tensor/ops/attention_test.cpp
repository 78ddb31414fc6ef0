// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "daemon/tensor/ops/softmax.h"
#include "kernels/base/error.h"
#include "tests/support/grad_check.h"
#include "tests/support/test_context.h"

namespace meshloom::ops {
namespace {

using test::random_tensor;

struct AttentionCase {
  const char* name;
  std::int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
  bool causal = false;
  bool bottom_right = false;
  std::int64_t left = -1, right = -1;
  bool alibi = false;
  Shape bias = {};  ///< no dims: none
  bool documents = false;
  float scale = 0.0f;
};

void PrintTo(const AttentionCase& c, std::ostream* os) { *os << c.name; }

class Attention : public ::testing::TestWithParam<AttentionCase> {
 protected:
  Tensor random(const Shape& shape) {
    return cast(random_tensor(context_, shape, rng_, DType::kFloat32), DType::kFloat64);
  }
  Tensor documents(const AttentionCase& c) {
    std::vector<std::int64_t> ids;
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t s = 0; s < c.queries; ++s) ids.push_back((s * 3 + b) / c.queries);
    return from_values(context_, {c.batch, c.queries}, ids);
  }

  testing::TestContext context_;
  std::mt19937_64 rng_{47};
};

/// 0 where query i sees key j, a large negative number elsewhere, plus ALiBi: [B,H,Sq,Skv].
Tensor mask_and_alibi(ExecutionContext& context, const AttentionCase& c, const Tensor& documents) {
  const std::int64_t shift = c.bottom_right ? c.keys - c.queries : 0;
  const std::vector<float> slopes = alibi_slopes(static_cast<int>(c.heads));
  const std::vector<double> docs = documents ? documents.to_vector() : std::vector<double>();
  std::vector<double> values;
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h)
      for (std::int64_t i = 0; i < c.queries; ++i)
        for (std::int64_t j = 0; j < c.keys; ++j) {
          const std::int64_t at = i + shift;
          bool seen = (!c.causal || j <= at) && (c.left < 0 || j >= at - c.left) &&
                      (c.right < 0 || j <= at + c.right);
          if (documents)
            seen = seen && docs[static_cast<std::size_t>(b * c.queries + i)] ==
                               docs[static_cast<std::size_t>(b * c.queries + j)];
          const double distance = static_cast<double>(std::abs(at - j));
          const double alibi = c.alibi ? -slopes[static_cast<std::size_t>(h)] * distance : 0.0;
          values.push_back(seen ? alibi : -1e9);
        }
  return from_values(context, {c.batch, c.heads, c.queries, c.keys}, values, DType::kFloat64);
}

/// By the formula in float64; rows that see nothing give 0.
Tensor plain_attention(const AttentionCase& c, const Tensor& q, const Tensor& k, const Tensor& v,
                       const Tensor& bias, const Tensor& mask) {
  auto repeat = [&](const Tensor& t) {
    const std::int64_t group = c.heads / c.kv_heads;
    const Tensor wide = expand(unsqueeze(t, 2), {-1, -1, group, -1, -1});
    return reshape(wide, {c.batch, c.heads, c.keys, t.size(-1)});
  };
  const double scale = c.scale != 0.0f ? c.scale : 1.0 / std::sqrt(static_cast<double>(c.dim));
  Tensor scores = add(mul(matmul(q, transpose(repeat(k), -1, -2)), scale), mask);
  if (bias) scores = add(scores, bias);
  const Tensor visible = cast(add(mul(mask.detach(), 1e-9), 1.0), DType::kFloat64);
  const Tensor any = amax(visible, {-1}, true);
  // `any` is about 1 where a key is seen and about 0 where none is.
  const Tensor seen_rows = sub(1.0, relu(sub(0.5, any)));
  const Tensor keep = relu(mul(sub(seen_rows, 0.75), 4.0));
  return mul(matmul(softmax(scores, -1), repeat(v)), keep);
}

TEST_P(Attention, MatchesTheFormulaForwardAndBackward) {
  const AttentionCase& c = GetParam();
  std::vector<Tensor> plain{random({c.batch, c.heads, c.queries, c.dim}),
                            random({c.batch, c.kv_heads, c.keys, c.dim}),
                            random({c.batch, c.kv_heads, c.keys, c.value_dim})};
  if (!c.bias.empty()) plain.push_back(random(c.bias));
  std::vector<Tensor> fused;
  for (Tensor& t : plain) {
    fused.push_back(cast(t, DType::kFloat32).set_requires_grad(true));
    t.set_requires_grad(true);
  }
  SdpaOptions options{.is_causal = c.causal,
                      .causal_bottom_right = c.bottom_right,
                      .scale = c.scale,
                      .window_left = c.left,
                      .window_right = c.right,
                      .alibi = c.alibi,
                      .enable_gqa = c.heads != c.kv_heads};
  if (!c.bias.empty()) options.bias = fused[3];
  if (c.documents) options.document_ids = documents(c);
  const SdpaResult result = scaled_dot_product_attention(fused[0], fused[1], fused[2], options);
  const Tensor mask = mask_and_alibi(context_, c, options.document_ids);
  const Tensor expected =
      plain_attention(c, plain[0], plain[1], plain[2], c.bias.empty() ? Tensor() : plain[3], mask);
  test::expect_near(result.o, expected.to_vector(), 1e-5);
  EXPECT_FALSE(result.lse.requires_grad());

  const Tensor dy = random(expected.shape());
  const Tensor dy32 = cast(dy, DType::kFloat32);
  autograd::backward(std::span(&expected, 1), std::span(&dy, 1));
  autograd::backward(std::span(&result.o, 1), std::span(&dy32, 1));
  for (std::size_t i = 0; i < plain.size(); ++i)
    test::expect_near(fused[i].grad(), plain[i].grad().to_vector(), 2e-5, 2e-5);
}

INSTANTIATE_TEST_SUITE_P(All, Attention,
                         ::testing::Values(AttentionCase{.name = "full",
                                                         .batch = 2,
                                                         .heads = 3,
                                                         .kv_heads = 3,
                                                         .queries = 17,
                                                         .keys = 17,
                                                         .dim = 8,
                                                         .value_dim = 8},
                                           AttentionCase{.name = "causal_gqa",
                                                         .batch = 2,
                                                         .heads = 6,
                                                         .kv_heads = 2,
                                                         .queries = 37,
                                                         .keys = 37,
                                                         .dim = 16,
                                                         .value_dim = 16,
                                                         .causal = true},
                                           AttentionCase{.name = "cross_wide_values",
                                                         .batch = 1,
                                                         .heads = 2,
                                                         .kv_heads = 1,
                                                         .queries = 5,
                                                         .keys = 23,
                                                         .dim = 8,
                                                         .value_dim = 24},
                                           AttentionCase{.name = "bottom_right",
                                                         .batch = 1,
                                                         .heads = 2,
                                                         .kv_heads = 2,
                                                         .queries = 5,
                                                         .keys = 12,
                                                         .dim = 8,
                                                         .value_dim = 8,
                                                         .causal = true,
                                                         .bottom_right = true},
                                           AttentionCase{.name = "bottom_right_negative",
                                                         .batch = 1,
                                                         .heads = 1,
                                                         .kv_heads = 1,
                                                         .queries = 12,
                                                         .keys = 5,
                                                         .dim = 8,
                                                         .value_dim = 8,
                                                         .causal = true,
                                                         .bottom_right = true},
                                           AttentionCase{.name = "window",
                                                         .batch = 1,
                                                         .heads = 2,
                                                         .kv_heads = 2,
                                                         .queries = 30,
                                                         .keys = 30,
                                                         .dim = 8,
                                                         .value_dim = 8,
                                                         .left = 4,
                                                         .right = 2},
                                           AttentionCase{.name = "alibi_odd_heads",
                                                         .batch = 1,
                                                         .heads = 5,
                                                         .kv_heads = 5,
                                                         .queries = 11,
                                                         .keys = 11,
                                                         .dim = 8,
                                                         .value_dim = 8,
                                                         .causal = true,
                                                         .alibi = true},
                                           AttentionCase{.name = "bias_per_head",
                                                         .batch = 2,
                                                         .heads = 3,
                                                         .kv_heads = 3,
                                                         .queries = 7,
                                                         .keys = 9,
                                                         .dim = 8,
                                                         .value_dim = 8,
                                                         .bias = {3, 1, 9}},
                                           AttentionCase{.name = "bias_full_scaled",
                                                         .batch = 2,
                                                         .heads = 3,
                                                         .kv_heads = 3,
                                                         .queries = 7,
                                                         .keys = 9,
                                                         .dim = 8,
                                                         .value_dim = 8,
                                                         .bias = {2, 3, 7, 9},
                                                         .scale = 0.3f},
                                           AttentionCase{.name = "documents",
                                                         .batch = 2,
                                                         .heads = 2,
                                                         .kv_heads = 2,
                                                         .queries = 19,
                                                         .keys = 19,
                                                         .dim = 8,
                                                         .value_dim = 8,
                                                         .causal = true,
                                                         .documents = true}),
                         [](const auto& test) { return test.param.name; });

class AttentionOps : public ::testing::Test {
 protected:
  Tensor random(const Shape& shape, DType dtype = DType::kFloat32) {
    return random_tensor(context_, shape, rng_, dtype);
  }

  testing::TestContext context_;
  std::mt19937_64 rng_{53};
};

TEST_F(AttentionOps, PackedProjectionGivesThePackedGradient) {
  const Tensor qkv = random({2, 9, 3 * 12});
  auto run = [&](bool packed) {
    Tensor x = Tensor(std::make_shared<TensorImpl>(*qkv.impl())).set_requires_grad(true);
    const std::vector<Tensor> parts = split(mul(x, 1.0), 12, 2);
    std::vector<Tensor> heads;
    for (const Tensor& p : parts) {
      const Tensor h = transpose(reshape(p, {2, 9, 3, 4}), 1, 2);
      heads.push_back(packed ? h : mul(h, 1.0));
    }
    const Tensor o = scaled_dot_product_attention(heads[0], heads[1], heads[2]).o;
    const Tensor dy = full(context_, o.shape(), 0.5, DType::kFloat32);
    autograd::backward(std::span(&o, 1), std::span(&dy, 1));
    return x.grad().to_vector();
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_F(AttentionOps, OutputJoinsItsHeadsWithoutCopy) {
  const Tensor q = random({2, 3, 9, 4});
  const Tensor o = scaled_dot_product_attention(q, q, q).o;
  EXPECT_EQ(reshape(transpose(o, 1, 2), {2, 9, 12}).storage(), o.storage());
}

TEST_F(AttentionOps, DropoutRowsOfABatchShardMatchTheWhole) {
  const Tensor q = random({4, 2, 9, 8}), k = random({4, 2, 9, 8}), v = random({4, 2, 9, 8});
  SdpaOptions options{.dropout_p = 0.4f, .dropout_random = {1, 2}};
  const Tensor whole = scaled_dot_product_attention(q, k, v, options).o;
  options.dropout_first_head = 2 * 2;
  auto rows = [](const Tensor& t) { return slice(t, 0, 2, 4); };
  const Tensor part = scaled_dot_product_attention(rows(q), rows(k), rows(v), options).o;
  EXPECT_EQ(part.to_vector(), rows(whole).to_vector());
  options.dropout_p = 0.0f;
  EXPECT_NE(scaled_dot_product_attention(rows(q), rows(k), rows(v), options).o.to_vector(),
            part.to_vector());
}

/// With values of 1 and keys of 0, o is how many keys of a query are kept, over the number seen.
TEST_F(AttentionOps, DropoutDrawsByTheQueryThatBottomRightShifts) {
  const std::int64_t heads = 2, queries = 5, keys = 9;
  const Tensor q = random({1, heads, queries, 8});
  const Tensor k = zeros(context_, {1, heads, keys, 8}, q.dtype());
  const Tensor v = full(context_, {1, heads, keys, 8}, 1.0, q.dtype());
  const SdpaOptions options{
      .is_causal = true, .causal_bottom_right = true, .dropout_p = 0.5f, .dropout_random = {3, 4}};
  const std::vector<double> o = scaled_dot_product_attention(q, k, v, options).o.to_vector();
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < queries; ++i) {
      const std::int64_t seen = i + keys - queries + 1;
      double kept = 0.0;
      for (std::int64_t j = 0; j < seen; ++j) {
        const auto n = static_cast<std::uint64_t>((h * queries + i) * keys + j);
        kept += philox_uniform(options.dropout_random.at(n)) < 0.5f ? 0.0 : 2.0;
      }
      EXPECT_NEAR(o[static_cast<std::size_t>((h * queries + i) * 8)],
                  kept / static_cast<double>(seen), 1e-5)
          << "head " << h << " query " << i;
    }
}

TEST_F(AttentionOps, DropoutGradientMatchesDifferencesInTheValues) {
  // o is linear in v, so one difference with a large step is exact up to rounding.
  const Tensor q = random({1, 1, 6, 8}), k = random({1, 1, 6, 8});
  Tensor v = random({1, 1, 6, 8});
  v.set_requires_grad(true);
  const SdpaOptions options{.dropout_p = 0.5f, .dropout_random = {1, 2}};
  const Tensor o = scaled_dot_product_attention(q, k, v, options).o;
  const Tensor dy = random(o.shape());
  autograd::backward(std::span(&o, 1), std::span(&dy, 1));
  const NoGradGuard guard(context_);
  const Tensor direction = random(v.shape());
  const Tensor moved = scaled_dot_product_attention(q, k, add(v, direction), options).o;
  const double expected = sum(mul(sub(moved, o), dy)).item();
  EXPECT_NEAR(sum(mul(v.grad(), direction)).item(), expected, 1e-4);
}

TEST_F(AttentionOps, ErrorsNameWhatDoesNotFit) {
  auto text = [](auto call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "";
  };
  const Tensor q = random({2, 4, 5, 8});
  auto with = [&](const Tensor& k, const Tensor& v, const SdpaOptions& options = {}) {
    return text([&] { scaled_dot_product_attention(q, k, v, options); });
  };
  EXPECT_NE(with(random({1, 4, 5, 8}), random({1, 4, 5, 8})).find("batch"), std::string::npos);
  EXPECT_NE(with(random({2, 4, 5, 6}), random({2, 4, 5, 6})).find("dim"), std::string::npos);
  EXPECT_NE(with(random({2, 4, 6, 8}), random({2, 4, 5, 8})).find("length"), std::string::npos);
  EXPECT_NE(with(random({2, 2, 5, 8}), random({2, 2, 5, 8})).find("head"), std::string::npos);
  EXPECT_NE(with(random({2, 3, 5, 8}), random({2, 3, 5, 8}), {.enable_gqa = true}).find("head"),
            std::string::npos);
  EXPECT_NE(with(q, q, {.bias = random({4, 6, 5})}).find("bias"), std::string::npos);
  const SdpaOptions documents{.document_ids = zeros(context_, {2, 4}, DType::kInt64)};
  EXPECT_NE(with(q, q, documents).find("document"), std::string::npos);
}

TEST_F(AttentionOps, AlibiSlopesAreThePapers) {
  const std::vector<float> eight = alibi_slopes(8);
  for (int i = 0; i < 8; ++i)
    EXPECT_FLOAT_EQ(eight[static_cast<std::size_t>(i)], std::pow(2.0f, -static_cast<float>(i + 1)));
  const std::vector<float> six = alibi_slopes(6);
  const float expected[] = {0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_FLOAT_EQ(six[i], expected[i]);
}

TEST_F(AttentionOps, RopeRotatesPairs) {
  const std::int64_t positions = 20, half = 3;
  std::vector<float> cosines, sines;
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * std::pow(0.3, static_cast<double>(i));
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  const Tensor cos = from_values(context_, {positions, half}, cosines);
  const Tensor sin = from_values(context_, {positions, half}, sines);
  Tensor x = random({2, 2, 5, 6});
  x.set_requires_grad(true);
  const std::vector<std::int64_t> at{3, 1, 4, 1, 5, 9, 2, 6, 5, 19};
  const Tensor y = rope(x, cos, sin, from_values(context_, {2, 5}, at));
  const std::vector<double> v = x.to_vector();
  std::vector<double> expected(v.size());
  for (std::size_t row = 0; row < 20; ++row) {
    const auto p = static_cast<std::size_t>(at[row / 10 * 5 + row % 5]);
    for (std::size_t i = 0; i < 3; ++i) {
      const double a = v[row * 6 + i], b = v[row * 6 + i + 3];
      expected[row * 6 + i] = a * cosines[p * 3 + i] - b * sines[p * 3 + i];
      expected[row * 6 + i + 3] = b * cosines[p * 3 + i] + a * sines[p * 3 + i];
    }
  }
  test::expect_near(y, expected, 1e-5);
  // A rotation's gradient is the rotation back: <y(d), dy> = <d, dx>.
  const Tensor dy = random(y.shape());
  autograd::backward(std::span(&y, 1), std::span(&dy, 1));
  EXPECT_NEAR(sum(mul(x.detach(), x.grad())).item(), sum(mul(y.detach(), dy)).item(), 1e-4);

  const Tensor shifted = rope(slice(x.detach(), 2, 0, 5), cos, sin, {}, 7);
  const std::vector<std::int64_t> same{7, 8, 9, 10, 11, 7, 8, 9, 10, 11};
  EXPECT_EQ(shifted.to_vector(),
            rope(x.detach(), cos, sin, from_values(context_, {2, 5}, same)).to_vector());
  EXPECT_THROW(rope(x, cos, sin, {}, 16), InvalidArgument);
  EXPECT_THROW(rope(x, cos, sin, full(context_, {2, 5}, 20, DType::kInt64)), InvalidArgument);
  EXPECT_THROW(rope(random({1, 1, 2, 8}), cos, sin), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::ops
