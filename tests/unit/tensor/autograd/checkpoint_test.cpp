// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/autograd/checkpoint.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/norm.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_context.h"

namespace meshloom::autograd {
namespace {

enum class Mode { kPlain, kFull, kKeepAttention };

/// A small transformer block on (x, residual), with dropout by position.
struct Block {
  Tensor norm_weight, qkv, out, up, down;

  Block(ExecutionContext& context, std::mt19937_64& rng, DType dtype)
      : norm_weight(test::random_tensor(context, {16}, rng, dtype, 0.5, 1.5)),
        qkv(test::random_tensor(context, {48, 16}, rng, dtype)),
        out(test::random_tensor(context, {16, 16}, rng, dtype)),
        up(test::random_tensor(context, {32, 16}, rng, dtype)),
        down(test::random_tensor(context, {16, 32}, rng, dtype)) {
    for (Tensor* t : parameters()) t->set_requires_grad(true);
  }
  std::vector<Tensor*> parameters() { return {&norm_weight, &qkv, &out, &up, &down}; }

  std::vector<Tensor> operator()(std::span<const Tensor> in) const {
    const auto [normed, sum] = ops::add_rms_norm(in[0], in[1], norm_weight, 1e-5f);
    const std::vector<Tensor> parts = ops::split(ops::linear(normed, qkv, {}), 16, 2);
    auto heads = [](const Tensor& t) {
      return ops::transpose(ops::reshape(t, {t.size(0), t.size(1), 2, 8}), 1, 2);
    };
    ops::SdpaOptions options;
    options.is_causal = true;
    options.dropout_p = 0.2f;
    options.dropout_random = {3, 4};
    const Tensor o = ops::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]),
                                                       heads(parts[2]), options)
                         .o;
    const Tensor joined = ops::reshape(ops::transpose(o, 1, 2), sum.shape());
    const Tensor attended = ops::dropout(ops::linear(joined, out, {}), 0.3f, {5, 6});
    const Tensor mixed = ops::add(attended, sum);
    const ops::LinearOptions gelu{.input_activation = ops::Activation::kGeluTanh};
    return {ops::linear(ops::linear(mixed, up, {}), down, {}, gelu), mixed};
  }
};

/// Outputs of two micro batches, then all gradients.
std::vector<std::vector<double>> run(Mode mode, DType dtype) {
  testing::TestContext context;
  std::mt19937_64 rng(9);
  std::vector<Block> blocks;
  for (int i = 0; i < 3; ++i) blocks.emplace_back(context, rng, dtype);
  Tensor x = test::random_tensor(context, {2, 7, 16}, rng, dtype);
  Tensor residual = test::random_tensor(context, {2, 7, 16}, rng, dtype);
  x.set_requires_grad(true);
  residual.set_requires_grad(true);
  std::vector<std::vector<double>> values;
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    std::vector<Tensor> state{x, residual};
    for (const Block& block : blocks) {
      const CheckpointOptions options{mode == Mode::kKeepAttention};
      state = mode == Mode::kPlain
                  ? block(state)
                  : checkpoint([&block](std::span<const Tensor> in) { return block(in); }, state,
                               options);
    }
    const Tensor y = ops::add(state[0], state[1]);
    values.push_back(y.to_vector());
    backward(ops::sum(y));
  }
  values.push_back(x.grad().to_vector());
  values.push_back(residual.grad().to_vector());
  for (Block& block : blocks)
    for (Tensor* t : block.parameters()) values.push_back(t->grad().to_vector());
  return values;
}

class CheckpointEquals : public ::testing::TestWithParam<std::tuple<Mode, DType>> {};

TEST_P(CheckpointEquals, NoCheckpointBitwise) {
  const auto [mode, dtype] = GetParam();
  EXPECT_EQ(run(mode, dtype), run(Mode::kPlain, dtype));
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointEquals,
                         ::testing::Combine(::testing::Values(Mode::kFull, Mode::kKeepAttention),
                                            ::testing::Values(DType::kFloat32, DType::kBFloat16)));

