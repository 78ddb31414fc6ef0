// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernels/base/error.h"
#include "planner/attention/schedule.h"
#include "tests/unit/planner/attention/random_rows.h"

namespace meshloom::planner::test {
namespace {

constexpr LoadBalancer kBalanced[] = {LoadBalancer::kHeadTail, LoadBalancer::kPerDocument,
                                      LoadBalancer::kMaskArea, LoadBalancer::kAuto};

void expect_a_sharding(const std::vector<IndexRanges>& parts, std::int64_t size) {
  std::vector<int> held(static_cast<std::size_t>(size), 0);
  const auto ranks = static_cast<std::int64_t>(parts.size());
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const std::int64_t tokens = total_size(parts[r]);
    ASSERT_EQ(tokens, size / ranks + (static_cast<std::int64_t>(r) < size % ranks ? 1 : 0));
    for (const ShardRange& range : parts[r])
      for (std::int64_t i = range.begin; i < range.end; ++i) ++held[static_cast<std::size_t>(i)];
  }
  ASSERT_TRUE(std::all_of(held.begin(), held.end(), [](int times) { return times == 1; }));
}

std::shared_ptr<const SequenceDocuments> packed(Generator& generator, std::int64_t size,
                                                std::int64_t shortest, std::int64_t longest) {
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; static_cast<std::int64_t>(ids.size()) < size; ++id) {
    // As many short documents as long ones, by magnitude.
    const double exponent = std::uniform_real_distribution<double>(
        std::log(static_cast<double>(shortest)), std::log(static_cast<double>(longest)))(generator);
    const auto length = static_cast<std::int64_t>(std::exp(exponent));
    for (std::int64_t i = 0; i < length && static_cast<std::int64_t>(ids.size()) < size; ++i)
      ids.push_back(id);
  }
  return std::make_shared<SequenceDocuments>(ids);
}

TEST(LoadBalancer, EveryTokenIsHeldOnceAndRanksHoldAsMany) {
  Generator generator(3);
  for (int i = 0; i < 400; ++i) {
    const std::int64_t size = draw(generator, 0, 90);
    const int ranks = static_cast<int>(draw(generator, 1, 9));
    RowMask row{random_mask(generator), nullptr};
    row.documents = std::make_shared<SequenceDocuments>(random_ids(generator, size, 20));
    for (const LoadBalancer balancer : kBalanced)
      ASSERT_NO_FATAL_FAILURE(expect_a_sharding(balanced_parts(balancer, size, ranks, row), size));
  }
}

TEST(LoadBalancer, HeadTailIsTheZigzagOfTwoChunksARank) {
  const auto parts = balanced_parts(LoadBalancer::kHeadTail, 16, 4, {});
  EXPECT_EQ(parts[0], (IndexRanges{{0, 2}, {14, 16}}));
  EXPECT_EQ(parts[3], (IndexRanges{{6, 10}}));
}

TEST(LoadBalancer, HeadTailBalancesACausalMaskForEverySize) {
  const RowMask causal{{.is_causal = true}, nullptr};
  for (const int ranks : {2, 3, 4, 5, 6, 8, 16, 64}) {
    double worst = 1.0;
    for (std::int64_t size = 128 * ranks; size < 128 * ranks + 2 * ranks; ++size)
      worst = std::min(
          worst, balance_of(balanced_parts(LoadBalancer::kHeadTail, size, ranks, causal), causal));
    std::printf("head_tail, causal, %d ranks of 128 tokens and more: %.4f\n", ranks, worst);
    EXPECT_GE(worst, ranks <= 6 ? 0.9935 : 0.99) << ranks;
  }
}

TEST(LoadBalancer, WithoutAMaskWorkIsAsEvenAsTokens) {
  for (const int ranks : {2, 3, 7}) {
    const auto parts = balanced_parts(LoadBalancer::kHeadTail, 1003, ranks, {});
    EXPECT_DOUBLE_EQ(balance_of(parts, {}), 1003.0 / ranks / std::ceil(1003.0 / ranks)) << ranks;
  }
}

TEST(LoadBalancer, WindowsAreBalancedByArea) {
  for (const int ranks : {2, 4, 5}) {
    const RowMask row{{.is_causal = true, .window_left = 300}, nullptr};
    EXPECT_GE(balance_of(balanced_parts(LoadBalancer::kMaskArea, 4096, ranks, row), row), 0.98);
  }
}

