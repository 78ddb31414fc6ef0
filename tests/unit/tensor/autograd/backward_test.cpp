// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/autograd/backward.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "daemon/tensor/autograd/function_node.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/embedding.h"
#include "daemon/tensor/ops/loss.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/norm.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "daemon/tensor/ops/softmax.h"
#include "kernels/base/error.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_context.h"

namespace meshloom::autograd {
namespace {

class BackwardTest : public ::testing::Test {
 protected:
  Tensor leaf(const Shape& shape, double value, DType dtype = DType::kFloat32) {
    Tensor t = full(context_, shape, value, dtype);
    t.set_requires_grad(true);
    return t;
  }

  /// x passed through; `log` gets the name when its backward runs.
  Tensor traced(const Tensor& x, const std::string& name) {
    Tensor y = full(context_, x.shape(), 0.0, x.dtype());
    copy_into(y, x);
    record_op("traced", {&x}, {&y}, [this, name](GradOutputs dy, GradSink& sink) {
      log_.push_back(name);
      sink.emit(0, dy[0]);
    });
    return y;
  }

  testing::TestContext context_;
  std::vector<std::string> log_;
};

TEST_F(BackwardTest, RunsInReverseOrderOfRecording) {
  Tensor x = leaf({1}, 2.0);
  const Tensor a = traced(x, "a");
  const Tensor b = traced(a, "b");
  const Tensor c = traced(a, "c");
  const Tensor unused = traced(c, "unused");
  const Tensor d = ops::add(traced(c, "d"), b);
  backward(d);
  EXPECT_EQ(log_, (std::vector<std::string>{"d", "c", "b", "a"}));
  EXPECT_EQ(x.grad().item(), 2.0);
}

TEST_F(BackwardTest, PollsAfterEveryNodeAndReleasesAtOnce) {
  Tensor x = leaf({1}, 2.0);
  int polls = 0;
  auto saved = std::make_shared<int>(0);
  Tensor y = full(context_, {1}, 0.0, DType::kFloat32);
  record_op("holder", {&x}, {&y}, [saved](GradOutputs dy, GradSink& sink) { sink.emit(0, dy[0]); });
  Tensor z = traced(traced(y, "1"), "2");
  EXPECT_EQ(saved.use_count(), 2);
  std::vector<long> held_at_poll;
  {
    const PollPoint point(context_, [&] {
      ++polls;
      held_at_poll.push_back(saved.use_count());
    });
    backward(z);
  }
  context_.poll();
  EXPECT_EQ(polls, 3);
  EXPECT_EQ(held_at_poll, (std::vector<long>{2, 2, 1}));
}

TEST_F(BackwardTest, SecondBackwardOverReleasedGraphIsRefused) {
  Tensor x = leaf({1}, 2.0);
  const Tensor shared = ops::mul(x, x);
  const Tensor y = ops::mul(shared, 2.0);
  const Tensor z = ops::mul(shared, 3.0);
  backward(y);
  EXPECT_THROW(backward(y), FailedPrecondition);
  EXPECT_THROW(backward(z), FailedPrecondition);
  EXPECT_EQ(x.grad().item(), 8.0);
  EXPECT_EQ(x.leaf_grad()->pending(), 0);
}

TEST_F(BackwardTest, AccumulatesInFloat32OverMicroBatches) {
  Tensor x = leaf({1}, 1.0, DType::kBFloat16);
  EXPECT_EQ(x.leaf_grad()->buffer().dtype(), DType::kFloat32);
  // In bfloat16 the sum would stop growing at 256.
  for (int i = 0; i < 300; ++i) backward(ops::mul(x, 1.0));
  EXPECT_EQ(x.grad().item(), 300.0);
  x.leaf_grad()->clear();
  EXPECT_FALSE(x.grad().defined());
  backward(ops::mul(x, 2.0));
  EXPECT_EQ(x.grad().item(), 2.0);
}

TEST_F(BackwardTest, ReadyHookComesOnceAfterTheLastContribution) {
  Tensor w = leaf({2, 2}, 0.5);
  Tensor late = leaf({2, 2}, 1.0);
  std::vector<std::string> events;
  double seen = 0.0;
  w.leaf_grad()->set_ready_hook([&] {
    events.push_back("w");
    seen = w.grad().to_vector()[0];
  });
  late.leaf_grad()->set_ready_hook([&] { events.push_back("late"); });
  // w is used first and last (as a tied weight is), `late` in between.
  const Tensor h = ops::matmul(ops::matmul(w, late), w);
  const Tensor y = ops::sum(h);
  const PollPoint point(context_, [&] { events.push_back("."); });
  backward(y);
  // Nodes run: sum, second matmul, first matmul.
  EXPECT_EQ(events, (std::vector<std::string>{".", ".", "w", "late", "."}));
  EXPECT_EQ(seen, w.grad().to_vector()[0]);
}

TEST_F(BackwardTest, ReadyHookComesPerBackward) {
  Tensor w = leaf({1}, 0.5);
  int ready = 0;
  w.leaf_grad()->set_ready_hook([&] { ++ready; });
  const Tensor a = ops::mul(w, 2.0);
  const Tensor b = ops::mul(w, 3.0);
  backward(a);
  EXPECT_EQ(ready, 1);
  backward(b);
  EXPECT_EQ(ready, 2);
  EXPECT_EQ(w.grad().item(), 5.0);
}

TEST_F(BackwardTest, LeafWrittenInForwardIsReadyOnlyAfterItsOtherUses) {
  std::mt19937_64 rng(1);
  Tensor w = test::random_tensor(context_, {5, 4}, rng, DType::kFloat32);
  w.set_requires_grad(true);
  bool ready = false;
  w.leaf_grad()->set_ready_hook([&] { ready = true; });
  const Tensor ids = test::random_ids(context_, {3}, rng, 5);
  const Tensor hidden = traced(ops::embedding(w, ids), "hidden");
  const Tensor loss = ops::linear_cross_entropy(hidden, w, {}, ids, {});
  EXPECT_TRUE(w.grad().defined());
  std::vector<bool> ready_at_poll;
  const PollPoint point(context_, [&] { ready_at_poll.push_back(ready); });
  backward(loss);
  EXPECT_EQ(ready_at_poll, (std::vector<bool>{false, false, true}));
}

TEST_F(BackwardTest, GivenBufferIsUsed) {
  Tensor w = leaf({2, 3}, 0.5);
  const Tensor flat = full(context_, {10}, -1.0, DType::kFloat32);
  w.leaf_grad()->set_buffer(ops::reshape(ops::slice(flat, 0, 2, 8), {2, 3}));
  backward(ops::sum(ops::mul(w, 4.0)));
  EXPECT_EQ(flat.to_vector(), (std::vector<double>{-1, -1, 4, 4, 4, 4, 4, 4, -1, -1}));
  EXPECT_THROW(w.leaf_grad()->set_buffer(zeros(context_, {2, 3}, DType::kFloat32)),
               FailedPrecondition);
  w.leaf_grad()->clear();
  EXPECT_THROW(w.leaf_grad()->set_buffer(zeros(context_, {6}, DType::kFloat32)), InvalidArgument);
}

TEST_F(BackwardTest, SeveralOutputsWithGradients) {
  Tensor x = leaf({2}, 3.0);
  const std::vector<Tensor> outputs{ops::mul(x, 2.0), ops::mul(x, x)};
  const std::vector<Tensor> grads{full(context_, {2}, 1.0, DType::kFloat32),
                                  full(context_, {2}, 10.0, DType::kFloat32)};
  backward(outputs, grads);
  EXPECT_EQ(x.grad().to_vector(), std::vector<double>(2, 62.0));
  // The caller's gradient was not written to.
  EXPECT_EQ(grads[1].to_vector(), std::vector<double>(2, 10.0));
}

TEST_F(BackwardTest, WrongCallsAreRefused) {
  Tensor x = leaf({2}, 3.0);
  const Tensor y = ops::mul(x, 2.0);
  EXPECT_THROW(backward(y), InvalidArgument);
  EXPECT_THROW(backward(full(context_, {1}, 1.0, DType::kFloat32)), FailedPrecondition);
  const Tensor wrong_shape = zeros(context_, {3}, DType::kFloat32);
  EXPECT_THROW(backward(std::span(&y, 1), std::span(&wrong_shape, 1)), InvalidArgument);
  const Tensor wrong_dtype = zeros(context_, {2}, DType::kFloat64);
  EXPECT_THROW(backward(std::span(&y, 1), std::span(&wrong_dtype, 1)), InvalidArgument);
}

TEST_F(BackwardTest, AFailingNodeLeavesNothingOwed) {
  Tensor x = leaf({1}, 3.0);
  Tensor w = leaf({1}, 3.0);
  Tensor y = full(context_, {1}, 0.0, DType::kFloat32);
  const Tensor before = ops::mul(w, x);
  record_op("broken", {&before, &x}, {&y},
            [](GradOutputs, GradSink&) { throw NumericError("broken on purpose"); });
  EXPECT_THROW(backward(ops::mul(y, 2.0)), NumericError);
  EXPECT_EQ(x.leaf_grad()->pending(), 0);
  EXPECT_EQ(w.leaf_grad()->pending(), 0);
  EXPECT_TRUE(context_.grad_enabled());
}

TEST_F(BackwardTest, DeepGraphsAreTakenApartWithoutRecursion) {
  Tensor x = leaf({1}, 1.0);
  for (const bool run : {false, true}) {
    Tensor y = x;
    for (int i = 0; i < 200000; ++i) y = ops::add(y, 0.0);
    if (run) backward(y);
  }
  EXPECT_EQ(x.grad().item(), 1.0);
}

TEST_F(BackwardTest, MemoryFallsToTheLeavesAfterwards) {
  std::mt19937_64 rng(1);
  Tensor w = test::random_tensor(context_, {64, 64}, rng, DType::kFloat32);
  w.set_requires_grad(true);
  w.leaf_grad()->buffer();
  auto step = [&] {
    Tensor h = test::random_tensor(context_, {32, 64}, rng, DType::kFloat32);
    for (int i = 0; i < 5; ++i) h = ops::gelu(ops::linear(h, w, {}), true);
    backward(ops::sum(h));
  };
  step();
  const AllocatorStats first = context_.allocator().stats();
  for (int i = 0; i < 5; ++i) step();
  const AllocatorStats later = context_.allocator().stats();
  EXPECT_EQ(first.bytes_in_use, later.bytes_in_use);
  EXPECT_EQ(first.segments_acquired, later.segments_acquired);
}

// A graph that is dropped without backward frees what it saved, its own outputs too.
TEST(Backward, DroppedGraphsFreeTheirMemory) {
  testing::TestContext context;
  Tensor x = full(context, {4, 8}, 0.5, DType::kFloat32);
  x.set_requires_grad(true);
  const std::size_t before = context.allocator().stats().bytes_in_use;
  for (const auto op : {ops::exp, ops::tanh, ops::sigmoid, ops::relu}) op(x);
  ops::softmax(x, 1);
  ops::log_softmax(x, 0);
  ops::amax(x, {1});
  ops::layer_norm(x, {}, {}, 1e-5f);
  EXPECT_EQ(context.allocator().stats().bytes_in_use, before);
}

}  // namespace
}  // namespace meshloom::autograd
