// SPDX-License-Identifier: Apache-2.0
// Fused products against products in double, on ranks that are threads.
#include "daemon/comm/symm_mem/fused/fused_matmul.h"

#include <gmock/gmock.h>

#include "daemon/comm/symm_mem/fused/layout.h"
#include "kernels/base/error.h"
#include "tests/unit/comm/symm_mem/fused/fused_fixture.h"

namespace meshloom::comm {
namespace {

using testing::expect_equal;
using testing::expect_near;
using testing::FusedRank;
using ::testing::HasSubstr;
using testing::numbers;
using testing::part_of;
using testing::product_tensor;
using testing::run_fused;

struct Sizes {
  Shape a;  ///< of the whole A
  std::int64_t columns;
  int dim;
};

std::vector<Sizes> random_sizes(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Sizes> all;
  for (int i = 0; i < 12; ++i) {
    Shape shape;
    const int ndim = 2 + i % 3;
    for (int d = 0; d < ndim; ++d) shape.push_back(static_cast<std::int64_t>(random() % 11));
    all.push_back({shape, static_cast<std::int64_t>(random() % 14), i % ndim});
  }
  all.push_back({{37, 19}, 23, 0});
  all.push_back({{3, 29, 17}, 21, 1});
  // Parts that are large enough for products of their own.
  all.push_back({{2100, 13}, 9, 0});
  all.push_back({{5, 13}, 2100, 1});
  all.push_back({{90, 24, 13}, 5, 1});
  return all;
}

std::string text(const Sizes& sizes, int splits, DType dtype = DType::kFloat32) {
  return fmt::format("A {} along {}, {} columns, {} splits, {}", sizes.a, sizes.dim, sizes.columns,
                     splits, dtype_name(dtype));
}

/// The last two dims swapped in memory.
Tensor transposed(const Tensor& x) {
  return ops::transpose(ops::contiguous(ops::transpose(x, -1, -2)), -1, -2);
}

class FusedMatmul : public ::testing::TestWithParam<int> {};

TEST_P(FusedMatmul, AllGatherOfWholeNumbersIsExact) {
  run_fused(GetParam(), [](FusedRank& rank) {
    for (const Sizes& sizes : random_sizes(1)) {
      for (const int splits : {0, 1, 3}) {
        const Tensor a = numbers(rank.context, sizes.a, DType::kFloat32, 5, true);
        std::vector<Tensor> bs;
        for (unsigned i = 0; i < 3; ++i)
          bs.push_back(numbers(rank.context, {sizes.a.back(), sizes.columns + i}, DType::kFloat32,
                               10 * static_cast<unsigned>(rank.rank) + i, true));
        const GatheredProducts got = fused_all_gather_matmul(
            rank.group, part_of(a, sizes.dim, rank), bs, sizes.dim, {splits});
        const std::string what = text(sizes, splits);
        expect_equal(got.gathered, a, what);
        EXPECT_TRUE(got.gathered.contiguous());
        for (std::size_t i = 0; i < bs.size(); ++i)
          expect_equal(got.products[i], product_tensor(a, bs[i]), what);
      }
    }
  });
}

TEST_P(FusedMatmul, ReduceScatterOfWholeNumbersIsExact) {
  run_fused(GetParam(), [](FusedRank& rank) {
    for (const Sizes& sizes : random_sizes(2)) {
      for (const int splits : {0, 1, 4}) {
        const Tensor a = numbers(rank.context, sizes.a, DType::kFloat32, 6, true);
        const Tensor b =
            numbers(rank.context, {sizes.a.back(), sizes.columns}, DType::kFloat32, 7, true);
        const int last = a.ndim() - 1;
        const Tensor got =
            fused_matmul_reduce_scatter(rank.group, part_of(a, last, rank), part_of(b, 0, rank),
                                        ReduceOp::kSum, sizes.dim - a.ndim(), {splits});
        expect_equal(got, part_of(product_tensor(a, b), sizes.dim, rank), text(sizes, splits));
        EXPECT_TRUE(got.contiguous());
      }
    }
  });
}

TEST_P(FusedMatmul, EveryFloatingDTypeRoundsOnce) {
  struct Rounding {
    DType dtype;
    double relative;
  };
  run_fused(GetParam(), [](FusedRank& rank) {
    for (const auto& [dtype, relative] :
         {Rounding{DType::kFloat32, 1e-5}, Rounding{DType::kBFloat16, 0.0040},
          Rounding{DType::kFloat16, 0.00049}, Rounding{DType::kFloat64, 1e-13}}) {
      const Sizes sizes{{2, 13, 45}, 9, 1};
      const double tiny = dtype == DType::kFloat64 ? 1e-13 : 4e-5;
      for (const int splits : {0, 2}) {
        const Tensor a = numbers(rank.context, sizes.a, dtype, 8);
        const Tensor b = numbers(rank.context, {45, 9}, dtype, 9);
        const Tensor y = product_tensor(a, b);
        const std::string what = text(sizes, splits, dtype);
        const GatheredProducts gathered =
            fused_all_gather_matmul(rank.group, part_of(a, 1, rank), {&b, 1}, 1, {splits});
        EXPECT_EQ(gathered.products[0].dtype(), dtype);
        expect_near(gathered.products[0], y, tiny, relative, what);
        const Tensor scattered = fused_matmul_reduce_scatter(
            rank.group, part_of(a, 2, rank), part_of(b, 0, rank), ReduceOp::kAvg, 1, {splits});
        EXPECT_EQ(scattered.dtype(), dtype);
        std::vector<double> average = y.to_vector();
        for (double& value : average) value /= rank.size;
        expect_near(
            scattered,
            part_of(from_values(rank.context, y.shape(), average, DType::kFloat64), 1, rank), tiny,
            relative, what);
      }
    }
  });
}

TEST_P(FusedMatmul, AnyStridesAndSeveralCallsInARow) {
  run_fused(GetParam(), [](FusedRank& rank) {
    const Tensor a = numbers(rank.context, {4, 11, 10}, DType::kFloat32, 3, true);
    const Tensor b = numbers(rank.context, {10, 6}, DType::kFloat32, 4, true);
    const Tensor y = product_tensor(a, b);
    for (int round = 0; round < 40; ++round) {
      const int dim = round % 3, splits = round % 5;
      Tensor shard = part_of(a, dim, rank);
      shard = round % 2 == 0 ? transposed(shard) : restride_shard_for_gather(shard, dim);
      const Tensor other = transposed(b);
      const GatheredProducts got =
          fused_all_gather_matmul(rank.group, shard, {&other, 1}, dim, {splits});
      expect_equal(got.gathered, a, "gathered");
      expect_equal(got.products[0], y, "product");
      const Tensor scattered =
          fused_matmul_reduce_scatter(rank.group, restride_for_scatter(part_of(a, 2, rank), dim),
                                      part_of(other, 0, rank), ReduceOp::kSum, dim, {splits});
      expect_equal(scattered, part_of(y, dim, rank), "scattered");
    }
  });
}

TEST_P(FusedMatmul, ShardsThatDoNotFollowTheCeilRuleAreGathered) {
  run_fused(GetParam(), [](FusedRank& rank) {
    // Rank r brings r rows.
    const Tensor a = numbers(rank.context, {rank.rank, 5}, DType::kFloat32, 30, true);
    const Tensor b = numbers(rank.context, {5, 4}, DType::kFloat32, 31, true);
    const GatheredProducts got = fused_all_gather_matmul(rank.group, a, {&b, 1}, 0, {2});
    std::vector<Tensor> shards;
    for (int r = 0; r < rank.size; ++r)
      shards.push_back(numbers(rank.context, {r, 5}, DType::kFloat32, 30, true));
    expect_equal(got.gathered, ops::cat(shards, 0), "gathered");
    expect_equal(got.products[0], product_tensor(got.gathered, b), "product");
  });
}

TEST_P(FusedMatmul, OutDTypesMayBeFloat32) {
  run_fused(GetParam(), [](FusedRank& rank) {
    const Tensor a = numbers(rank.context, {9, 33}, DType::kBFloat16, 11);
    const Tensor b = numbers(rank.context, {33, 5}, DType::kBFloat16, 12);
    const DType out = DType::kFloat32;
    const Tensor y = product_tensor(a, b);
    const GatheredProducts got =
        fused_all_gather_matmul(rank.group, part_of(a, 0, rank), {&b, 1}, 0, {}, {&out, 1});
    expect_near(got.products[0], y, 1e-5, 1e-5, "gathered");
    const Tensor scattered =
        fused_matmul_reduce_scatter(rank.group, part_of(a, 1, rank), part_of(b, 0, rank),
                                    ReduceOp::kSum, 0, {}, DType::kFloat32);
    EXPECT_EQ(scattered.dtype(), DType::kFloat32);
    expect_near(scattered, part_of(y, 0, rank), 1e-5, 1e-5, "scattered");
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedMatmul, ::testing::Values(1, 2, 3, 4, 8));

template <typename Body>
std::string refusal(Body&& body) {
  try {
    body();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

TEST(FusedMatmulRefusals, OwnArgumentsBeforeAnythingIsWritten) {
  run_fused(2, [](FusedRank& rank) {
    const auto make = [&](const Shape& shape, DType dtype = DType::kFloat32) {
      return numbers(rank.context, shape, dtype, 1);
    };
    // One rank alone asks, so that a signal would be left over.
    if (rank.rank == 0) {
      const auto gather = [&](const Tensor& a, const Tensor& b, std::int64_t dim,
                              FusedOptions options = {}) {
        return refusal([&] { fused_all_gather_matmul(rank.group, a, {&b, 1}, dim, options); });
      };
      EXPECT_THAT(gather(make({6}), make({6, 5}), 0),
                  HasSubstr("A has shape [6], expected at least 2"));
      EXPECT_THAT(gather(make({3, 6}), make({6}), 0),
                  HasSubstr("B has shape [6], expected 2 dims"));
      EXPECT_THAT(gather(make({3, 6}), make({5, 2}), 0), HasSubstr("inner sizes are 6 and 5"));
      EXPECT_THAT(gather(make({3, 6}), make({6, 2}), 2),
                  HasSubstr("gather_dim is 2, expected -2 to 1"));
      EXPECT_THAT(gather(make({3, 6}), make({6, 2}), -3), HasSubstr("gather_dim is -3"));
      EXPECT_THAT(gather(make({3, 6}), make({6, 2}, DType::kBFloat16), 0),
                  HasSubstr("A is float32 and B bfloat16"));
      EXPECT_THAT(gather(make({3, 6}), make({6, 2}), 0, {17}),
                  HasSubstr("17 splits, expected 1 to 16"));
      EXPECT_THAT(gather(make({3, 6}), make({6, 2}), 0, {-1}), HasSubstr("-1 splits"));
      EXPECT_THAT(refusal([&] {
                    fused_all_gather_matmul(rank.group, make({3, 6}), {}, 0);
                  }),
                  HasSubstr("no B"));
      const Tensor b = make({6, 2});
      const DType two[] = {DType::kFloat32, DType::kFloat32};
      EXPECT_THAT(refusal([&] {
                    fused_all_gather_matmul(rank.group, make({3, 6}), {&b, 1}, 0, {}, two);
                  }),
                  HasSubstr("2 out_dtypes for 1 Bs"));
      EXPECT_THAT(refusal([&] {
                    fused_matmul_reduce_scatter(rank.group, make({3, 6}), b, ReduceOp::kMax, 0);
                  }),
                  HasSubstr("reduce_op is max, expected sum or avg"));
      EXPECT_THAT(refusal([&] {
                    fused_matmul_reduce_scatter(rank.group, make({3, 6}), b, ReduceOp::kSum, 4);
                  }),
                  HasSubstr("scatter_dim is 4"));
    }
    const Tensor a = make({3, 6}), b = make({6, 2});
    const Tensor got =
        fused_all_gather_matmul(rank.group, part_of(a, 0, rank), {&b, 1}, 0).products[0];
    expect_near(got, product_tensor(a, b), 1e-5, 1e-5, "afterwards");
  });
}

TEST(FusedMatmulRefusals, RanksThatDifferAreRefusedOnAllOfThem) {
  run_fused(3, [](FusedRank& rank) {
    const auto make = [&](const Shape& shape, DType dtype = DType::kFloat32) {
      return numbers(rank.context, shape, dtype, 1);
    };
    const bool odd = rank.rank == 1;
    const Tensor b = make({6, 2});
    EXPECT_THAT(refusal([&] {
                  fused_all_gather_matmul(rank.group, make({odd ? 4 : 3, 2, 6}), {&b, 1}, 1);
                }),
                HasSubstr("rank 1 is in"));
    EXPECT_THAT(refusal([&] {
                  fused_all_gather_matmul(rank.group, make({3, 6}), {&b, 1}, 0, {odd ? 2 : 1});
                }),
                HasSubstr("in 2 splits"));
    const Tensor half = make({6, 2}, DType::kFloat16);
    EXPECT_THAT(refusal([&] {
                  fused_all_gather_matmul(rank.group,
                                          make({3, 6}, odd ? DType::kFloat16 : DType::kFloat32),
                                          {odd ? &half : &b, 1}, 0);
                }),
                HasSubstr("float16"));
    EXPECT_THAT(refusal([&] {
                  fused_matmul_reduce_scatter(rank.group, make({3, 6}), b,
                                              odd ? ReduceOp::kAvg : ReduceOp::kSum, 0);
                }),
                HasSubstr("reduce_op is 3 on rank 1 and 0 on rank 0"));
    EXPECT_THAT(refusal([&] {
                  if (odd)
                    fused_matmul_reduce_scatter(rank.group, make({3, 6}), b, ReduceOp::kSum, 0);
                  else
                    fused_all_gather_matmul(rank.group, make({3, 6}), {&b, 1}, 0);
                }),
                HasSubstr("rank 1 is in fused_matmul_reduce_scatter"));
    // The joined inner size is known together only.
    EXPECT_THAT(refusal([&] {
                  fused_all_gather_matmul(rank.group, make({3, 3}), {&b, 1}, 1);
                }),
                HasSubstr("inner sizes are 9 and 6"));
    const Tensor got = fused_all_gather_matmul(rank.group, make({1, 6}), {&b, 1}, 0).products[0];
    EXPECT_EQ(got.shape(), (Shape{3, 2}));
  });
}

}  // namespace
}  // namespace meshloom::comm
