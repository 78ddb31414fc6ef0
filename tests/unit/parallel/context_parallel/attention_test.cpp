// SPDX-License-Identifier: Apache-2.0
// Attention over sequences that are sharded over ranks, against attention of the whole on one rank,
// on random masks, documents, shapes, balancers and ways of moving keys; and against float64.
#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "daemon/comm/symm_mem/tensors/symmetric_source.h"
#include "kernels/base/error.h"
#include "planner/estimate/attention_exchange.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/parallel/context_parallel/attention_problem.h"

namespace meshloom::test {
namespace {

using planner::ContextParallelPlan;
using planner::LoadBalancer;
using planner::Rotate;
using planner::test::draw;
using planner::test::Generator;

Problem random_problem(Generator& generator, int ranks) {
  Problem p;
  const std::int64_t batch = draw(generator, 1, 3), kv_heads = draw(generator, 1, 3);
  const std::int64_t length = draw(generator, 1, 40), dims = draw(generator, 1, 9);
  const bool crossed = draw(generator, 0, 3) == 0;
  p.q = {batch, kv_heads * draw(generator, 1, 3), length, dims};
  p.k = {batch, kv_heads, crossed ? draw(generator, 1, 40) : length, dims};
  p.v = {batch, kv_heads, p.k[2], draw(generator, 1, 9)};
  p.options.enable_gqa = true;
  p.options.is_causal = draw(generator, 0, 1) == 1;
  p.options.causal_bottom_right = draw(generator, 0, 2) == 0;
  if (draw(generator, 0, 3) == 0) p.options.window_left = draw(generator, 0, 12);
  if (draw(generator, 0, 3) == 0) p.options.window_right = draw(generator, 0, 12);
  p.options.alibi = draw(generator, 0, 3) == 0;
  if (draw(generator, 0, 3) == 0) {
    p.options.dropout_p = 0.3f;
    p.options.dropout_random = {static_cast<std::uint64_t>(draw(generator, 0, 99)), 3};
  }
  if (p.q[2] == p.k[2] && draw(generator, 0, 2) == 0) {
    for (std::int64_t i = 0, id = 0; i < batch * length; ++i) {
      if (draw(generator, 0, 5) == 0) id = draw(generator, -3, 3);
      p.documents.push_back(id);
    }
  }
  if (draw(generator, 0, 3) == 0) {
    const auto or_one = [&](std::int64_t size) { return draw(generator, 0, 1) == 0 ? 1 : size; };
    p.bias = {batch, or_one(p.q[1]), or_one(p.q[2]), or_one(p.k[2])};
  }
  const bool crossed_causal = p.options.is_causal && p.q[2] != p.k[2];
  do {
    p.plan.load_balancer = static_cast<LoadBalancer>(draw(generator, 0, 4));
  } while ((p.plan.load_balancer == LoadBalancer::kPerDocument && p.documents.empty()) ||
           (p.plan.load_balancer == LoadBalancer::kHeadTail && crossed_causal));
  p.plan.rotate = static_cast<Rotate>(draw(generator, 0, 4));
  if (p.plan.rotate == Rotate::kUlysses) {
    do {
      p.plan.ulysses_degree = static_cast<int>(draw(generator, 1, ranks));
    } while (ranks % p.plan.ulysses_degree != 0);
  }
  p.seed = static_cast<std::uint64_t>(draw(generator, 0, 1 << 30));
  return p;
}

class ContextAttention : public ::testing::TestWithParam<int> {};

TEST_P(ContextAttention, EqualsOneRankOnRandomProblems) {
  const int ranks = GetParam();
  on_engine_mesh({ranks}, [ranks](EngineRank& rank) {
    Generator generator(static_cast<std::uint64_t>(100 + ranks));
    for (int i = 0; i < 100; ++i) {
      const Problem p = random_problem(generator, ranks);
      SCOPED_TRACE(fmt::format("problem {}: q {} k {} v {} {} {} degree {}", i, p.q, p.k, p.v,
                               to_string(p.plan.load_balancer), to_string(p.plan.rotate),
                               p.plan.ulysses_degree));
      const Results whole = run_attention(rank, p, 0);
      parallel::enable_context_parallel(rank.engine, p.plan);
      const Results parts = run_attention(rank, p, ranks);
      ASSERT_NO_FATAL_FAILURE(expect_part(parts, whole, rank, 1e-4));
      const Results again = run_attention(rank, p, ranks);
      ASSERT_EQ(parts.values, again.values) << "another run has other bits";
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ContextAttention, ::testing::Values(1, 2, 3, 4, 5, 6));

/// The results of each rank for the same random problems, and what they copied into staging memory.
struct PathResults {
  std::vector<std::vector<Results>> by_rank;
  std::uint64_t bytes_staged = 0;
};

PathResults run_path(int ranks, comm::SharingMode sharing, bool symmetric_tensors) {
  PathResults path;
  path.by_rank.resize(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  comm::SymmetricOptions symmetric;
  symmetric.sharing = sharing;
  const auto body = [&](comm::RankRuntime& runtime) {
    const auto world =
        testing::make_test_world(runtime, {"world", std::chrono::seconds(20), nullptr, {}});
    ExecutionContext::Options options;
    if (symmetric_tensors) options.symmetric_allocator = comm::make_symmetric_allocator(*world);
    ExecutionContext context(options);
    dtensor::DeviceMesh mesh(*world, planner::MeshLayout({{"", ranks}}));
    planner::PlanCache plans;
    dtensor::DistributedEngine engine({mesh, plans});
    EngineRank rank{context, *world, mesh, engine};
    Generator generator(9);
    for (int i = 0; i < 40; ++i) {
      const Problem p = random_problem(generator, ranks);
      parallel::enable_context_parallel(engine, p.plan);
      path.by_rank[static_cast<std::size_t>(world->rank())].push_back(
          run_attention(rank, p, ranks));
    }
    const std::lock_guard lock(mutex);
    for (const auto& [name, counter] : mesh.counters()) path.bytes_staged += counter.bytes_staged;
  };
  testing::run_thread_ranks(ranks, body, std::chrono::seconds(100), symmetric);
  return path;
}

// Whether keys and gradients are read in place or come by messages changes no bit.
TEST(ContextAttentionPaths, GiveTheSameBits) {
  for (const int ranks : {2, 3, 4}) {
    const PathResults messages = run_path(ranks, comm::SharingMode::kNone, false);
    const PathResults in_place = run_path(ranks, comm::SharingMode::kAuto, true);
    const PathResults copied = run_path(ranks, comm::SharingMode::kAuto, false);
    EXPECT_EQ(in_place.bytes_staged, 0u);
    EXPECT_GT(copied.bytes_staged, 0u);
    for (std::size_t r = 0; r < messages.by_rank.size(); ++r)
      for (std::size_t i = 0; i < messages.by_rank[r].size(); ++i) {
        ASSERT_EQ(in_place.by_rank[r][i].values, messages.by_rank[r][i].values)
            << "problem " << i << " on rank " << r << " of " << ranks;
        ASSERT_EQ(copied.by_rank[r][i].values, messages.by_rank[r][i].values)
            << "problem " << i << " on rank " << r << " of " << ranks;
      }
  }
}

// On more ranks than are gathered in place keys come by messages, and gradients go round a ring.
TEST(ContextAttentionPaths, KeysOfNineRanksAreGathered) {
  constexpr int kRanks = planner::kMostGatheredInPlace + 1;
  for (const comm::SharingMode sharing : {comm::SharingMode::kNone, comm::SharingMode::kAuto}) {
    comm::SymmetricOptions symmetric;
    symmetric.sharing = sharing;
    const auto body = [&](comm::RankRuntime& runtime) {
      const auto world =
          testing::make_test_world(runtime, {"world", std::chrono::seconds(20), nullptr, {}});
      ExecutionContext::Options options;
      if (sharing == comm::SharingMode::kAuto)
        options.symmetric_allocator = comm::make_symmetric_allocator(*world);
      ExecutionContext context(options);
      dtensor::DeviceMesh mesh(*world, planner::MeshLayout({{"", kRanks}}));
      planner::PlanCache plans;
      dtensor::DistributedEngine engine({mesh, plans});
      EngineRank rank{context, *world, mesh, engine};
      Generator generator(19);
      for (int i = 0; i < 24; ++i) {
        Problem p = random_problem(generator, kRanks);
        p.plan = {p.plan.load_balancer, Rotate::kAllGather, 0};
        if (p.documents.empty()) p.q[2] = p.k[2] = p.v[2] = 100 + 13 * i;  // mostly uneven
        if (!p.bias.empty()) p.bias[2] = p.bias[3] = 1;
        SCOPED_TRACE(fmt::format("problem {}: q {} k {} v {} {}", i, p.q, p.k, p.v,
                                 to_string(p.plan.load_balancer)));
        const Results whole = run_attention(rank, p, 0);
        parallel::enable_context_parallel(engine, p.plan);
        mesh.reset_counters();
        const Results parts = run_attention(rank, p, kRanks);
        EXPECT_EQ(rank.calls("all_gather"), 2u);
        EXPECT_EQ(rank.calls("all_to_all"), static_cast<std::uint64_t>(kRanks));
        ASSERT_NO_FATAL_FAILURE(expect_part(parts, whole, rank, 1e-4));
        ASSERT_EQ(parts.values, run_attention(rank, p, kRanks).values);
      }
    };
    testing::run_thread_ranks(kRanks, body, std::chrono::seconds(100), symmetric);
  }
}

/// Positions that a rank holds in a row.
std::vector<std::int64_t> held_positions(const planner::DimOrderPtr& order, std::int64_t size,
                                         int ranks, int rank, std::int64_t row) {
  return parallel::elements(order ? order->part(rank, row)
                                  : planner::IndexRanges{planner::shard_range(size, ranks, rank)});
}

/// Keys of other ranks that some query of a rank sees, over all ranks and rows.
std::int64_t seen_of_others(const Problem& p, int ranks) {
  const Layouts layouts(p, ranks);
  std::int64_t seen = 0;
  const auto length = p.documents.empty() ? 0 : static_cast<std::size_t>(p.q[2]);
  for (std::int64_t row = 0; row < p.q[0]; ++row) {
    const auto documents =
        std::span(p.documents).subspan(static_cast<std::size_t>(row) * length, length);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto queries = held_positions(layouts.queries, p.q[2], ranks, rank, row);
      for (int other = 0; other < ranks; ++other) {
        if (other == rank) continue;
        for (const std::int64_t key : held_positions(layouts.keys, p.k[2], ranks, other, row))
          seen += std::any_of(queries.begin(), queries.end(), [&](std::int64_t query) {
            return planner::test::sees(mask_of(p), documents, query, key);
          });
      }
    }
  }
  return seen;
}

// Between hosts and inside one: keys and values that are seen go forward and backward, and of these
// alone come gradients in float32.
TEST(ContextAttentionTraffic, PullMovesTheKeysThatAreSeenAlone) {
  constexpr int kRanks = 3;
  for (const comm::SharingMode sharing : {comm::SharingMode::kNone, comm::SharingMode::kAuto}) {
    std::vector<std::uint64_t> moved(40, 0);
    std::vector<Problem> problems;
    Generator generator(21);
    while (problems.size() < moved.size()) {
      Problem p = random_problem(generator, kRanks);
      p.plan = {p.plan.load_balancer, Rotate::kPull, 0};
      problems.push_back(std::move(p));
    }
    std::mutex mutex;
    comm::SymmetricOptions symmetric;
    symmetric.sharing = sharing;
    const auto body = [&](comm::RankRuntime& runtime) {
      const auto world =
          testing::make_test_world(runtime, {"world", std::chrono::seconds(20), nullptr, {}});
      testing::TestContext context;
      dtensor::DeviceMesh mesh(*world, planner::MeshLayout({{"", kRanks}}));
      planner::PlanCache plans;
      dtensor::DistributedEngine engine({mesh, plans});
      EngineRank rank{context, *world, mesh, engine};
      std::uint64_t before = 0;
      for (std::size_t i = 0; i < problems.size(); ++i) {
        parallel::enable_context_parallel(engine, problems[i].plan);
        run_attention(rank, problems[i], kRanks);
        const std::uint64_t sent = mesh.counters()["all_to_all"].bytes_sent;
        const std::lock_guard lock(mutex);
        moved[i] += sent - std::exchange(before, sent);
      }
    };
    testing::run_thread_ranks(kRanks, body, std::chrono::seconds(100), symmetric);
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const Problem& p = problems[i];
      const auto bytes = static_cast<std::int64_t>(2 * dtype_size(p.dtype)) + 4;
      EXPECT_EQ(moved[i], static_cast<std::uint64_t>(seen_of_others(p, kRanks) * p.k[1] *
                                                     (p.k[3] + p.v[3]) * bytes))
          << fmt::format("problem {}: q {} k {}", i, p.q, p.k);
    }
  }
}

/// Attention of random q, k and v over two ranks in the order that the documents ask for.
void attend(EngineRank& rank, const Tensor& ids, const planner::DimOrderPtr& order,
            const ops::SdpaOptions& given) {
  const SpecPtr spec =
      rank.engine.intern(make_spec(rank.mesh, {"S(2)"}, {2, 2, ids.size(1), 4}, {}, {order}));
  const auto make = [&](std::uint64_t seed) {
    return dtensor::from_local(
        random_tensor(rank.context, spec->local_shape(rank.mesh.coordinates()), DType::kFloat32,
                      seed),
        rank.engine, spec);
  };
  ops::SdpaOptions options = given;
  options.document_ids = dtensor::from_local(
      ids, rank.engine, rank.engine.intern(make_spec(rank.mesh, {"R"}, ids.shape())));
  ops::scaled_dot_product_attention(make(1), make(2), make(3), options);
}

TEST(ContextAttentionPlan, IsMadeOnceForTheCallsOfABatch) {
  on_engine_mesh({2}, [](EngineRank& rank) {
    const auto plans =
        parallel::enable_context_parallel(rank.engine, {LoadBalancer::kNone, Rotate::kPull, 0});
    ops::SdpaOptions causal;
    causal.is_causal = true;
    const std::vector<std::int64_t> values{0, 0, 0, 1, 1, 1, 0, 0, 2, 2, 2, 2};
    const auto ids = [&] {
      return from_values(rank.context, {2, 6}, std::span<const std::int64_t>(values));
    };
    const Tensor of_batch = ids();
    for (int layer = 0; layer < 5; ++layer) attend(rank, of_batch, nullptr, causal);
    EXPECT_EQ(plans->made(), 1);
    EXPECT_EQ(plans->documents().reads(), 1);
    // Layers with a window of their own share the documents.
    ops::SdpaOptions window = causal;
    window.window_left = 2;
    for (int layer = 0; layer < 4; ++layer)
      attend(rank, of_batch, nullptr, layer % 2 == 0 ? window : causal);
    EXPECT_EQ(plans->made(), 2);
    EXPECT_EQ(plans->documents().reads(), 1);
    // Another order of the same documents, then other documents in the memory of the next batch.
    attend(rank, of_batch, planner::DimOrder::listed(6, {{{0, 1}, {4, 6}}, {{1, 4}}}), causal);
    EXPECT_EQ(plans->made(), 3);
    for (int batch = 1; batch <= 20; ++batch) {
      attend(rank, ids(), nullptr, causal);
      EXPECT_EQ(plans->made(), 3 + batch);
      EXPECT_EQ(plans->documents().reads(), 1 + batch);
    }
  });
}

// What the planner counts on, by which it chooses between the ways: calls, and bytes over all
// ranks.
TEST(ContextAttentionTraffic, IsThatOfThePlanner) {
  for (const auto& [rotate, degree] : {std::pair{Rotate::kPull, 0},
                                       {Rotate::kAllGather, 0},
                                       {Rotate::kAllToAll, 0},
                                       {Rotate::kUlysses, 4},
                                       {Rotate::kUlysses, 2}}) {
    Problem p;
    p.q = {2, 8, 64, 6};
    p.k = {2, 4, 64, 6};
    p.v = {2, 4, 64, 10};
    p.options.is_causal = p.options.enable_gqa = true;
    p.plan = {LoadBalancer::kHeadTail, rotate, degree};
    std::map<std::string, std::uint64_t> calls, bytes, wanted_calls, wanted_bytes;
    std::mutex mutex;
    on_engine_mesh({4}, [&](EngineRank& rank) {
      parallel::enable_context_parallel(rank.engine, p.plan);
      run_attention(rank, p, 4);
      const std::lock_guard lock(mutex);
      for (const auto& [name, counter] : rank.mesh.counters()) {
        if (rank.world.rank() == 0) calls[name] = counter.calls;
        bytes[name] += counter.bytes_sent;
      }
    });
    const planner::AttentionSizes sizes{
        .rows = 2, .tokens = 64, .heads = 8, .kv_heads = 4, .dims = 6, .dims_v = 10, .ranks = 4};
    for (const planner::AttentionExchange& e : planner::attention_exchanges(sizes, p.plan)) {
      const std::string name =
          e.kind == planner::CollectiveKind::kAllGather ? "all_gather" : "all_to_all";
      wanted_calls[name] += static_cast<std::uint64_t>(e.calls);
      wanted_bytes[name] += static_cast<std::uint64_t>(4 * e.calls * e.elements * e.element_bytes);
    }
    std::erase_if(calls, [](const auto& entry) { return entry.second == 0; });
    std::erase_if(bytes, [](const auto& entry) { return entry.second == 0; });
    EXPECT_EQ(calls, wanted_calls) << to_string(rotate) << " " << degree;
    EXPECT_EQ(bytes, wanted_bytes) << to_string(rotate) << " " << degree;
  }
}

TEST(ContextAttentionPlan, RefusesDegreesThatDoNotDivide) {
  on_engine_mesh({2}, [](EngineRank& rank) {
    EXPECT_THROW(
        parallel::enable_context_parallel(rank.engine, {LoadBalancer::kNone, Rotate::kPull, 2}),
        InvalidArgument);
    parallel::enable_context_parallel(rank.engine, {LoadBalancer::kNone, Rotate::kUlysses, 5});
    Problem p;
    p.q = p.k = p.v = {1, 2, 6, 4};
    p.plan.load_balancer = LoadBalancer::kNone;
    EXPECT_NE(
        error_text<InvalidArgument>([&] { run_attention(rank, p, 2); }).find("ulysses_degree 5"),
        std::string::npos);
  });
}

}  // namespace
}  // namespace meshloom::test
