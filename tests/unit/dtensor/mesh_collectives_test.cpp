// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/mesh_collectives.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/unit/dtensor/engine_rank.h"

namespace meshloom::test {
namespace {

Tensor numbers(EngineRank& rank, std::vector<double> values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return from_values(rank.context, shape, std::span<const double>(values), DType::kFloat32);
}

TEST(MeshCollectives, GatherAndReduceAlongTheirMeshDims) {
  on_engine_mesh({2, 3}, [](EngineRank& rank) {
    dtensor::MeshCollectives collectives(rank.mesh);
    const double row = rank.mesh.coordinates()[0], column = rank.mesh.coordinates()[1];
    EXPECT_EQ(collectives.size({1}), 3);
    EXPECT_EQ(collectives.rank({1}), rank.mesh.coordinates()[1]);
    EXPECT_EQ(collectives.rank({0, 1}), rank.mesh.rank());
    rank.mesh.reset_counters();
    const Tensor mine = numbers(rank, {row, column});
    const PendingTensorPtr gathered = collectives.all_gather(mine, {1});
    const PendingTensorPtr summed = collectives.all_reduce(mine, planner::PartialOp::kSum, {1});
    const PendingTensorPtr most = collectives.all_reduce(mine, planner::PartialOp::kMax, {0, 1});
    const Tensor stacked = gathered->wait();
    EXPECT_EQ(stacked.shape(), (Shape{3, 2}));
    EXPECT_EQ(stacked.to_vector(), (std::vector<double>{row, 0, row, 1, row, 2}));
    EXPECT_EQ(summed->wait().to_vector(), (std::vector<double>{3 * row, 3}));
    EXPECT_EQ(most->wait().to_vector(), (std::vector<double>{1, 2}));
    EXPECT_EQ(mine.to_vector(), (std::vector<double>{row, column}));
    EXPECT_EQ(rank.calls("all_gather"), 1u);
    EXPECT_EQ(rank.calls("all_reduce"), 2u);
    EXPECT_THROW(collectives.all_reduce(mine, planner::PartialOp::kAvg, {1}), InvalidArgument);
  });
}

TEST(MeshCollectives, PiecesOfAnySizeGoRoundARing) {
  on_engine_mesh({3}, [](EngineRank& rank) {
    dtensor::MeshCollectives collectives(rank.mesh);
    const int me = collectives.rank({0}), next = (me + 1) % 3, before = (me + 2) % 3;
    // Rank r begins with r elements, so that one piece is empty.
    Tensor piece = numbers(rank, std::vector<double>(static_cast<std::size_t>(me), me));
    rank.mesh.reset_counters();
    for (int step = 1; step <= 3; ++step) {
      const int comes = (me + 3 - step) % 3;
      PendingTensorPtr pending = collectives.send_recv(piece, next, before, Shape{comes}, {0});
      while (!pending->poll()) {
      }
      piece = pending->wait();
      EXPECT_EQ(piece.to_vector(),
                std::vector<double>(static_cast<std::size_t>(comes), static_cast<double>(comes)));
    }
    EXPECT_EQ(rank.calls("send_recv"), 3u);
    EXPECT_EQ(rank.calls(), 3u);
  });
}

}  // namespace
}  // namespace meshloom::test
