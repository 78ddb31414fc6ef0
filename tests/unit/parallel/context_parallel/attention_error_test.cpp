// SPDX-License-Identifier: Apache-2.0
// Errors of attention over several ranks, forward and backward, against those of attention on one,
// both measured in float64. Longer sequences: meshloom-bench attention_error.
#include <gtest/gtest.h>

#include "tests/unit/parallel/context_parallel/head_run.h"

namespace meshloom::test {
namespace {

using planner::LoadBalancer;
using planner::Rotate;

struct Grid {
  std::int64_t length, dims, dims_v;
};

class ContextAttentionError : public ::testing::TestWithParam<Grid> {};

TEST_P(ContextAttentionError, IsThatOfOneRank) {
  const Grid grid = GetParam();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const auto heads = random_heads(grid.length, grid.dims, grid.dims_v, dtype, 17);
    const auto run = [&](int on, const planner::ContextParallelPlan& by) {
      return join_heads(heads, [&](const auto& head) { return run_head(head, dtype, on, by); });
    };
    const auto exact = join_heads(heads, testing::exact_attention), one_rank = run(0, {});
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      // A ring adds gradients in another order than owners who pull do.
      const Rotate rotate = ranks % 2 == 0 ? Rotate::kPull : Rotate::kAllToAll;
      const planner::ContextParallelPlan plan{LoadBalancer::kHeadTail, rotate, 0};
      const testing::ErrorShare share = worst_share(run(ranks, plan), one_rank, exact, dtype);
      EXPECT_LE(share.rms, 1.0) << dtype_name(dtype) << " on " << ranks << " ranks";
      EXPECT_LE(share.largest, 1.0) << dtype_name(dtype) << " on " << ranks << " ranks";
    }
    const planner::ContextParallelPlan ring{LoadBalancer::kHeadTail, Rotate::kAllToAll, 0};
    const testing::AttentionResults first = run_head(heads[0], dtype, 3, ring);
    const testing::AttentionResults again = run_head(heads[0], dtype, 3, ring);
    EXPECT_EQ(first.o, again.o);
    EXPECT_EQ(first.dk, again.dk);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, ContextAttentionError,
    ::testing::Values(Grid{1, 64, 64}, Grid{1, 128, 128}, Grid{1, 192, 128}, Grid{17, 40, 40},
                      Grid{17, 64, 64}, Grid{17, 80, 80}, Grid{17, 96, 96}, Grid{17, 128, 128},
                      Grid{17, 256, 256}, Grid{17, 192, 128}, Grid{1024, 40, 40},
                      Grid{1024, 64, 64}, Grid{1024, 80, 80}, Grid{1024, 96, 96},
                      Grid{1024, 128, 128}, Grid{1024, 256, 256}, Grid{1024, 192, 128}),
    [](const auto& grid) {
      return fmt::format("S{}D{}Dv{}", grid.param.length, grid.param.dims, grid.param.dims_v);
    });

}  // namespace
}  // namespace meshloom::test
