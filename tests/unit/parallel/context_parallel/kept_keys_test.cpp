// SPDX-License-Identifier: Apache-2.0
// Attention of whole queries to keys that lie on several ranks, against attention on one rank.
#include "daemon/parallel/context_parallel/kept_keys.h"

#include <gtest/gtest.h>

#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/parallel/context_parallel/context_attention.h"
#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/shape.h"
#include "planner/attention/cache_blocks.h"
#include "tests/support/random_tensor.h"
#include "tests/unit/dtensor/engine_rank.h"
#include "tests/unit/dtensor/global_values.h"
#include "tests/unit/planner/attention/random_rows.h"

namespace meshloom::test {
namespace {

using planner::test::draw;
using planner::test::Generator;

struct Problem {
  Shape q, k, v;
  ops::SdpaOptions options;
  DType dtype = DType::kFloat32;
  planner::DimOrderPtr order;  ///< of the keys
};

/// Positions from a random one on, in blocks, or any positions to any rank; some ranks have none.
planner::DimOrderPtr random_order(Generator& generator, std::int64_t keys, int ranks) {
  std::vector<planner::IndexRanges> held(static_cast<std::size_t>(ranks));
  if (draw(generator, 0, 1) == 0) {
    const std::int64_t first = draw(generator, 0, 500);
    for (int rank = 0; rank < ranks; ++rank)
      held[static_cast<std::size_t>(rank)] =
          planner::kept_by_rank(rank, ranks, {first, first + keys});
  } else {
    for (std::int64_t begin = 0; begin < keys;) {
      const std::int64_t end = std::min(keys, begin + draw(generator, 1, 30));
      held[static_cast<std::size_t>(draw(generator, 0, ranks - 1))].push_back({begin, end});
      begin = end;
    }
  }
  return planner::DimOrder::listed(keys, std::move(held));
}

Problem random_problem(Generator& generator, int ranks) {
  Problem p;
  const std::int64_t batch = draw(generator, 1, 2), kv_heads = draw(generator, 1, 3);
  const std::int64_t queries = draw(generator, 0, 1) == 0 ? 1 : draw(generator, 1, 140);
  const std::int64_t dims = 16 * draw(generator, 1, 3);
  p.q = {batch, kv_heads * draw(generator, 1, 3), queries, dims};
  p.k = {batch, kv_heads, draw(generator, 1, 400), dims};
  p.v = {batch, kv_heads, p.k[2], 16 * draw(generator, 1, 2)};
  p.options.enable_gqa = true;
  p.options.is_causal = draw(generator, 0, 3) > 0;
  p.options.causal_bottom_right = draw(generator, 0, 3) > 0;
  if (draw(generator, 0, 3) == 0) p.options.window_left = draw(generator, 0, 60);
  p.options.alibi = draw(generator, 0, 4) == 0;
  if (draw(generator, 0, 4) == 0) {
    p.options.dropout_p = 0.3f;
    p.options.dropout_random = {static_cast<std::uint64_t>(draw(generator, 0, 99)), 3};
  }
  if (draw(generator, 0, 3) == 0) p.dtype = DType::kBFloat16;
  p.order = random_order(generator, p.k[2], ranks);
  return p;
}

/// The keys that a rank holds, of all.
Tensor kept_part(EngineRank& rank, const Tensor& whole, const planner::DimOrderPtr& order) {
  const SpecPtr spec =
      rank.engine.intern(make_spec(rank.mesh, {"S(2)"}, whole.shape(), {}, {order}));
  const std::vector<double> all = whole.to_vector();
  std::vector<double> held;
  for (const std::int64_t index : held_indices(*spec, rank.mesh.coordinates()))
    held.push_back(all[static_cast<std::size_t>(index)]);
  return dtensor::from_local(
      from_values(rank.context, spec->local_shape(rank.mesh.coordinates()), held, whole.dtype()),
      rank.engine, spec);
}

void expect_near(const Tensor& seen, const Tensor& expected, double tolerance) {
  const std::vector<double> a = local_of(seen).to_vector(), b = local_of(expected).to_vector();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;  // both -inf
    ASSERT_NEAR(a[i], b[i], tolerance * (1.0 + std::abs(b[i]))) << i;
  }
}

class KeptKeys : public ::testing::TestWithParam<int> {};

TEST_P(KeptKeys, GiveWhatOneRankGives) {
  const int ranks = GetParam();
  on_engine_mesh({ranks}, [ranks](EngineRank& rank) {
    Generator generator(static_cast<std::uint64_t>(40 + ranks));
    parallel::enable_context_parallel(rank.engine, {});
    const NoGradGuard no_grad(rank.context);
    for (int i = 0; i < 60; ++i) {
      const Problem p = random_problem(generator, ranks);
      SCOPED_TRACE(fmt::format("problem {}: q {} k {} v {}", i, p.q, p.k, p.v));
      const auto make = [&](const Shape& shape) {
        return random_tensor(rank.context, shape, generator, p.dtype, -2.0, 2.0);
      };
      const Tensor q = make(p.q), k = make(p.k), v = make(p.v);
      const Tensor whole =
          dtensor::from_local(q, rank.engine, rank.engine.intern(make_spec(rank.mesh, {"R"}, p.q)));
      const std::uint64_t before = rank.calls();
      const auto seen = ops::scaled_dot_product_attention(whole, kept_part(rank, k, p.order),
                                                          kept_part(rank, v, p.order), p.options);
      // One all_gather of results, whatever the keys are.
      EXPECT_EQ(rank.calls() - before, 1u);
      EXPECT_TRUE(seen.o.layout()->spec->replicated());
      const auto expected = ops::scaled_dot_product_attention(q, k, v, p.options);
      expect_near(seen.o, expected.o, p.dtype == DType::kFloat32 ? 1e-5 : 2e-2);
      expect_near(seen.lse, expected.lse, p.dtype == DType::kFloat32 ? 1e-5 : 1e-3);
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(KeptKeys, OfManyRowsAreAttendedToAtOnce) {
  const int ranks = GetParam();
  on_engine_mesh({ranks}, [ranks](EngineRank& rank) {
    Generator generator(static_cast<std::uint64_t>(70 + ranks));
    parallel::enable_context_parallel(rank.engine, {});
    const NoGradGuard no_grad(rank.context);
    for (int i = 0; i < 30; ++i) {
      const std::int64_t rows = draw(generator, 1, 5), kv_heads = draw(generator, 1, 3);
      const std::int64_t heads = kv_heads * draw(generator, 1, 3);
      const std::int64_t dims = 8 * draw(generator, 1, 4);
      const DType dtype = draw(generator, 0, 3) == 0 ? DType::kBFloat16 : DType::kFloat32;
      const double scale = draw(generator, 0, 1) == 0 ? 0.0 : 0.3;
      const auto make = [&](const Shape& shape) {
        return random_tensor(rank.context, shape, generator, dtype, -2.0, 2.0);
      };
      const auto laid_out = [&](const Tensor& x) {
        return dtensor::from_local(x, rank.engine,
                                   rank.engine.intern(make_spec(rank.mesh, {"R"}, x.shape())));
      };
      const Tensor q = make({rows, heads, 1, dims});
      std::vector<ops::KeyValue> whole, kept;
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t keys = draw(generator, 1, draw(generator, 0, 1) == 0 ? 3 : 300);
        whole.push_back({make({1, kv_heads, keys, dims}), make({1, kv_heads, keys, dims})});
        const planner::DimOrderPtr order = random_order(generator, keys, ranks);
        kept.push_back(
            {kept_part(rank, whole.back().k, order), kept_part(rank, whole.back().v, order)});
      }
      const std::uint64_t before = rank.calls();
      const Tensor seen = ops::attention_of_rows(laid_out(q), kept, scale);
      EXPECT_EQ(rank.calls() - before, 1u) << rows << " rows";
      EXPECT_TRUE(seen.layout()->spec->replicated());
      expect_near(seen, ops::attention_of_rows(q, whole, scale),
                  dtype == DType::kFloat32 ? 1e-5 : 2e-2);
      for (std::int64_t row = 0; row < rows; ++row) {
        const Tensor one = laid_out(ops::contiguous(ops::slice(q, 0, row, row + 1)));
        const auto& [k, v] = kept[static_cast<std::size_t>(row)];
        const Tensor alone =
            ops::scaled_dot_product_attention(one, k, v, {.scale = scale, .enable_gqa = true}).o;
        EXPECT_EQ(ops::slice(local_of(seen), 0, row, row + 1).to_vector(),
                  local_of(alone).to_vector())
            << "row " << row << " of " << rows;
      }
      if (HasFailure()) return;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, KeptKeys, ::testing::Values(2, 3, 5));

// Results are not merged where a gradient is recorded.
TEST(KeptKeys, AreNotMergedForAGradient) {
  on_engine_mesh({2}, [](EngineRank& rank) {
    parallel::enable_context_parallel(rank.engine, {});
    Generator generator(5);
    const Tensor q = random_tensor(rank.context, {1, 2, 3, 16}, generator, DType::kFloat32);
    const Tensor k = random_tensor(rank.context, {1, 2, 70, 16}, generator, DType::kFloat32);
    const auto order = planner::DimOrder::listed(70, {{{0, 64}}, {{64, 70}}});
    const auto attend = [&](bool requires_grad) {
      Tensor queries = q.detach();
      queries.set_requires_grad(requires_grad);
      const Tensor whole = dtensor::from_local(
          queries, rank.engine, rank.engine.intern(make_spec(rank.mesh, {"R"}, q.shape())));
      const Tensor keys = kept_part(rank, k, order);
      return ops::scaled_dot_product_attention(whole, keys, keys, {}).o;
    };
    const Tensor recorded = attend(true), merged = attend(false);
    EXPECT_TRUE(recorded.requires_grad());
    expect_near(dtensor::full_tensor(recorded), merged, 1e-5);
  });
}

}  // namespace
}  // namespace meshloom::test
