// SPDX-License-Identifier: Apache-2.0
// The pipelines by themselves, the low-contention collectives on them, and memory orders.
#include "daemon/comm/symm_mem/fused/pipeline.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <thread>

#include "daemon/comm/symm_mem/fused/fused_matmul.h"
#include "daemon/comm/symm_mem/fused/layout.h"
#include "daemon/comm/symm_mem/fused/low_contention.h"
#include "kernels/base/error.h"
#include "tests/unit/comm/symm_mem/fused/fused_fixture.h"

namespace meshloom::comm {
namespace {

using ::testing::ElementsAreArray;
using testing::expect_equal;
using testing::FusedRank;
using ::testing::HasSubstr;
using testing::numbers;
using testing::part_of;
using testing::run_fused;

class Pipelines : public ::testing::TestWithParam<int> {};

TEST_P(Pipelines, GatherConsumesEveryShardOnceAndTheOwnOneFirst) {
  run_fused(GetParam(), [](FusedRank& rank) {
    for (int round = 0; round < 20; ++round) {
      const Tensor shard =
          full(rank.context, {(rank.rank + round) % 4, 3}, rank.rank + 10 * round, DType::kFloat32);
      if (rank.rank == round % rank.size)
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      std::vector<int> sources, expected;
      for (int step = 0; step < rank.size; ++step)
        expected.push_back((rank.rank + step) % rank.size);
      gather_and_consume(
          rank.context, rank.group, shard.view(), [&](const TensorView& view, int source) {
            sources.push_back(source);
            EXPECT_TRUE(view.contiguous());
            ASSERT_EQ(view.shape, (Shape{(source + round) % 4, 3}));
            for (std::int64_t i = 0; i < view.numel(); ++i)
              ASSERT_EQ(view.as<float>()[i], static_cast<float>(source + 10 * round));
          });
      EXPECT_THAT(sources, ElementsAreArray(expected));
    }
  });
}

TEST_P(Pipelines, ExchangeFillsEverySlotOnceAndTheOwnOneLast) {
  run_fused(GetParam(), [](FusedRank& rank) {
    for (int round = 0; round < 20; ++round) {
      const Shape whole{2, 5 + round % 7, 3};
      std::vector<int> destinations;
      int consumed = 0;
      produce_and_exchange(
          rank.group, whole, 1, DType::kInt32,
          [&](int destination, const TensorView& slot) {
            destinations.push_back(destination);
            std::fill_n(slot.as<std::int32_t>(), slot.numel(),
                        100 * rank.rank + destination + 1000 * round);
          },
          [&](std::span<const TensorView> slots) {
            ++consumed;
            ASSERT_EQ(static_cast<int>(slots.size()), rank.size);
            const std::int64_t own = planner::shard_range(whole[1], rank.size, rank.rank).size();
            for (int source = 0; source < rank.size; ++source) {
              const TensorView& slot = slots[static_cast<std::size_t>(source)];
              ASSERT_EQ(slot.shape, (Shape{2 * own, 3}));
              for (std::int64_t i = 0; i < slot.numel(); ++i)
                ASSERT_EQ(slot.as<std::int32_t>()[i], 100 * source + rank.rank + 1000 * round);
            }
          });
      EXPECT_EQ(consumed, 1);
      EXPECT_EQ(destinations.back(), rank.rank);
      std::sort(destinations.begin(), destinations.end());
      for (int r = 0; r < rank.size; ++r) EXPECT_EQ(destinations[static_cast<std::size_t>(r)], r);
    }
  });
}

TEST_P(Pipelines, LowContentionCollectivesOfAnyDType) {
  run_fused(GetParam(), [](FusedRank& rank) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kUInt8,
                              DType::kFloat64, DType::kFloat8E5M2}) {
      const Tensor whole = numbers(rank.context, {19, 2, 3}, dtype, 4, dtype != DType::kUInt8);
      expect_equal(low_contention_all_gather(rank.group, part_of(whole, 0, rank)), whole, "gather");
      expect_equal(
          low_contention_all_gather(rank.group, restride_outermost(part_of(whole, 0, rank), 2)),
          whole, "gather of other strides");
      if (dtype == DType::kFloat8E5M2) continue;
      const Tensor ones = full(rank.context, {19, 3}, 1.0, dtype);
      expect_equal(low_contention_reduce_scatter(rank.group, ones, ReduceOp::kSum),
                   part_of(full(rank.context, {19, 3}, rank.size, dtype), 0, rank), "sum");
      expect_equal(low_contention_reduce_scatter(rank.group, whole, ReduceOp::kMax),
                   part_of(whole, 0, rank), "max");
      if (!dtype_is_floating(dtype)) continue;
      expect_equal(low_contention_reduce_scatter(rank.group, ones, ReduceOp::kAvg),
                   part_of(ones, 0, rank), "avg");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Pipelines, ::testing::Values(1, 2, 3, 4, 8));

TEST(LowContention, SymmetricInputIsReadWhereItLies) {
  run_fused(3, [](FusedRank& rank) {
    ExecutionContext& context = rank.context;
    SymmetricGroup& group = rank.group;
    const Tensor shard = empty(context, {4, 5}, DType::kFloat32, MemoryKind::kSymmetric);
    const auto buffer = group.rendezvous(shard.view());
    ASSERT_NE(buffer, nullptr);
    for (int round = 0; round < 5; ++round) {
      copy_into(shard, full(context, {4, 5}, rank.rank + round, DType::kFloat32));
      const Tensor joined = low_contention_all_gather(group, shard, buffer);
      for (int r = 0; r < 3; ++r)
        expect_equal(ops::slice(joined, 0, 4 * r, 4 * r + 4),
                     full(context, {4, 5}, r + round, DType::kFloat32), "gathered");
      const Tensor sum = low_contention_reduce_scatter(group, shard, ReduceOp::kSum, buffer);
      expect_equal(sum, full(context, sum.shape(), 3.0 + 3 * round, DType::kFloat32), "sum");
    }
  });
}

TEST(LowContention, ShardsOfFusedProductsAreReadWhereTheyLie) {
  run_fused(3, [](FusedRank& rank) {
    ExecutionContext& context = rank.context;
    SymmetricGroup& group = rank.group;
    const Tensor whole = numbers(context, {4, 7, 5}, DType::kFloat32, 1, true);
    const Tensor b = numbers(context, {5, 3}, DType::kFloat32, 2, true);
    const Tensor part = part_of(whole, 1, rank);
    // The gathered dim is outermost in memory.
    const Tensor rows =
        empty(context, {part.size(1), 4, 5}, DType::kFloat32, MemoryKind::kSymmetric);
    copy_into(rows, ops::transpose(part, 0, 1));
    const Tensor shard = ops::transpose(rows, 0, 1);
    const auto buffer = group.rendezvous(rows.view());
    ASSERT_NE(buffer, nullptr);
    for (const int splits : {0, 2}) {
      FusedOptions fused{splits};
      fused.symmetric = buffer;
      const GatheredProducts got = fused_all_gather_matmul(group, shard, {&b, 1}, 1, fused);
      expect_equal(got.gathered, whole, "gathered");
      expect_equal(got.products[0], testing::product_tensor(whole, b), "product");
      EXPECT_THROW(fused_all_gather_matmul(group, empty_like(shard), {&b, 1}, 1, fused),
                   InvalidArgument);
    }
  });
}

TEST(LowContention, RefusesWhatHasNoReductionBeforeAnythingIsWritten) {
  run_fused(2, [](FusedRank& rank) {
    const Tensor integers = full(rank.context, {4}, 1.0, DType::kInt32);
    const Tensor eight = full(rank.context, {4}, 1.0, DType::kFloat8E4M3);
    if (rank.rank == 1) {
      EXPECT_THROW(low_contention_reduce_scatter(rank.group, integers, ReduceOp::kAvg),
                   InvalidArgument);
      EXPECT_THROW(low_contention_reduce_scatter(rank.group, eight, ReduceOp::kSum), Unimplemented);
    }
    EXPECT_EQ(low_contention_all_gather(rank.group, integers).shape(), Shape{8});
    try {
      low_contention_reduce_scatter(
          rank.group, full(rank.context, {4 + rank.rank}, 1.0, DType::kInt32), ReduceOp::kSum);
      ADD_FAILURE() << "rows that differ were taken";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("the number of rows is 5 on rank 1 and 4 on rank 0"));
    }
  });
}

TEST(Restride, MakesTheDimOutermostAndKeepsTheValues) {
  ExecutionContext context;
  const Tensor x = numbers(context, {8, 6, 4, 3}, DType::kFloat32, 1);
  for (const std::int64_t dim : {0, 1, 2, 3, -1, -3}) {
    const Tensor y = restride_outermost(x, dim);
    expect_equal(y, x, "values");
    const int first = static_cast<int>(dim < 0 ? dim + 4 : dim);
    EXPECT_TRUE(with_dim_first(y.view(), first).contiguous()) << dim;
    EXPECT_EQ(restride_outermost(y, dim).view().data, y.view().data) << "copied again";
  }
  EXPECT_TRUE(restride_shard_for_gather(x, -1).contiguous());
  EXPECT_TRUE(with_dim_first(restride_for_scatter(x, 1).view(), 1).contiguous());
}

}  // namespace
}  // namespace meshloom::comm