TEST(LoadBalancer, LayersWithAndWithoutAWindowAreBalancedTogether) {
  const RowMask causal{{.is_causal = true}, nullptr};
  for (const std::vector<LayerWindow>& layers :
       {std::vector<LayerWindow>{{1023, 32}}, {{-1, 2}, {299, 4}}, {{-1, 7}, {511, 21}}})
    for (const int ranks : {2, 4, 5}) {
      const auto parts = balanced_parts(LoadBalancer::kMaskArea, 4096, ranks, causal, layers);
      expect_a_sharding(parts, 4096);
      EXPECT_GE(balance_of(parts, causal, layers), 0.98) << ranks;
      EXPECT_GT(
          balance_of(parts, causal, layers),
          balance_of(balanced_parts(LoadBalancer::kNone, 4096, ranks, causal), causal, layers));
    }
  // As many layers that are all alike change nothing.
  EXPECT_EQ(balanced_parts(LoadBalancer::kMaskArea, 1000, 3, causal, {{-1, 12}}),
            balanced_parts(LoadBalancer::kMaskArea, 1000, 3, causal));
  EXPECT_EQ(balance_of({{{0, 4}}, {{4, 8}}}, causal, {{-1, 1}, {0, 3}}),
            (36.0 + 3 * 8) / 2 / (26 + 3 * 4));
}

TEST(LoadBalancer, AutoTakesAreasWhereTheyAreMoreEven) {
  Generator generator(6);
  const RowMask causal{{.is_causal = true}, nullptr};
  EXPECT_EQ(chosen_balancer(4096, 4, causal), LoadBalancer::kHeadTail);
  EXPECT_EQ(chosen_balancer(4096, 4, {{}, nullptr}), LoadBalancer::kHeadTail)
      << "nothing is masked";
  EXPECT_EQ(chosen_balancer(4096, 4, {{.is_causal = true}, packed(generator, 4096, 64, 900)}),
            LoadBalancer::kPerDocument);
  // A window about as wide as a rank's stretches leaves the first rank less to do; one that is far
  // narrower, or wider than the sequence, does not.
  const std::vector<LayerWindow> wide{{1023, 4}}, narrow{{15, 4}}, wider{{4095, 4}};
  EXPECT_EQ(chosen_balancer(4096, 4, causal, wide), LoadBalancer::kMaskArea);
  EXPECT_EQ(chosen_balancer(4096, 4, causal, narrow), LoadBalancer::kHeadTail);
  EXPECT_EQ(chosen_balancer(4096, 4, causal, wider), LoadBalancer::kHeadTail);
  EXPECT_EQ(chosen_balancer(4096, 1, causal, wide), LoadBalancer::kHeadTail) << "one rank";
  // A row's own window counts as that of all layers.
  const RowMask windowed{{.is_causal = true, .window_left = 1023}, nullptr};
  EXPECT_EQ(chosen_balancer(4096, 4, windowed), LoadBalancer::kMaskArea);
  EXPECT_EQ(balanced_parts(LoadBalancer::kAuto, 4096, 4, windowed),
            balanced_parts(LoadBalancer::kMaskArea, 4096, 4, windowed));
  // Whatever is chosen is never the less even of the two by more than the margin.
  for (const std::int64_t window : {3, 60, 300, 511, 700, 2000})
    for (const int ranks : {2, 3, 5, 8}) {
      const std::vector<LayerWindow> layers{{-1, 2}, {window, 5}};
      const auto balance = [&](LoadBalancer balancer) {
        return balance_of(balanced_parts(balancer, 3001, ranks, causal, layers), causal, layers);
      };
      const bool by_area = chosen_balancer(3001, ranks, causal, layers) == LoadBalancer::kMaskArea;
      EXPECT_EQ(by_area, balance(LoadBalancer::kMaskArea) > balance(LoadBalancer::kHeadTail) + 0.01)
          << window << " " << ranks;
    }
}

TEST(LoadBalancer, OrdersByRowDifferOnlyWhereDocumentsDo) {
  Generator generator(5);
  const AttentionMask causal{.is_causal = true};
  const DimOrderPtr one =
      balanced_order(LoadBalancer::kAuto, 32, 2, 0, {{causal, {}}, {causal, {}}});
  EXPECT_FALSE(one->by_row());
  const auto documents = [&] { return packed(generator, 32, 3, 20); };
  const DimOrderPtr two =
      balanced_order(LoadBalancer::kAuto, 32, 2, 0, {{causal, documents()}, {causal, documents()}});
  EXPECT_TRUE(two->by_row());
  EXPECT_EQ(balanced_order(LoadBalancer::kNone, 32, 2, 0, {{causal, {}}}), nullptr);
  EXPECT_EQ(balanced_order(LoadBalancer::kHeadTail, 32, 1, 0, {{causal, {}}}), nullptr);
}

TEST(LoadBalancer, RefusesWhatDoesNotFit) {
  EXPECT_THROW(balanced_parts(LoadBalancer::kPerDocument, 8, 2, {}), InvalidArgument);
  const std::vector<std::int64_t> ids(7, 0);
  const RowMask other{{}, std::make_shared<SequenceDocuments>(ids)};
  EXPECT_THROW(balanced_parts(LoadBalancer::kHeadTail, 8, 2, other), InvalidArgument);
  EXPECT_EQ(find_load_balancer("tail_head"), std::nullopt);
  for (const LoadBalancer balancer : kBalanced)
    EXPECT_EQ(find_load_balancer(to_string(balancer)), balancer);
}

}  // namespace
}  // namespace meshloom::planner::test
