// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/sdpa_rule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace meshloom::kernels::cuda {
namespace {

// Addresses are only looked at, never followed. [B, H, S, D] as projections leave it.
TensorView heads(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) {
  return {reinterpret_cast<void*>(4096),
          DType::kBFloat16,
          {b, h, s, d},
          {s * h * d, d, h * d, 1},
          {DeviceKind::kCuda, 0}};
}

struct Call {
  AttentionInputs in;
  AttentionOutputs out;
  AttentionGrads grads;
  AttentionOptions options;
};

Call call_of(std::int64_t queries, std::int64_t keys, std::int64_t dims = 64,
             std::int64_t dims_v = 64) {
  Call call;
  call.in = {heads(2, 4, queries, dims), heads(2, 2, keys, dims), heads(2, 2, keys, dims_v)};
  const TensorView lse = make_view(reinterpret_cast<void*>(8192), DType::kFloat32, {2, 4, queries});
  call.out = {heads(2, 4, queries, dims_v), lse, false};
  call.grads.grad_o = call.grads.o = call.out.o;
  call.grads.lse = call.grads.delta = lse;
  call.grads.dq = call.in.q;
  call.grads.dk = call.in.k;
  call.grads.dv = call.in.v;
  return call;
}

std::optional<SdpaShape> forward(const Call& call) {
  return choose_sdpa(call.out, call.in, call.options).shape;
}
std::optional<SdpaShape> backward(const Call& call) {
  return choose_sdpa(call.grads, call.in, call.options).shape;
}

// What both passes say of the mask; nothing where the call is not cuDNN's.
std::optional<SdpaMask> mask_of(const Call& call) {
  const auto there = forward(call), back = backward(call);
  EXPECT_EQ(there.has_value(), back.has_value());
  if (!there || !back) return std::nullopt;
  EXPECT_EQ(there->mask, back->mask);
  return there->mask;
}

TEST(SdpaRule, TakesFullAttentionWithSharedHeads) {
  const auto shape = forward(call_of(128, 96));
  ASSERT_TRUE(shape);
  EXPECT_FALSE(shape->backward);
  EXPECT_EQ(shape->mask, SdpaMask::kFull);
  EXPECT_EQ(shape->heads, 4);
  EXPECT_EQ(shape->kv_heads, 2);
  EXPECT_EQ(shape->queries, 128);
  EXPECT_EQ(shape->keys, 96);
  EXPECT_FLOAT_EQ(shape->scale, 0.125f);
  EXPECT_EQ(shape->q, (SdpaLayout{128 * 256, 64, 256}));
  const auto back = backward(call_of(128, 96));
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->backward);
  EXPECT_NE(*back, *shape);
}

TEST(SdpaRule, CausalFromEitherCorner) {
  Call call = call_of(64, 64);
  call.options.is_causal = true;
  EXPECT_EQ(mask_of(call), SdpaMask::kCausalTopLeft);
  call = call_of(64, 96);
  call.options.is_causal = true;
  EXPECT_EQ(mask_of(call), SdpaMask::kCausalTopLeft);
  call.options.query_offset = 32;
  EXPECT_EQ(mask_of(call), SdpaMask::kCausalBottomRight);
  call.options.query_offset = 132;
  call.options.key_offset = 100;
  EXPECT_EQ(mask_of(call), SdpaMask::kCausalBottomRight) << "the distance counts";
  call.options.query_offset = 131;
  EXPECT_EQ(mask_of(call), std::nullopt) << "a diagonal from no corner";
}

TEST(SdpaRule, LimitsThatHideNothingAreNone) {
  Call call = call_of(64, 96);
  call.options.is_causal = true;
  call.options.query_offset = 95;
  call.options.window_left = 158;
  EXPECT_EQ(mask_of(call), SdpaMask::kFull);
  call.options.window_left = 157;
  EXPECT_EQ(mask_of(call), std::nullopt) << "the last query misses key 0";
}

