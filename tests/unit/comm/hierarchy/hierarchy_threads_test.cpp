// SPDX-License-Identifier: Apache-2.0
// Collectives over several hosts: ranks that are threads, on pretended hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "daemon/comm/exposure.h"
#include "kernels/base/error.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/comm/collectives/collectives_body.h"
#include "tests/unit/comm/collectives/soak_body.h"
#include "tests/unit/comm/comm_fixture.h"
#include "tests/unit/comm/failure/failure_body.h"
#include "tests/unit/comm/flight/group_body.h"
#include "tests/unit/comm/hierarchy/host_sums.h"
#include "tests/unit/comm/mismatch_body.h"

namespace meshloom::comm {
namespace {

using namespace std::chrono_literals;
using testing::Check;
using testing::drawn;
using testing::ExpectedSums;
using testing::make_group;
using testing::view_of;

struct Layout {
  const char* name;
  std::vector<int> hosts;
};

const Layout kLayouts[] = {
    {"2x2", {0, 0, 1, 1}},   {"2x2_in_turn", {0, 1, 0, 1}},
    {"1and3", {0, 1, 1, 1}}, {"2and1", {0, 0, 1}},
    {"3x1", {0, 1, 2}},      {"3and1and4", {0, 2, 0, 1, 2, 2, 0, 2}},
};

/// Beside those of checks_on_any_hosts().
constexpr Check kChecks[] = {
    {"soak", testing::check_soak},
    {"failure_frees_those_who_wait", testing::check_a_failure_frees_those_who_wait},
    {"failures_at_random_places",
     [](RankRuntime& runtime) { testing::check_failures_at_random_places(runtime, 60); }},
    {"soak_after_a_failure",
     [](RankRuntime& runtime) {
       testing::check_failures_at_random_places(runtime, 1);
       testing::check_soak(runtime);
     }},
    {"failure_frees_other_groups", testing::check_a_failure_frees_other_groups},
    {"failure_that_all_share", testing::check_a_failure_that_all_share_changes_nothing},
    {"failure_of_two_ranks", testing::check_two_ranks_fail_at_once},
    {"failure_while_others_are_behind", testing::check_ranks_that_are_behind_finish},
    {"collectives_that_differ", testing::check_collectives_that_differ},
    {"many_that_differ", testing::check_many_that_differ},
};

void run_on(const Layout& layout, const std::function<void(RankRuntime&)>& body,
            SharingMode sharing = SharingMode::kAuto,
            HierarchyChoice choice = HierarchyChoice::kTable) {
  SymmetricOptions symmetric;
  symmetric.sharing = sharing;
  meshloom::testing::run_thread_ranks(static_cast<int>(layout.hosts.size()), body, 100s, symmetric,
                                      {choice, layout.hosts});
}

/// Through symmetric memory inside a host, and over rings alone.
constexpr SharingMode kModes[] = {SharingMode::kAuto, SharingMode::kNone};

/// By what the table says and by either way between hosts, in each of these modes.
void run_all_ways(const Layout& layout, const std::function<void(RankRuntime&)>& body) {
  for (const SharingMode mode : kModes)
    for (const HierarchyChoice choice :
         {HierarchyChoice::kTable, HierarchyChoice::kLeaders, HierarchyChoice::kStriped}) {
      SCOPED_TRACE(fmt::format("{} mode {} choice {}", layout.name, static_cast<int>(mode),
                               static_cast<int>(choice)));
      run_on(layout, body, mode, choice);
    }
}

class OnHosts : public ::testing::TestWithParam<std::tuple<SharingMode, Layout, Check>> {};

TEST_P(OnHosts, Collectives) {
  const auto& [mode, layout, check] = GetParam();
  run_on(layout, check.run, mode);
}

std::string name_of(const ::testing::TestParamInfo<OnHosts::ParamType>& test) {
  const auto& [mode, layout, check] = test.param;
  return fmt::format("{}_{}{}", check.name, layout.name,
                     mode == SharingMode::kNone ? "_over_rings" : "");
}

INSTANTIATE_TEST_SUITE_P(
    All, OnHosts,
    ::testing::Combine(::testing::ValuesIn(kModes), ::testing::ValuesIn(kLayouts),
                       ::testing::ValuesIn(testing::checks_on_any_hosts(kChecks))),
    name_of);

// The order is a matter of the hosts alone: not of sizes, of ways, nor of how a host shares memory.
TEST(Hierarchy, SumsAreInTheOrderOfRanksInAHostAndThenOfHosts) {
  for (const Layout& layout : kLayouts) {
    const ExpectedSums<float> one(layout.hosts, 1), some(layout.hosts, 1000),
        slices(layout.hosts, 300'011);
    const ExpectedSums<bfloat16> rounded(layout.hosts, 90'001);
    const ExpectedSums<float16> half(layout.hosts, 5001);
    const ExpectedSums<double> exact(layout.hosts, 20'001);
    run_all_ways(layout, [&](RankRuntime& runtime) {
      const auto group = make_group(runtime);
      one.compare(*group);
      some.compare(*group);
      slices.compare(*group);
      rounded.compare(*group);
      half.compare(*group);
      exact.compare(*group);
      runtime.bootstrap().barrier();
    });
  }
}

TEST(Hierarchy, SumsAreThoseOfOneHostWithinRounding) {
  constexpr std::size_t n = 200'003;
  const Layout layout = {"2x2", {0, 0, 1, 1}};
  std::vector<float> here, there;
  const auto sum_into = [&](std::vector<float>& sums) {
    return [&](RankRuntime& runtime) {
      const auto group = make_group(runtime);
      std::vector<float> values = drawn<float>(group->rank(), n);
      group->all_reduce(view_of(values), ReduceOp::kSum)->wait_host();
      if (group->rank() == 0) sums = values;
      runtime.bootstrap().barrier();
    };
  };
  run_on(layout, sum_into(there));
  run_on({"one", {5, 5, 5, 5}}, sum_into(here));
  std::vector<double> sizes(n, 0.0);
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<float> values = drawn<float>(rank, n);
    for (std::size_t i = 0; i < n; ++i) sizes[i] += std::abs(values[i]);
  }
  for (std::size_t i = 0; i < n; ++i) ASSERT_LE(std::abs(here[i] - there[i]), 1e-6 * sizes[i]) << i;
}

// From every root, of few elements and of several slices of every stripe.
TEST(Hierarchy, BroadcastsBringTheSameBytesEitherWay) {
  const auto compare = [](ProcessGroup& group, std::size_t n, int root) {
    const std::vector<std::int32_t> expected = [&] {
      std::vector<std::int32_t> values(n);
      for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<std::int32_t>(i * 7) + root;
      return values;
    }();
    std::vector<std::int32_t> values = expected;
    if (group.rank() != root) std::fill(values.begin(), values.end(), -1);
    const WorkPtr work = group.broadcast(view_of(values), root);
    // In flight with it, so that steps and tags of two collectives would meet.
    group.barrier()->wait_host();
    work->wait_host();
    ASSERT_TRUE(values == expected) << n << " elements from rank " << root;
  };
  for (const Layout& layout : kLayouts)
    run_all_ways(layout, [&](RankRuntime& runtime) {
      const auto group = make_group(runtime);
      for (int root = 0; root < group->size(); ++root)
        for (const std::size_t n : {0, 1, 5, 1000}) compare(*group, n, root);
      for (const int root : {0, group->size() - 1}) compare(*group, 1'200'007, root);
      runtime.bootstrap().barrier();
    });
}

// Every rank of a host sends, not its first one alone.
TEST(Hierarchy, AStripedBroadcastSendsAsMuchFromEveryRankOfTheRootsHost) {
  run_on({"2x2", {0, 0, 1, 1}}, [](RankRuntime& runtime) {
    const auto group = make_group(runtime);
    constexpr std::size_t n = 1 << 20;
    std::vector<float> values(n, static_cast<float>(group->rank()));
    group->broadcast(view_of(values), 1)->wait_host();
    EXPECT_EQ(values, std::vector<float>(n, 1.0f));
    const std::uint64_t sent = group->counter("broadcast").bytes_sent;
    // To the other host its stripe; inside a host what it gives the other rank there.
    const std::uint64_t whole = n * sizeof(float), stripe = whole / 2;
    const std::uint64_t expected[] = {stripe, stripe + whole, stripe, stripe};
    EXPECT_EQ(sent, expected[group->rank()]);
    runtime.bootstrap().barrier();
  });
}

// What is forced is found out and recovered from as what the table chooses.
TEST(Hierarchy, AForcedWayFindsRanksThatDiffer) {
  for (const HierarchyChoice choice : {HierarchyChoice::kLeaders, HierarchyChoice::kStriped})
    for (const Layout& layout : {kLayouts[0], kLayouts[1]}) {
      SCOPED_TRACE(fmt::format("{} choice {}", layout.name, static_cast<int>(choice)));
      run_on(layout, testing::check_collectives_that_differ, SharingMode::kAuto, choice);
    }
}

TEST(Hierarchy, ABroadcastThatIsStripedGoesThroughASoak) {
  run_on(kLayouts[0], testing::check_soak, SharingMode::kAuto, HierarchyChoice::kStriped);
}

// Groups of some ranks find their own hosts again: all on one, each on its own, or some of both.
TEST(Hierarchy, SplitsKnowTheirHosts) {
  run_on({"2x2", {0, 0, 1, 1}}, [](RankRuntime& runtime) {
    const auto world = make_group(runtime);
    EXPECT_EQ(world->hosts(), fmt::format("0,0,1,1; table {}", kHierarchyTableVersion));
    EXPECT_NE(world->symmetric_memory(), nullptr);
    const auto tp = world->split({{0, 1}, {2, 3}}, "tp");
    EXPECT_EQ(tp->hosts(), "");
    EXPECT_NE(tp->symmetric_memory(), nullptr);
    const auto dp = world->split({{0, 2}, {1, 3}}, "dp");
    EXPECT_EQ(dp->hosts(), "");
    EXPECT_EQ(dp->symmetric_memory(), nullptr);
    const auto reversed = world->split({{3, 2, 1, 0}}, "reversed");
    EXPECT_EQ(reversed->hosts(), fmt::format("0,0,1,1; table {}", kHierarchyTableVersion));
    const auto three = world->split({{1, 2, 3}, {0}}, "three");
    if (world->rank() > 0) {
      EXPECT_EQ(three->hosts(), fmt::format("0,1,1; table {}", kHierarchyTableVersion));
    }
    for (ProcessGroup* group : {tp.get(), dp.get(), reversed.get(), three.get()}) {
      std::vector<std::int32_t> values(100'000, group->rank() + 1);
      group->all_reduce(view_of(values), ReduceOp::kSum)->wait_host();
      EXPECT_EQ(values.back(), group->size() * (group->size() + 1) / 2);
    }
    // What its ranks cannot read in each other's memory, they do not expose.
    float value = 1.0f;
    const TensorView view = make_view(&value, DType::kFloat32, {1});
    EXPECT_EQ(expose(*world, CollectiveKind::kAllGather, {&view, 1}, 4), nullptr);
    runtime.bootstrap().barrier();
  });
}

// Inside a host nothing that lies in symmetric memory is copied on the way.
TEST(Hierarchy, DataInSymmetricMemoryIsNotStaged) {
  run_on({"2x2", {0, 0, 1, 1}}, [](RankRuntime& runtime) {
    const auto world = make_group(runtime);
    constexpr std::int64_t n = 500'000;
    const auto memory = world->symmetric_memory()->allocate(n * sizeof(float));
    const TensorView view = make_view(memory.get(), DType::kFloat32, {n});
    std::fill_n(view.as<float>(), n, 1.0f);
    world->all_reduce(view, ReduceOp::kSum)->wait_host();
    EXPECT_EQ(view.as<float>()[n - 1], 4.0f);
    EXPECT_EQ(world->counter("all_reduce").bytes_staged, 0u);
    std::vector<float> ordinary(n, 1.0f);
    world->all_reduce(view_of(ordinary), ReduceOp::kSum)->wait_host();
    EXPECT_GT(world->counter("all_reduce").bytes_staged, 0u);
    runtime.bootstrap().barrier();
  });
}

TEST(Hierarchy, WithoutItSumsAreInRankOrder) {
  const Layout layout = {"2x2", {0, 0, 1, 1}};
  run_on(
      layout,
      [&](RankRuntime& runtime) {
        testing::check_all_reduce_is_in_rank_order(runtime);
        EXPECT_EQ(make_group(runtime)->hosts(), "");
        runtime.bootstrap().barrier();
      },
      SharingMode::kAuto, HierarchyChoice::kMessages);
}

TEST(Hierarchy, HostsAreGivenForEveryRankOrForNone) {
  try {
    meshloom::testing::run_thread_ranks(2, [](RankRuntime&) {}, 100s, {},
                                        {HierarchyChoice::kTable, {0, 1, 0}});
    FAIL() << "three hosts were taken for two ranks";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("hosts of 3 ranks are given to a world of 2"));
  }
}

}  // namespace
}  // namespace meshloom::comm
