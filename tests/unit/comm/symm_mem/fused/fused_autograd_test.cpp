// SPDX-License-Identifier: Apache-2.0
// Gradients of the fused products against those of plain ops on one rank, which are checked by
// differences, and against differences themselves.
#include "daemon/comm/symm_mem/fused/fused_autograd.h"

#include <gmock/gmock.h>

#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "tests/unit/comm/symm_mem/fused/fused_fixture.h"

namespace meshloom::comm {
namespace {

using testing::expect_near;
using testing::FusedRank;
using testing::numbers;
using testing::part_of;
using testing::run_fused;

Tensor leaf(const Tensor& x) {
  Tensor own = ops::contiguous(x).detach();
  const Tensor copy = empty(x.context(), x.shape(), x.dtype());
  copy_into(copy, own);
  Tensor result = copy;
  return result.set_requires_grad(true);
}

/// All shards' sum, as every rank's part of one whole has it.
Tensor summed(FusedRank& rank, ProcessGroup& world, const Tensor& x) {
  const Tensor sum = empty(rank.context, x.shape(), x.dtype());
  copy_into(sum, x);
  world.all_reduce(sum.view(), ReduceOp::kSum)->wait_host();
  return sum;
}

void run_with_world(int ranks, const std::function<void(FusedRank&, ProcessGroup&)>& body) {
  meshloom::testing::run_ranks(ranks, [&](ProcessGroup& world) {
    HostSymmetricMemory memory;
    SymmetricGroup& group = memory.enable(world);
    ExecutionContext context;
    FusedRank rank{context, group, world.rank(), world.size()};
    body(rank, world);
  });
}

class FusedAutograd : public ::testing::TestWithParam<int> {};

TEST_P(FusedAutograd, AllGatherMatmulHasTheGradientsOfPlainOps) {
  run_with_world(GetParam(), [](FusedRank& rank, ProcessGroup& world) {
    for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
      for (int dim = 0; dim < 3; ++dim) {
        for (const int splits : {0, 2}) {
          const double close = dtype == DType::kFloat64 ? 1e-12 : 1e-4;
          const Tensor whole = numbers(rank.context, {3, 7, 5}, dtype, 1);
          const auto seed = static_cast<unsigned>(10 * rank.rank + 20);
          std::vector<Tensor> bs;
          for (unsigned i = 0; i < 2; ++i)
            bs.push_back(leaf(numbers(rank.context, {5, 4 + i}, dtype, seed + i)));
          // Each rank's loss weighs its columns, and the gathered A itself.
          const Tensor weights[] = {numbers(rank.context, {3, 7, 5}, dtype, seed + 3),
                                    numbers(rank.context, {3, 7, 4}, dtype, seed + 4),
                                    numbers(rank.context, {3, 7, 5}, dtype, seed + 5)};
          const Tensor a = leaf(part_of(whole, dim, rank));
          const GatheredProducts got = all_gather_matmul(rank.group, a, bs, dim, {splits});
          const Tensor outputs[] = {got.gathered, got.products[0], got.products[1]};
          autograd::backward(outputs, weights);

          const Tensor plain_a = leaf(whole);
          std::vector<Tensor> plain_bs{leaf(bs[0]), leaf(bs[1])};
          const Tensor plain[] = {ops::mul(plain_a, 1.0), ops::matmul(plain_a, plain_bs[0]),
                                  ops::matmul(plain_a, plain_bs[1])};
          autograd::backward(plain, weights);
          const std::string what = fmt::format("dim {}, {} splits", dim, splits);
          expect_near(a.grad(), part_of(summed(rank, world, plain_a.grad()), dim, rank), close,
                      close, what);
          for (std::size_t i = 0; i < 2; ++i)
            expect_near(bs[i].grad(), plain_bs[i].grad(), close, close, what);
        }
      }
    }
  });
}

TEST_P(FusedAutograd, MatmulReduceScatterHasTheGradientsOfPlainOps) {
  run_with_world(GetParam(), [](FusedRank& rank, ProcessGroup&) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
      for (int dim = 0; dim < 3; ++dim) {
        const Tensor whole_a = numbers(rank.context, {3, 7, 5}, DType::kFloat64, 1);
        const Tensor whole_b = numbers(rank.context, {5, 6}, DType::kFloat64, 2);
        const Tensor weights = numbers(rank.context, {3, 7, 6}, DType::kFloat64, 3);
        const Tensor a = leaf(part_of(whole_a, 2, rank)), b = leaf(part_of(whole_b, 0, rank));
        const Tensor y = matmul_reduce_scatter(rank.group, a, b, op, dim);
        const Tensor dy = ops::contiguous(part_of(weights, dim, rank));
        autograd::backward(std::span(&y, 1), std::span(&dy, 1));

        const Tensor plain_a = leaf(whole_a), plain_b = leaf(whole_b);
        const Tensor plain =
            ops::div(ops::matmul(plain_a, plain_b), op == ReduceOp::kAvg ? rank.size : 1.0);
        expect_near(y, part_of(plain.detach(), dim, rank), 1e-12, 1e-12, "forward");
        autograd::backward(std::span(&plain, 1), std::span(&weights, 1));
        expect_near(a.grad(), part_of(plain_a.grad(), 2, rank), 1e-12, 1e-12, "A");
        expect_near(b.grad(), part_of(plain_b.grad(), 0, rank), 1e-12, 1e-12, "B");
      }
    }
  });
}

