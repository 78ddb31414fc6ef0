// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/collectives.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "daemon/dtensor/api/factories.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "planner/shard.h"
#include "tests/support/device_ranks.h"
#include "tests/support/tensor_elements.h"
#include "tests/unit/dtensor/engine_rank.h"

namespace meshloom::dtensor {
namespace {

using test::EngineRank;
using test::error_text;
using test::on_engine_mesh;

using Values = std::vector<double>;

/// Element i of what rank r has; different for everyone.
double value(int rank, std::int64_t i) {
  return std::sin(1.0 + 3.1 * rank + 0.7 * static_cast<double>(i));
}
/// What rank r's loss takes element i of its result by.
double weight(int rank, std::int64_t i) {
  return std::cos(0.3 + 1.7 * rank + 0.9 * static_cast<double>(i));
}

Tensor make(EngineRank& rank, const Shape& shape, double (*at)(int, std::int64_t)) {
  Values values;
  for (std::int64_t i = 0; i < numel(shape); ++i) values.push_back(at(rank.mesh.rank(), i));
  return from_values(rank.context, shape, std::span<const double>(values), DType::kFloat64);
}

using Call = std::function<Tensor(const Tensor&, comm::ProcessGroup&)>;

/// The loss of all ranks together.
double total_loss(EngineRank& rank, const Tensor& y) {
  const Tensor loss =
      ops::reshape(ops::sum(ops::mul(y, make(rank, y.shape(), weight))), {1}).detach();
  const Tensor sum = meshloom::empty(rank.context, {1}, DType::kFloat64);
  copy_into(sum, loss);
  rank.mesh.group(0).all_reduce(sum.view(), comm::ReduceOp::kSum)->wait_host();
  return sum.item();
}

/// Gradients against central differences of the loss of all ranks, one element of one rank after
/// the other.
void check_gradient(EngineRank& rank, const Shape& shape, const Call& call) {
  comm::ProcessGroup& group = rank.mesh.group(0);
  Tensor x = make(rank, shape, value);
  x.set_requires_grad(true);
  const Tensor y = call(x, group);
  ASSERT_TRUE(y.requires_grad());
  const Tensor dy = make(rank, y.shape(), weight);
  autograd::backward(std::span(&y, 1), std::span(&dy, 1));
  const Values grad = x.grad() ? x.grad().to_vector() : Values();
  ASSERT_EQ(static_cast<std::int64_t>(grad.size()), numel(shape));

  const Tensor most = from_values(rank.context, {1}, std::vector<std::int64_t>{numel(shape)});
  group.all_reduce(most.view(), comm::ReduceOp::kMax)->wait_host();
  constexpr double kStep = 1e-4;
  for (int other = 0; other < group.size(); ++other) {
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(most.item()); ++i) {
      double losses[2];
      for (const int sign : {0, 1}) {
        Tensor moved = make(rank, shape, value);
        if (other == group.rank() && i < numel(shape))
          testing::add_to_element(moved, i, sign == 0 ? kStep : -kStep);
        losses[sign] = total_loss(rank, call(moved, group));
      }
      if (other == group.rank() && i < numel(shape)) {
        EXPECT_NEAR(grad[static_cast<std::size_t>(i)], (losses[0] - losses[1]) / (2 * kStep), 1e-7)
            << "element " << i << " of rank " << other;
      }
    }
  }
}

TEST(Collectives, AllReduce) {
  on_engine_mesh({3}, [](EngineRank& rank) {
    comm::ProcessGroup& group = rank.mesh.group(0);
    const Shape shape{2, 3};
    const auto expected = [&](const std::function<double(double, double)>& fold, double scale) {
      Values values;
      for (std::int64_t i = 0; i < 6; ++i)
        values.push_back(fold(fold(value(0, i), value(1, i)), value(2, i)) * scale);
      return values;
    };
    const auto add = [](double a, double b) { return a + b; };
    const auto larger = [](double a, double b) { return std::max(a, b); };
    const auto smaller = [](double a, double b) { return std::min(a, b); };
    const Tensor x = make(rank, shape, value);
    EXPECT_EQ(all_reduce(x, group).to_vector(), expected(add, 1.0));
    EXPECT_EQ(all_reduce(x, group, Reduction::kAvg).to_vector(), expected(add, 1.0 / 3));
    EXPECT_EQ(all_reduce(x, group, Reduction::kMax).to_vector(), expected(larger, 1.0));
    EXPECT_EQ(all_reduce(x, group, Reduction::kMin).to_vector(), expected(smaller, 1.0));
    EXPECT_EQ(x.to_vector(), make(rank, shape, value).to_vector());
    for (const Reduction kind : {Reduction::kSum, Reduction::kAvg})
      check_gradient(rank, shape, [kind](const Tensor& t, comm::ProcessGroup& g) {
        return all_reduce(t, g, kind);
      });
  });
}

TEST(Collectives, AllGather) {
  on_engine_mesh({3}, [](EngineRank& rank) {
    comm::ProcessGroup& group = rank.mesh.group(0);
    // Rank 1 has nothing.
    const RankSizes sizes = {2, 0, 3};
    const std::int64_t mine = sizes[static_cast<std::size_t>(rank.mesh.rank())];
    const Tensor rows = all_gather(make(rank, {mine, 2}, value), 0, group);
    EXPECT_EQ(rows.to_vector(),
              (Values{value(0, 0), value(0, 1), value(0, 2), value(0, 3), value(2, 0), value(2, 1),
                      value(2, 2), value(2, 3), value(2, 4), value(2, 5)}));
    rank.mesh.reset_counters();
    const Tensor columns = all_gather(make(rank, {2, mine}, value), -1, group, sizes);
    EXPECT_EQ(rank.calls("all_gather"), 1u);
    EXPECT_EQ(columns.to_vector(),
              (Values{value(0, 0), value(0, 1), value(2, 0), value(2, 1), value(2, 2), value(0, 2),
                      value(0, 3), value(2, 3), value(2, 4), value(2, 5)}));
    for (const std::int64_t dim : {0, 1})
      check_gradient(
          rank, dim == 0 ? Shape{mine, 2} : Shape{2, mine},
          [dim](const Tensor& t, comm::ProcessGroup& g) { return all_gather(t, dim, g); });
  });
}

TEST(Collectives, ReduceScatter) {
  on_engine_mesh({3}, [](EngineRank& rank) {
    comm::ProcessGroup& group = rank.mesh.group(0);
    const int me = rank.mesh.rank();
    for (const RankSizes& sizes : {RankSizes{}, RankSizes{0, 4, 1}}) {
      const Tensor x = make(rank, {5, 2}, value);
      const Tensor y = reduce_scatter(x, 0, group, Reduction::kAvg, sizes);
      std::int64_t begin = 0, end = 0;
      for (int r = 0; r <= me; ++r) {
        begin = end;
        end += sizes.empty() ? planner::shard_range(5, 3, r).size()
                             : sizes[static_cast<std::size_t>(r)];
      }
      ASSERT_EQ(y.shape(), (Shape{end - begin, 2}));
      const Values seen = y.to_vector();
      for (std::size_t i = 0; i < seen.size(); ++i) {
        const std::int64_t at = begin * 2 + static_cast<std::int64_t>(i);
        EXPECT_NEAR(seen[i], (value(0, at) + value(1, at) + value(2, at)) / 3, 1e-15);
      }
      for (const Reduction kind : {Reduction::kSum, Reduction::kAvg})
        check_gradient(rank, {2, 5}, [&](const Tensor& t, comm::ProcessGroup& g) {
          return reduce_scatter(t, 1, g, kind, sizes);
        });
    }
  });
}

TEST(Collectives, AllToAll) {
  on_engine_mesh({3}, [](EngineRank& rank) {
    comm::ProcessGroup& group = rank.mesh.group(0);
    const int me = rank.mesh.rank();
    // Rank s sends (s + r) % 3 elements to rank r.
    const RankSizes send = {me % 3, (me + 1) % 3, (me + 2) % 3};
    Values expected;
    for (int s = 0; s < 3; ++s) {
      std::int64_t at = 0;
      for (int r = 0; r < me; ++r) at += (s + r) % 3;
      for (int i = 0; i < (s + me) % 3; ++i) expected.push_back(value(s, at + i));
    }
    EXPECT_EQ(all_to_all(make(rank, {3}, value), 0, group, send).to_vector(), expected);
    EXPECT_EQ(all_to_all(make(rank, {7, 2}, value), 0, group).shape(),
              (Shape{3 * planner::shard_range(7, 3, me).size(), 2}));
    check_gradient(rank, {2, 3}, [&](const Tensor& t, comm::ProcessGroup& g) {
      return all_to_all(t, 1, g, send);
    });
  });
}

TEST(Collectives, Broadcast) {
  on_engine_mesh({3}, [](EngineRank& rank) {
    const Tensor y = broadcast(make(rank, {2, 2}, value), 1, rank.mesh.group(0));
    EXPECT_EQ(y.to_vector(), (Values{value(1, 0), value(1, 1), value(1, 2), value(1, 3)}));
    check_gradient(rank, {2, 2},
                   [](const Tensor& t, comm::ProcessGroup& g) { return broadcast(t, 1, g); });
  });
}

TEST(Collectives, AlongOneDimOfAMesh) {
  on_engine_mesh({2, 3}, [](EngineRank& rank) {
    const Tensor x = meshloom::full(rank.context, {1}, rank.mesh.rank(), DType::kInt64);
    const int row = rank.mesh.coordinates()[0];
    EXPECT_EQ(all_gather(x, 0, rank.mesh.group(1)).to_vector(),
              (Values{row * 3.0, row * 3.0 + 1, row * 3.0 + 2}));
    EXPECT_EQ(all_reduce(x, rank.mesh.whole_group()).item(), 15.0);
  });
}

// Sizes are the host's, pieces the device's.
TEST(Collectives, OfUnevenPiecesOnDevices) {
  testing::run_fenced_ranks(3, [](comm::ProcessGroup& world) {
    const ExecutionContext::Options options = testing::context_of(world);
    ExecutionContext context(options);
    const Tensor mine = meshloom::full(context, {2, world.rank() + 1}, world.rank(), DType::kInt64);
    const Tensor all = all_gather(mine, 1, world);
    EXPECT_EQ(all.to_vector(), (Values{0, 1, 1, 2, 2, 2, 0, 1, 1, 2, 2, 2}));
    const Tensor exchanged = all_to_all(all, 1, world, {1, 2, 3});
    EXPECT_EQ(exchanged.to_vector(),
              Values(static_cast<std::size_t>(6 * (world.rank() + 1)), world.rank()));
  });
}

TEST(Collectives, RefuseWhatDoesNotFit) {
  on_engine_mesh({2}, [](EngineRank& rank) {
    comm::ProcessGroup& group = rank.mesh.group(0);
    Tensor x = make(rank, {4, 2}, value);
    const Tensor counts = meshloom::zeros(rank.context, {4}, DType::kInt64);
    const auto error = [](const auto& call) { return error_text<InvalidArgument>(call); };
    EXPECT_NE(error([&] { all_gather(x, 2, group); }).find("dim 2"), std::string::npos);
    EXPECT_NE(error([&] {
                reduce_scatter(x, 0, group, Reduction::kSum, {1, 1});
              }).find("[1, 1]"),
              std::string::npos);
    EXPECT_NE(error([&] { all_gather(x, 0, group, {4}); }).find("2 ranks"), std::string::npos);
    EXPECT_NE(error([&] { all_reduce(counts, group, Reduction::kAvg); }).find("int64"),
              std::string::npos);
    EXPECT_NE(error([&] { broadcast(x, 2, group); }).find("root 2"), std::string::npos);
    x.set_requires_grad(true);
    EXPECT_NE(error([&] { all_reduce(x, group, Reduction::kMax); }).find("gradient"),
              std::string::npos);
    const Tensor laid_out = zeros({4}, {rank.context, rank.engine, test::placements({"R"})});
    EXPECT_NE(error([&] { all_reduce(laid_out, group); }).find("plain"), std::string::npos);
    EXPECT_EQ(rank.calls(), 0u);
  });
}

}  // namespace
}  // namespace meshloom::dtensor
