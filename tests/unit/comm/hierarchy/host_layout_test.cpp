// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/hierarchy/host_layout.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>
#include <string>

#include "daemon/comm/hierarchy/hierarchy_table.h"
#include "daemon/comm/mesh/group_environment.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

TEST(HostLayout, NumbersHostsByTheirLowestRanks) {
  const HostLayout layout({7, 3, 7, 3, 9}, 2);
  EXPECT_EQ(to_string(layout), "0,1,0,1,2");
  EXPECT_EQ(layout.hosts(), 3);
  EXPECT_EQ(layout.members(0), (std::vector<int>{0, 2}));
  EXPECT_EQ(layout.members(1), (std::vector<int>{1, 3}));
  EXPECT_EQ(layout.local_rank(), 1);
  EXPECT_EQ(layout.leader(1), 1);
  EXPECT_FALSE(layout.leads());
  EXPECT_EQ(layout.smallest_host(), 1);
  EXPECT_TRUE(layout.is_near(0));
  EXPECT_FALSE(layout.is_near(4));
  EXPECT_EQ(HostLayout({7, 3, 7, 3, 9}, 1).other_hosts(), (std::vector<int>{2, 0}));
}

TEST(HostLayout, DealsOtherRanksOutAmongTheMembersOfAHost) {
  const HostLayout layout({0, 0, 1, 1, 1, 1, 1}, 1);
  EXPECT_EQ(layout.handled(), (std::vector<std::vector<int>>{{0, 2, 4, 6}, {1, 3, 5}}));
  EXPECT_EQ(layout.rounds(), 4);
  EXPECT_EQ(layout.carrier(1, 0), 2);
  EXPECT_EQ(layout.carrier(1, 1), 3);
}

// What a rank sends to the member that handles it, that member expects of it.
TEST(HostLayout, AllRanksSeeTheSameAndHandleEachRankOnceOnEveryOtherHost) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<int> hosts(1 + random() % 12);
    for (int& host : hosts) host = static_cast<int>(random() % 4);
    std::vector<HostLayout> seen;
    for (std::size_t r = 0; r < hosts.size(); ++r) seen.emplace_back(hosts, static_cast<int>(r));
    const HostLayout& first = seen[0];
    for (int rank = 0; rank < first.size(); ++rank) {
      const HostLayout& own = seen[static_cast<std::size_t>(rank)];
      ASSERT_EQ(to_string(own), to_string(first));
      const auto& mine = own.handled()[static_cast<std::size_t>(own.local_rank())];
      ASSERT_EQ(mine.front(), rank);
      std::set<int> expected{rank};
      for (int other = 0; other < first.size(); ++other)
        if (!own.is_near(other) && first.carrier(own.own_host(), other) == rank)
          expected.insert(other);
      ASSERT_EQ(std::set<int>(mine.begin(), mine.end()), expected) << to_string(first);
    }
    for (int host = 0; host < first.hosts(); ++host)
      for (int rank = 0; rank < first.size(); ++rank)
        ASSERT_EQ(first.host_of(first.carrier(host, rank)), host);
  }
}

TEST(HierarchyTable, SmallSumsGoThroughLeadersUnlessAWayIsForced) {
  const HostLayout layout({0, 0, 1, 1}, 0);
  const auto way = [&](HierarchyChoice choice, std::size_t bytes) {
    return choose_way(choice, CollectiveKind::kAllReduce, bytes, layout);
  };
  EXPECT_EQ(way(HierarchyChoice::kTable, 4), HierarchyWay::kLeaders);
  EXPECT_EQ(way(HierarchyChoice::kTable, 1 << 20), HierarchyWay::kStriped);
  EXPECT_EQ(way(HierarchyChoice::kStriped, 4), HierarchyWay::kStriped);
  EXPECT_EQ(way(HierarchyChoice::kLeaders, 1 << 20), HierarchyWay::kLeaders);
  EXPECT_EQ(choose_way(HierarchyChoice::kTable, CollectiveKind::kAllReduce, 1 << 20,
                       HostLayout({0, 1, 1, 1}, 0)),
            HierarchyWay::kLeaders);
}

TEST(HierarchyTable, LargeBroadcastsAreStripedWhereEveryHostHasTwoRanks) {
  const auto way = [](std::size_t bytes, const std::vector<int>& hosts) {
    return choose_way(HierarchyChoice::kTable, CollectiveKind::kBroadcast, bytes,
                      HostLayout(hosts, 0));
  };
  EXPECT_EQ(way(1 << 20, {0, 0, 1, 1}), HierarchyWay::kLeaders);
  EXPECT_EQ(way((1 << 20) + 1, {0, 0, 1, 1}), HierarchyWay::kStriped);
  EXPECT_EQ(way(1 << 24, {0, 0, 1, 2, 2}), HierarchyWay::kLeaders);
  EXPECT_EQ(stripes_of(HierarchyWay::kStriped, HostLayout({0, 0, 0, 1, 1}, 0)), 2);
}

TEST(HierarchyEnvironment, NamesAWayOrIsRefused) {
  const auto choice = [](std::optional<std::string> text) {
    return hierarchy_from_environment([text](const std::string& name) {
             return name == "MESHLOOM_HIERARCHY" ? text : std::nullopt;
           })
        .choice;
  };
  EXPECT_EQ(choice(std::nullopt), HierarchyChoice::kTable);
  EXPECT_EQ(choice(""), HierarchyChoice::kTable);
  EXPECT_EQ(choice("auto"), HierarchyChoice::kTable);
  EXPECT_EQ(choice("leaders"), HierarchyChoice::kLeaders);
  EXPECT_EQ(choice("striped"), HierarchyChoice::kStriped);
  EXPECT_EQ(choice("off"), HierarchyChoice::kMessages);
  EXPECT_THROW(choice("trees"), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::comm