TEST(SdpaRule, EveryQueryHasAKey) {
  Call call = call_of(64, 64);
  call.options.is_causal = true;
  call.options.query_offset = -1;
  EXPECT_EQ(mask_of(call), std::nullopt) << "the first query sees nothing";
  call = call_of(96, 64);
  call.options.is_causal = true;
  call.options.query_offset = -32;
  EXPECT_EQ(mask_of(call), std::nullopt);
}

TEST(SdpaRule, WindowsToTheLeftOfADiagonal) {
  Call call = call_of(64, 64);
  call.options.is_causal = true;
  call.options.window_left = 16;
  ASSERT_TRUE(forward(call));
  EXPECT_EQ(forward(call)->window_left, 16);
  call.options.window_left = 63;
  EXPECT_EQ(forward(call)->window_left, -1) << "it reaches every key";
  call.options.window_left = 16;
  call.options.is_causal = false;
  EXPECT_EQ(mask_of(call), std::nullopt) << "open to the right";
  call.options.window_right = 0;
  EXPECT_EQ(mask_of(call), SdpaMask::kCausalTopLeft);
  call.options.window_right = 3;
  EXPECT_EQ(mask_of(call), std::nullopt);
  call = call_of(96, 64);
  call.options.is_causal = true;
  call.options.window_left = 80;
  EXPECT_EQ(mask_of(call), std::nullopt) << "more queries than keys";
}

TEST(SdpaRule, LeavesOptionsToProducts) {
  const TensorView ids = make_view(reinterpret_cast<void*>(64), DType::kInt64, {64});
  const auto taken = [](auto change) {
    Call call = call_of(64, 64);
    change(call.options);
    return mask_of(call).has_value();
  };
  EXPECT_TRUE(taken([](AttentionOptions&) {}));
  EXPECT_FALSE(taken([&](AttentionOptions& o) { o.query_positions = ids; }));
  EXPECT_FALSE(taken([&](AttentionOptions& o) { o.key_positions = ids; }));
  EXPECT_FALSE(taken([&](AttentionOptions& o) { o.query_documents = o.key_documents = ids; }));
  EXPECT_FALSE(taken([&](AttentionOptions& o) { o.bias = ids; }));
  EXPECT_FALSE(taken([&](AttentionOptions& o) { o.alibi_slopes = ids; }));
  EXPECT_FALSE(taken([](AttentionOptions& o) { o.dropout_p = 0.1f; }));
}

TEST(SdpaRule, HeadDimsInStepsOfEight) {
  EXPECT_TRUE(forward(call_of(64, 64, 128, 128)));
  EXPECT_TRUE(forward(call_of(64, 64, 72, 40)));
  EXPECT_FALSE(forward(call_of(64, 64, 136, 64)));
  EXPECT_FALSE(forward(call_of(64, 64, 64, 136)));
  EXPECT_FALSE(forward(call_of(64, 64, 60, 64)));
  EXPECT_FALSE(forward(call_of(64, 64, 64, 4)));
}

TEST(SdpaRule, OneQueryIsNoPlan) {
  EXPECT_FALSE(forward(call_of(1, 64)));
  EXPECT_TRUE(forward(call_of(2, 64)));
}

TEST(SdpaRule, MemoryAsCudnnReadsIt) {
  const auto taken = [](auto change) {
    Call call = call_of(64, 64);
    change(call);
    return forward(call).has_value();
  };
  EXPECT_FALSE(taken([](Call& c) { c.in.q.dtype = DType::kFloat32; }));
  EXPECT_FALSE(taken([](Call& c) { c.in.q.dtype = DType::kFloat16; }));
  EXPECT_FALSE(taken([](Call& c) { c.out.o.dtype = DType::kFloat32; }));
  EXPECT_FALSE(taken([](Call& c) { c.out.carry = true; }));
  EXPECT_FALSE(taken([](Call& c) { c.in.k.data = reinterpret_cast<void*>(4096 + 8); }));
  EXPECT_FALSE(taken([](Call& c) { c.in.v.strides = {64 * 64, 32 * 64, 1, 64}; }));
  EXPECT_FALSE(taken([](Call& c) { c.in.k.strides[0] = 0; }));
  EXPECT_FALSE(taken([](Call& c) { c.in.q.strides[2] += 4; }));
  EXPECT_TRUE(taken([](Call& c) { c.in.q.strides[2] += 8; }));
  EXPECT_FALSE(taken([](Call& c) { c.out.lse.strides[1] += 1; }));
}