// Weights as most layers hold them, and what backward gathers again, against the same without.
TEST_P(FusedAutograd, OptionsOfBackwardChangeNoGradient) {
  run_with_world(GetParam(), [](FusedRank& rank, ProcessGroup&) {
    const Tensor whole = numbers(rank.context, {3, 7, 5}, DType::kFloat64, 1);
    const Tensor b = numbers(rank.context, {5, 4}, DType::kFloat64, 2);
    const Tensor wide = part_of(numbers(rank.context, {3, 7, 6}, DType::kFloat64, 3), 2, rank);
    const Tensor down = part_of(numbers(rank.context, {6, 4}, DType::kFloat64, 4), 0, rank);
    // The gradients of A and B, B's as [K, N].
    const auto gathered = [&](const RecordOptions& record) {
      const Tensor a = leaf(part_of(whole, 1, rank));
      const Tensor own = leaf(record.b_is_out_in ? ops::transpose(b, 0, 1) : b);
      const Tensor y = all_gather_matmul(rank.group, a, {&own, 1}, 1, {}, record).products[0];
      const Tensor loss = ops::sum(ops::mul(y, y));
      autograd::backward(loss);
      return std::pair(a.grad(),
                       record.b_is_out_in ? ops::transpose(own.grad(), 0, 1) : own.grad());
    };
    const auto scattered = [&](const RecordOptions& record) {
      const Tensor a = leaf(wide);
      const Tensor own = leaf(record.b_is_out_in ? ops::transpose(down, 0, 1) : down);
      const Tensor y = matmul_reduce_scatter(rank.group, a, own, ReduceOp::kSum, 1, {}, record);
      autograd::backward(ops::sum(ops::mul(y, y)));
      return std::pair(a.grad(),
                       record.b_is_out_in ? ops::transpose(own.grad(), 0, 1) : own.grad());
    };
    const auto expected = gathered({});
    for (const RecordOptions& record :
         {RecordOptions{.b_is_out_in = true}, RecordOptions{.gather_again = true},
          RecordOptions{.b_is_out_in = true, .gather_again = true}}) {
      const auto seen = gathered(record);
      expect_near(seen.first, expected.first, 1e-12, 1e-12, "gather: A");
      expect_near(seen.second, expected.second, 1e-12, 1e-12, "gather: B");
    }
    const auto apart = scattered({}), turned = scattered({.b_is_out_in = true});
    expect_near(turned.first, apart.first, 1e-12, 1e-12, "scatter: A");
    expect_near(turned.second, apart.second, 1e-12, 1e-12, "scatter: B");
  });
}