TEST(Checkpoint, KeepsLessMemoryDuringForward) {
  auto held_after_forward = [](Mode mode) {
    testing::TestContext context;
    std::mt19937_64 rng(2);
    const Block block(context, rng, DType::kFloat32);
    const Tensor x = test::random_tensor(context, {2, 64, 16}, rng, DType::kFloat32);
    const std::vector<Tensor> in{x, x};
    const auto segment = [&block](std::span<const Tensor> t) { return block(t); };
    const std::size_t before = context.allocator().stats().bytes_in_use;
    const auto out =
        mode == Mode::kPlain ? block(in) : checkpoint(segment, in, {mode == Mode::kKeepAttention});
    return context.allocator().stats().bytes_in_use - before;
  };
  EXPECT_LT(held_after_forward(Mode::kFull), held_after_forward(Mode::kKeepAttention));
  EXPECT_LT(held_after_forward(Mode::kKeepAttention), held_after_forward(Mode::kPlain));
}

TEST(Checkpoint, KeptAttentionIsNotComputedAgain) {
  testing::TestContext context;
  std::mt19937_64 rng(2);
  CheckpointFrame frame(true);
  frame.keep_attention(zeros(context, {1}, DType::kFloat32), zeros(context, {1}, DType::kFloat32));
  EXPECT_FALSE(frame.replay_attention().has_value());
  frame.start_replay();
  EXPECT_TRUE(frame.replay_attention().has_value());
  EXPECT_FALSE(frame.replay_attention().has_value());
}

TEST(Checkpoint, RunsTwiceAndOnceWithoutRecording) {
  testing::TestContext context;
  Tensor w = full(context, {2}, 3.0, DType::kFloat32);
  w.set_requires_grad(true);
  int runs = 0;
  auto segment = [&](const Tensor& x) {
    ++runs;
    return ops::mul(x, w);
  };
  const Tensor x = full(context, {2}, 2.0, DType::kFloat32);
  Tensor y = checkpoint(segment, x);
  EXPECT_EQ(runs, 1);
  backward(ops::sum(y));
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(w.grad().to_vector(), std::vector<double>(2, 2.0));
  EXPECT_THROW(backward(ops::sum(y)), FailedPrecondition);

  const NoGradGuard guard(context);
  y = checkpoint(segment, x);
  EXPECT_EQ(runs, 3);
  EXPECT_FALSE(y.requires_grad());
}

TEST(Checkpoint, HooksOfLeavesInsideWaitForTheSegment) {
  testing::TestContext context;
  Tensor inside = full(context, {1}, 3.0, DType::kFloat32);
  Tensor tied = full(context, {1}, 2.0, DType::kFloat32);
  inside.set_requires_grad(true);
  tied.set_requires_grad(true);
  std::vector<std::string> ready;
  inside.leaf_grad()->set_ready_hook([&] { ready.push_back("inside"); });
  tied.leaf_grad()->set_ready_hook([&] {
    ready.push_back("tied");
    EXPECT_EQ(tied.grad().item(), 3.0 * 2.0 * 2.0);
  });
  // tied is used before the segment and twice inside it; one ready call each, at the right time.
  const Tensor x = ops::mul(tied, 1.0);
  const Tensor y = checkpoint(
      [&](const Tensor& t) { return ops::mul(ops::mul(t, tied), ops::mul(inside, 1.0)); }, x);
  backward(y);
  EXPECT_EQ(ready, (std::vector<std::string>{"inside", "tied"}));
}

TEST(Checkpoint, SegmentsMayNest) {
  testing::TestContext context;
  Tensor w = full(context, {1}, 3.0, DType::kFloat32);
  w.set_requires_grad(true);
  auto inner = [&](const Tensor& t) { return ops::mul(t, w); };
  auto outer = [&](const Tensor& t) { return ops::mul(checkpoint(inner, t), w); };
  backward(checkpoint(outer, full(context, {1}, 5.0, DType::kFloat32)));
  EXPECT_EQ(w.grad().item(), 2 * 5.0 * 3.0);
}

}  // namespace
}  // namespace meshloom::autograd
