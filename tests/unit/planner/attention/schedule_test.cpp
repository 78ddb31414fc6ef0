// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/attention/balance.h"
#include "planner/attention/schedule_blocks.h"
#include "tests/unit/planner/attention/random_rows.h"

namespace meshloom::planner::test {
namespace {

/// Queries and keys of each rank, each with an order of its own.
std::vector<SequencePart> random_parts(Generator& generator, std::int64_t queries,
                                       std::int64_t keys, int ranks, const RowMask& row) {
  const auto deal = [&](std::int64_t size) {
    const auto balancer = static_cast<LoadBalancer>(draw(generator, 1, 4));
    const RowMask of_size{row.mask,
                          row.documents && row.documents->size() == size ? row.documents : nullptr};
    if (balancer == LoadBalancer::kPerDocument && !of_size.documents)
      return balanced_parts(LoadBalancer::kHeadTail, size, ranks, of_size);
    return balanced_parts(balancer, size, ranks, of_size);
  };
  const auto of_queries = deal(queries), of_keys = deal(keys);
  // Neighbours may have exchanged heads: a part is then that of several, one after the other.
  const auto neighbours = static_cast<std::size_t>(draw(generator, 1, 2));
  std::vector<SequencePart> parts((of_queries.size() + neighbours - 1) / neighbours);
  for (std::size_t r = 0; r < of_queries.size(); ++r) {
    for (const ShardRange& range : of_queries[r])
      append_range(parts[r / neighbours].queries, range);
    for (const ShardRange& range : of_keys[r]) append_range(parts[r / neighbours].keys, range);
  }
  return parts;
}

bool contains(const IndexRanges& ranges, std::int64_t element) {
  return std::any_of(ranges.begin(), ranges.end(), [element](const ShardRange& range) {
    return element >= range.begin && element < range.end;
  });
}

TEST(AttentionSchedule, EveryPairIsComputedOnceAndOnlyKeysThatAreSeenMove) {
  Generator generator(6);
  for (int i = 0; i < 400; ++i) {
    const bool documents = draw(generator, 0, 1) == 1;
    const std::int64_t queries = draw(generator, 1, 40);
    const std::int64_t keys = documents ? queries : draw(generator, 1, 40);
    const std::vector<std::int64_t> ids =
        documents ? random_ids(generator, queries, 9) : std::vector<std::int64_t>();
    const RowMask row{random_mask(generator),
                      documents ? std::make_shared<SequenceDocuments>(ids) : nullptr};
    const auto parts =
        random_parts(generator, queries, keys, static_cast<int>(draw(generator, 1, 6)), row);
    const int ranks = static_cast<int>(parts.size());
    for (int rank = 0; rank < ranks; ++rank) {
      const auto steps = attention_schedule(rank, parts, row);
      ASSERT_EQ(steps.size(), parts.size());
      for (int s = 0; s < ranks; ++s) {
        const AttentionStep& step = steps[static_cast<std::size_t>(s)];
        ASSERT_EQ(step.source, (rank - s + ranks) % ranks);
        const SequencePart& source = parts[static_cast<std::size_t>(step.source)];
        std::int64_t area = 0;
        for (std::int64_t j = 0; j < keys; ++j) {
          std::int64_t seen = 0;
          for (const ShardRange& q : parts[static_cast<std::size_t>(rank)].queries)
            for (std::int64_t query = q.begin; query < q.end; ++query)
              seen += sees(row.mask, ids, query, j) ? 1 : 0;
          if (!contains(source.keys, j)) continue;
          area += seen;
          // A window between two chunks of queries may leave keys out that lie inside its range.
          ASSERT_TRUE(seen == 0 || contains(step.keys, j));
        }
        ASSERT_EQ(step.area, area);
        ASSERT_EQ(places_in(source.keys, step.keys).empty(), step.keys.empty());
        ASSERT_EQ(total_size(places_in(source.keys, step.keys)), total_size(step.keys));
        ASSERT_EQ(requested_keys(step.source, parts, row)[static_cast<std::size_t>(rank)],
                  step.keys);
      }
    }
  }
}

TEST(AttentionSchedule, PlacesAreFoundInAnyOrderOfRanges) {
  const IndexRanges held{{8, 12}, {19, 23}, {12, 19}};
  EXPECT_EQ(places_in(held, {{9, 11}, {20, 23}, {12, 14}}), (IndexRanges{{1, 3}, {5, 10}}));
  // Wanted neighbours were merged though something lies between them here.
  EXPECT_EQ(places_in(held, {{8, 19}}), (IndexRanges{{0, 4}, {8, 15}}));
  EXPECT_EQ(places_in(held, {}), IndexRanges());
}

TEST(AttentionSchedule, ACausalZigzagNeedsHalfOfTheKeysOfLowerRanks) {
  const RowMask causal{{.is_causal = true}, nullptr};
  std::vector<SequencePart> parts;
  for (const IndexRanges& part : balanced_parts(LoadBalancer::kHeadTail, 64, 4, causal))
    parts.push_back({part, part});
  EXPECT_EQ(remote_keys(0, attention_schedule(0, parts, causal)), 48);
  EXPECT_EQ(remote_keys(3, attention_schedule(3, parts, causal)), 24);
  const auto steps = attention_schedule(2, parts, causal);
  EXPECT_EQ(steps[1].keys, (IndexRanges{{8, 16}}));
  EXPECT_EQ(steps[1].area, 16 * 8);
}

std::vector<std::string> texts_of(const RowMask& row, const IndexRanges& queries,
                                  const IndexRanges& keys) {
  std::vector<std::string> texts;
  for (const AttentionBlock& block : attention_blocks(row, queries, keys))
    texts.push_back(fmt::format(
        "[{}, {}) x [{}, {}){}: {}", block.queries.begin, block.queries.end, block.keys.begin,
        block.keys.end, block.document < 0 ? "" : fmt::format(" of document {}", block.document),
        to_string(block.hidden)));
  return texts;
}

TEST(AttentionBlocks, SayWhatIsMasked) {
  const RowMask causal{{.is_causal = true}, nullptr};
  const IndexRanges part{{4, 8}, {12, 16}};
  EXPECT_EQ(
      texts_of(causal, part, part),
      (std::vector<std::string>{"[4, 8) x [4, 8): later keys masked", "[12, 16) x [4, 8): whole",
                                "[12, 16) x [12, 16): later keys masked"}));
  const RowMask window{{.is_causal = true, .window_left = 5}, nullptr};
  EXPECT_EQ(texts_of(window, part, {{0, 16}}),
            (std::vector<std::string>{"[4, 8) x [0, 16): both ends masked",
                                      "[12, 16) x [0, 16): both ends masked"}));
  EXPECT_EQ(texts_of(window, part, {{0, 4}}),
            (std::vector<std::string>{"[4, 8) x [0, 4): earlier keys masked"}));
  const std::vector<std::int64_t> ids{7, 7, 7, 7, 7, 7, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
  const RowMask packed{{.is_causal = true}, std::make_shared<SequenceDocuments>(ids)};
  EXPECT_EQ(texts_of(packed, part, {{0, 4}, {8, 12}}),
            (std::vector<std::string>{"[4, 6) x [0, 4) of document 0: whole",
                                      "[12, 16) x [8, 12) of document 1: whole"}));
}

// Every pair that sees each other is in one block, and the blocks say as much as element by
// element.
TEST(AttentionBlocks, AreThoseOfEveryPair) {
  Generator generator(8);
  for (int i = 0; i < 200; ++i) {
    const std::int64_t size = draw(generator, 1, 40);
    const auto ids = random_ids(generator, size, 12);
    RowMask row{random_mask(generator), nullptr};
    const bool packed = draw(generator, 0, 1) == 1;
    if (packed) row.documents = std::make_shared<SequenceDocuments>(ids);
    const IndexRanges queries{{0, size / 3}, {size / 2, size}}, keys{{size / 4, size}};
    std::int64_t pairs = 0;
    for (const AttentionBlock& block : attention_blocks(row, queries, keys)) {
      std::int64_t seen = 0;
      for (std::int64_t q = block.queries.begin; q < block.queries.end; ++q)
        for (std::int64_t k = block.keys.begin; k < block.keys.end; ++k)
          seen += sees(
              row.mask,
              packed ? std::span<const std::int64_t>(ids) : std::span<const std::int64_t>(), q, k);
      EXPECT_EQ(seen, block.area);
      EXPECT_EQ(block.hidden == HiddenPart::kNone,
                seen == block.queries.size() * block.keys.size());
      pairs += seen;
    }
    EXPECT_EQ(pairs, visible_area(row, queries, keys));
  }
}

TEST(AttentionSchedule, WindowsReadNeighboursOnly) {
  const RowMask window{{.is_causal = true, .window_left = 5}, nullptr};
  std::vector<SequencePart> parts;
  for (const IndexRanges& part : balanced_parts(LoadBalancer::kNone, 80, 8, window))
    parts.push_back({part, part});
  for (int rank = 1; rank < 8; ++rank) {
    const auto steps = attention_schedule(rank, parts, window);
    EXPECT_EQ(remote_keys(rank, steps), 5);
    EXPECT_EQ(total_size(steps[1].keys), 5);
  }
}

}  // namespace
}  // namespace meshloom::planner::test
