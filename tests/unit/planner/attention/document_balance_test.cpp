// SPDX-License-Identifier: Apache-2.0
// Packed documents of 64 to 8192 tokens, dealt to ranks of at least 1,024 tokens: as many tokens
// and about as much to do for each, whatever the lengths.
#include "planner/attention/document_balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "planner/attention/balance.h"
#include "planner/attention/short_documents.h"
#include "tests/unit/planner/attention/random_rows.h"

namespace meshloom::planner::test {
namespace {

using Lengths = std::vector<std::int64_t>;

constexpr std::int64_t kShortest = 64, kLongest = 8192;

RowMask row_of(const Lengths& lengths, bool is_causal) {
  std::vector<std::int64_t> ids;
  for (std::size_t d = 0; d < lengths.size(); ++d)
    ids.insert(ids.end(), static_cast<std::size_t>(lengths[d]), static_cast<std::int64_t>(d));
  return {{.is_causal = is_causal}, std::make_shared<SequenceDocuments>(ids)};
}

/// The smaller of the balances of the causal mask and of the one that lets all see all; checks that
/// every token is held once, and as many by each rank.
double document_balance(const Lengths& lengths, int ranks) {
  double worst = 1.0;
  for (const bool is_causal : {true, false}) {
    const RowMask row = row_of(lengths, is_causal);
    const std::int64_t size = row.documents->size();
    const auto parts = balanced_parts(LoadBalancer::kPerDocument, size, ranks, row);
    std::vector<int> held(static_cast<std::size_t>(size), 0);
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(total_size(parts[static_cast<std::size_t>(r)]), token_budget(size, ranks, r));
      for (const ShardRange& range : parts[static_cast<std::size_t>(r)])
        for (std::int64_t i = range.begin; i < range.end; ++i) ++held[static_cast<std::size_t>(i)];
    }
    EXPECT_EQ(std::count(held.begin(), held.end(), 1), size);
    worst = std::min(worst, balance_of(parts, row));
  }
  return worst;
}

std::int64_t log_uniform(Generator& generator, double shortest, double longest) {
  std::uniform_real_distribution<double> exponent(std::log(shortest), std::log(longest));
  return static_cast<std::int64_t>(std::exp(exponent(generator)));
}

/// How lengths are drawn: all the same, nearly so, two of them, any by magnitude, any, or two of
/// them with short ones between.
constexpr int kKinds = 6;

Lengths draw_lengths(Generator& generator, int kind, std::int64_t size) {
  const auto draw_one = [&] {
    return draw(generator, 0, 1) == 0 ? draw(generator, kShortest, 300)
                                      : log_uniform(generator, kShortest, kLongest);
  };
  const std::int64_t one = draw_one(), other = draw_one(), apart = draw(generator, 1, 6);
  const std::int64_t longest = draw(generator, 0, 1) == 0 ? kLongest : std::max(one, other) + 2;
  const std::int64_t share = draw(generator, 0, 2) == 0 ? 2 : draw(generator, 0, 100);
  Lengths lengths;
  for (std::int64_t sum = 0; sum < size; sum += lengths.back()) {
    const bool first = draw(generator, 0, 99) >= share;
    const std::int64_t lengths_of_kinds[kKinds] = {
        one,
        one + draw(generator, -apart, apart),
        first ? one : other,
        log_uniform(generator, kShortest, static_cast<double>(longest)),
        draw(generator, kShortest, longest),
        draw(generator, 0, 2) == 0 ? draw(generator, kShortest, 128) : (first ? one : other)};
    lengths.push_back(std::clamp(lengths_of_kinds[kind], kShortest, kLongest));
  }
  return lengths;
}

TEST(DocumentBalance, LengthsThatLeaveLittleRoom) {
  Lengths nearly_even(292, 140);
  nearly_even.push_back(100);
  EXPECT_GE(document_balance(nearly_even, 40), 0.99);
  Lengths whole_but_one(191, 128);
  whole_but_one.push_back(129);
  EXPECT_GE(document_balance(whole_but_one, 24), 0.99);
  Lengths around_the_limit;
  for (int d = 0; d < 384; ++d) around_the_limit.push_back(127 + d % 3);
  EXPECT_GE(document_balance(around_the_limit, 48), 0.99);
  // One of two lengths is too rare to go whole: who had one of its documents would have more to do.
  Lengths a_few_long(24, 128);
  a_few_long.resize(2 * 24 + 1024, 64);
  EXPECT_GE(document_balance(a_few_long, 64), 0.99);
}

TEST(DocumentBalance, RandomLengths) {
  Generator generator(4);
  double worst[kKinds];
  std::fill_n(worst, kKinds, 1.0);
  for (int i = 0; i < 360; ++i) {
    const int kind = i % kKinds;
    const int ranks = static_cast<int>(draw(generator, 2, 64));
    const std::int64_t budget = draw(generator, 0, 2) == 0 ? draw(generator, 1024, 9000) : 1024;
    const std::int64_t size = budget * ranks + draw(generator, 0, 4 * ranks);
    const Lengths lengths = draw_lengths(generator, kind, size);
    const double balance = document_balance(lengths, ranks);
    worst[kind] = std::min(worst[kind], balance);
    EXPECT_GE(balance, 0.97) << "draw " << i << ": " << lengths.size() << " documents on " << ranks;
  }
  std::printf(
      "per_document, documents of 64 to 8192, 2 to 64 ranks of 1024 tokens and more: equal %.4f, "
      "nearly equal %.4f, of two lengths %.4f, by magnitude %.4f, uniform %.4f, mixed %.4f\n",
      worst[0], worst[1], worst[2], worst[3], worst[4], worst[5]);
}

TEST(DocumentBalance, OfAThousandRanks) {
  Generator generator(5);
  for (const int kind : {1, 3, 5}) {
    const double balance = document_balance(draw_lengths(generator, kind, 1024 * 1024), 1024);
    std::printf("per_document, kind %d, 1024 ranks of 1024 tokens: %.4f\n", kind, balance);
    EXPECT_GE(balance, 0.9);
  }
}

/// Of all documents of at most an eighth of a budget most stay whole.
TEST(DocumentBalance, FewShortDocumentsAreCut) {
  for (const std::int64_t length : {64, 100, 128}) {
    const std::vector<DocumentWork> documents(static_cast<std::size_t>(24 * 1024 / length),
                                              {length, length * (length + 1) / 2});
    std::int64_t tokens = 0;
    for (const DocumentWork& document : documents) tokens += document.tokens;
    const double goal = static_cast<double>(tokens) / 24 * static_cast<double>(length + 1) / 2;
    std::vector<RankRoom> ranks;
    for (int r = 0; r < 24; ++r) ranks.push_back({token_budget(tokens, 24, r), goal});
    const DealtDocuments dealt = deal_short_documents(documents, ranks, goal);
    EXPECT_LE(dealt.cut.size(), 24u) << length;
    std::size_t whole = 0, shares = 0;
    for (const auto& list : dealt.whole) whole += list.size();
    EXPECT_EQ(whole + dealt.cut.size(), documents.size());
    for (const auto& list : dealt.shares) shares += list.size();
    EXPECT_LE(shares, dealt.cut.size() + 24) << "a document that is cut lies on few ranks";
  }
}

}  // namespace
}  // namespace meshloom::planner::test