TEST(SdpaRule, GradientsOverwriteInTheInputsDtype) {
  const auto taken = [](auto change) {
    Call call = call_of(64, 64);
    change(call.grads);
    return backward(call).has_value();
  };
  EXPECT_TRUE(taken([](AttentionGrads&) {}));
  EXPECT_FALSE(taken([](AttentionGrads& g) { g.accumulate = true; }));
  EXPECT_FALSE(taken([](AttentionGrads& g) { g.o = {}; }));
  EXPECT_FALSE(taken([](AttentionGrads& g) { g.o.dtype = DType::kFloat32; }));
  EXPECT_FALSE(taken([](AttentionGrads& g) { g.dk.dtype = DType::kFloat32; }));
  EXPECT_FALSE(taken([](AttentionGrads& g) { g.grad_bias = g.lse; }));
}

TEST(SdpaRule, PlansOfDifferentCallsDiffer) {
  const auto plain = forward(call_of(64, 64));
  EXPECT_EQ(*plain, *forward(call_of(64, 64)));
  EXPECT_NE(*plain, *forward(call_of(64, 72)));
  Call call = call_of(64, 64);
  call.options.scale = 0.5;
  EXPECT_NE(*plain, *forward(call));
  call = call_of(64, 64);
  call.options.is_causal = true;
  EXPECT_NE(*plain, *forward(call));
  call = call_of(64, 64);
  call.in.q.strides[2] += 8;
  EXPECT_NE(*plain, *forward(call));
  // Strides of dims of size 1 make no difference.
  const auto one_row = [](std::int64_t stride) {
    Call one = call_of(64, 64);
    for (TensorView* view : {&one.in.q, &one.in.k, &one.in.v, &one.out.o}) view->shape[0] = 1;
    one.out.lse.shape[0] = 1;
    one.in.q.strides[0] = stride;
    return forward(one);
  };
  EXPECT_EQ(*one_row(8), *one_row(4096));
}

std::string why_not(const Call& call) {
  const char* why = choose_sdpa(call.out, call.in, call.options).why_not;
  return why == nullptr ? "" : why;
}

TEST(SdpaRule, SaysWhyCudnnIsNotAsked) {
  EXPECT_EQ(why_not(call_of(64, 64)), "");
  Call call = call_of(64, 64);
  call.options.dropout_p = 0.1f;
  EXPECT_EQ(why_not(call), "dropout");
  call = call_of(64, 64);
  call.out.carry = true;
  EXPECT_EQ(why_not(call), "carried on");
  call = call_of(64, 64);
  call.options.window_right = 3;
  EXPECT_EQ(why_not(call), "a mask of another form");
  EXPECT_EQ(why_not(call_of(1, 64)), "one query");
  EXPECT_EQ(why_not(call_of(64, 64, 136)), "head dims that are no multiple of 8 up to 128");
  call = call_of(64, 64);
  call.in.q.dtype = DType::kFloat32;
  EXPECT_EQ(why_not(call), "not bfloat16");
  call = call_of(64, 64);
  call.grads.accumulate = true;
  EXPECT_STREQ(choose_sdpa(call.grads, call.in, call.options).why_not, "added to gradients");
}

}  // namespace
}  // namespace meshloom::kernels::cuda
