// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/merge_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace meshloom::text {
namespace {

/// By looking for the smallest rank again and again.
std::vector<TokenId> brute_force(const MergeTable& table, std::vector<TokenId> symbols) {
  while (true) {
    MergeTable::Merge best;
    std::size_t place = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
      if (const auto merge = table.find(symbols[i], symbols[i + 1]); merge.rank < best.rank) {
        best = merge;
        place = i;
      }
    if (!best) return symbols;
    symbols[place] = best.joined;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

/// Merges of `letters` symbols, each of two that there are, in an order that training would give,
/// or in any.
MergeTable random_table(std::mt19937& random, TokenId letters, bool trained) {
  std::vector<std::pair<TokenId, TokenId>> pairs;
  for (TokenId next = letters; next < letters + 30; ++next)
    pairs.emplace_back(random() % next, random() % next);
  std::vector<std::uint32_t> ranks(pairs.size());
  for (std::uint32_t i = 0; i < ranks.size(); ++i) ranks[i] = i;
  if (!trained) std::shuffle(ranks.begin(), ranks.end(), random);
  MergeTable table;
  for (std::size_t i = 0; i < pairs.size(); ++i)
    table.add(pairs[i].first, pairs[i].second, {ranks[i], letters + static_cast<TokenId>(i)});
  return table;
}

TEST(MergeTable, JoinsShortAndLongWordsAsBruteForceDoes) {
  std::mt19937 random(3);
  for (int i = 0; i < 600; ++i) {
    const TokenId letters = 1 + static_cast<TokenId>(random() % 4);
    const MergeTable table = random_table(random, letters, i % 2 == 0);
    std::vector<TokenId> symbols(random() % 300);
    for (TokenId& symbol : symbols) symbol = static_cast<TokenId>(random() % letters);
    const auto expected = brute_force(table, symbols);
    table.apply(symbols);
    ASSERT_EQ(symbols, expected);
  }
}

TEST(MergeTable, FindsWhatWasAddedLast) {
  MergeTable table;
  EXPECT_FALSE(table.find(1, 2));
  for (TokenId i = 0; i < 5000; ++i) table.add(i, i + 1, {static_cast<std::uint32_t>(i), i});
  table.add(7, 8, {1, 99});
  EXPECT_EQ(table.size(), 5000u);
  EXPECT_EQ(table.find(7, 8).joined, 99);
  EXPECT_EQ(table.find(4999, 5000).rank, 4999u);
  EXPECT_FALSE(table.find(8, 7));
}

TEST(MergeTable, JoinsMillionsOfSymbolsOfOneWord) {
  // Time that grows with the square of the length would take hours.
  MergeTable table;
  for (TokenId i = 0; i < 10; ++i) table.add(i, i, {static_cast<std::uint32_t>(i), i + 1});
  std::vector<TokenId> symbols(3'000'001, 0);
  table.apply(symbols);
  EXPECT_EQ(symbols.size(), 3'000'001u / 1024 + 4);  // The rest is 705 = 512 + 128 + 64 + 1.
  EXPECT_EQ(symbols.front(), 10);
  EXPECT_EQ(symbols.back(), 0);

  std::mt19937 random(5);
  const MergeTable untrained = random_table(random, 2, false);
  std::vector<TokenId> noise(1'000'000);
  for (TokenId& symbol : noise) symbol = static_cast<TokenId>(random() % 2);
  untrained.apply(noise);
  EXPECT_LT(noise.size(), 1'000'000u);
}

}  // namespace
}  // namespace meshloom::text