TEST_P(FusedAutograd, AgreesWithDifferences) {
  run_with_world(GetParam(), [](FusedRank& rank, ProcessGroup& world) {
    // Two layers, the first scattered over columns, the second over rows, as in a tensor-parallel
    // MLP with a sharded sequence. The loss is the sum over all ranks of weighted outputs.
    const Tensor x = numbers(rank.context, {5, 4}, DType::kFloat64, 1);
    const Tensor up = leaf(part_of(numbers(rank.context, {4, 6}, DType::kFloat64, 2), 1, rank));
    const Tensor down = leaf(part_of(numbers(rank.context, {6, 4}, DType::kFloat64, 3), 0, rank));
    const Tensor weights =
        ops::contiguous(part_of(numbers(rank.context, {5, 4}, DType::kFloat64, 4), 0, rank));
    const auto forward = [&](const Tensor& shard) {
      const Tensor h = all_gather_matmul(rank.group, shard, {&up, 1}, 0).products[0];
      return matmul_reduce_scatter(rank.group, ops::mul(h, h), down, ReduceOp::kSum, 0);
    };
    const auto loss = [&](const Tensor& whole) {
      const NoGradGuard no_grad(rank.context);
      const std::vector<double> y = forward(part_of(whole, 0, rank)).to_vector(),
                                w = weights.to_vector();
      double sum = 0.0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * w[i];
      world.all_reduce(make_view(&sum, DType::kFloat64, {1}), ReduceOp::kSum)->wait_host();
      return sum;
    };
    const Tensor shard = leaf(part_of(x, 0, rank));
    const Tensor y = forward(shard);
    autograd::backward(std::span(&y, 1), std::span(&weights, 1));
    std::vector<double> values = x.to_vector(), differences;
    for (double& value : values) {
      const double kept = value;
      value = kept + 1e-5;
      const double above = loss(from_values(rank.context, {5, 4}, values, DType::kFloat64));
      value = kept - 1e-5;
      const double below = loss(from_values(rank.context, {5, 4}, values, DType::kFloat64));
      value = kept;
      differences.push_back((above - below) / 2e-5);
    }
    const Tensor expected = from_values(rank.context, {5, 4}, differences, DType::kFloat64);
    expect_near(shard.grad(), part_of(expected, 0, rank), 1e-6, 1e-6, "x");
  });
}

TEST_P(FusedAutograd, OnlyWhatIsAskedForIsComputed) {
  run_with_world(GetParam(), [](FusedRank& rank, ProcessGroup&) {
    const Tensor whole = numbers(rank.context, {6, 4}, DType::kFloat64, 1);
    const Tensor a = part_of(whole, 0, rank),
                 b = leaf(numbers(rank.context, {4, 3}, DType::kFloat64, 2));
    const Tensor y = all_gather_matmul(rank.group, a, {&b, 1}, 0).products[0];
    const Tensor ones = full(rank.context, {6, 3}, 1.0, DType::kFloat64);
    autograd::backward(std::span(&y, 1), std::span(&ones, 1));
    EXPECT_TRUE(b.grad().defined());
    const Tensor left = leaf(part_of(whole, 1, rank));
    const Tensor right = part_of(numbers(rank.context, {4, 3}, DType::kFloat64, 2), 0, rank);
    const Tensor z = matmul_reduce_scatter(rank.group, left, right, ReduceOp::kSum, 0);
    const Tensor dz = full(rank.context, z.shape(), 1.0, DType::kFloat64);
    autograd::backward(std::span(&z, 1), std::span(&dz, 1));
    EXPECT_TRUE(left.grad().defined());
    const NoGradGuard no_grad(rank.context);
    EXPECT_EQ(all_gather_matmul(rank.group, a, {&b, 1}, 0).products[0].grad_fn(), nullptr);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedAutograd, ::testing::Values(1, 2, 3, 4));

TEST(FusedAutogradRefusals, ShardsThatNoScatterGivesBack) {
  run_with_world(3, [](FusedRank& rank, ProcessGroup&) {
    const std::int64_t rows[] = {4, 2, 1};
    const Tensor a = leaf(numbers(rank.context, {rows[rank.rank], 4}, DType::kFloat32, 1));
    const Tensor b = numbers(rank.context, {4, 3}, DType::kFloat32, 2);
    try {
      all_gather_matmul(rank.group, a, {&b, 1}, 0);
      ADD_FAILURE() << "nothing was refused";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(),
                  ::testing::HasSubstr("rank 0 brings 4 of 7 along gather_dim, expected 3"));
    }
    const NoGradGuard no_grad(rank.context);
    EXPECT_EQ(all_gather_matmul(rank.group, a, {&b, 1}, 0).gathered.size(0), 7);
  });
}

}  // namespace
}  // namespace meshloom::comm
