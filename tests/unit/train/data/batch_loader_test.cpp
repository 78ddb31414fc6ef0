// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/batch_loader.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/unit/train/data_files.h"

namespace meshloom::train {
namespace {

/// Token i of the stream is i, so that a sample shows which one it is.
std::shared_ptr<const Dataset> counting_dataset(const testing::DataFolder& folder,
                                                std::int64_t samples) {
  std::vector<std::uint16_t> tokens;
  for (std::int64_t i = 0; i <= samples * 2; ++i) tokens.push_back(static_cast<std::uint16_t>(i));
  const auto path = folder.write_u16("tokens.bin", tokens);
  auto stream = std::make_shared<const TokenStream>(TokenStream::open(path, TokenFormat::kNanogpt));
  return std::make_shared<const Dataset>(stream, TokenRange{0, stream->size()},
                                         DatasetOptions{.seq_len = 2, .vocab_size = 65536});
}

/// First tokens of a step's samples in global order, put together from all ranks.
std::vector<std::int64_t> global_order(const BatchLoader& loader, std::int64_t position) {
  std::map<std::int64_t, std::int64_t> by_place;
  for (std::int64_t rank = 0; rank < loader.plan().ranks; ++rank)
    for (const TokenBatch& batch : loader.load(position, rank))
      for (std::int64_t row = 0; row < batch.rows; ++row)
        by_place[batch.first_sample + row] = batch.inputs[static_cast<std::size_t>(row * 2)];
  std::vector<std::int64_t> order;
  for (const auto& [place, token] : by_place) {
    EXPECT_EQ(place, static_cast<std::int64_t>(order.size()));
    order.push_back(token);
  }
  return order;
}

TEST(BatchPlan, CoversTheBatchOnceWhateverTheSizes) {
  for (std::int64_t global = 1; global <= 13; ++global)
    for (std::int64_t micro = 1; micro <= 5; ++micro)
      for (std::int64_t ranks = 1; ranks <= 5; ++ranks) {
        const BatchPlan plan = {global, micro, ranks};
        std::int64_t next = 0;
        for (std::int64_t k = 0; k < plan.micro_batches(); ++k)
          for (std::int64_t rank = 0; rank < ranks; ++rank) {
            const planner::ShardRange range = plan.of(k, rank);
            EXPECT_EQ(range.begin, next);
            EXPECT_LE(range.size(), micro);
            next = range.end;
          }
        EXPECT_EQ(next, global);
      }
}

TEST(BatchLoader, OrderIsTheSameOnEveryMesh) {
  const testing::DataFolder folder;
  const auto dataset = counting_dataset(folder, 50);
  for (const std::int64_t position : {0, 14, 49}) {
    const auto expected = global_order(BatchLoader(dataset, {7, 7, 1}, 3, true), position);
    ASSERT_EQ(expected.size(), 7u);
    for (const BatchPlan& plan :
         {BatchPlan{7, 2, 1}, {7, 1, 2}, {7, 3, 2}, {7, 1, 5}, {7, 1, 9}, {7, 2, 3}})
      EXPECT_EQ(global_order(BatchLoader(dataset, plan, 3, true), position), expected);
  }
}

TEST(BatchLoader, AnEpochUsesEverySampleOnceAcrossBatchEdges) {
  const testing::DataFolder folder;
  const auto dataset = counting_dataset(folder, 20);
  const BatchLoader loader(dataset, {7, 7, 1}, 3, true);
  std::multiset<std::int64_t> seen;
  for (std::int64_t g = 0; g < 40; ++g) seen.insert(loader.sample_at(g));
  for (std::int64_t sample = 0; sample < 20; ++sample) EXPECT_EQ(seen.count(sample), 2u);
  std::vector<std::int64_t> first, second;
  for (std::int64_t g = 0; g < 20; ++g) {
    first.push_back(loader.sample_at(g));
    second.push_back(loader.sample_at(g + 20));
  }
  EXPECT_NE(first, second);
}

TEST(BatchLoader, WithoutShuffleItIsTheStreamsOrder) {
  const testing::DataFolder folder;
  const BatchLoader loader(counting_dataset(folder, 10), {4, 4, 1}, 3, false);
  EXPECT_EQ(global_order(loader, 8), (std::vector<std::int64_t>{16, 18, 0, 2}));
}

/// The only micro batch of all samples of "ab.cdefg.hi" (and what follows) in windows of 8.
TokenBatch all_of(DatasetOptions options, const std::string& text = "ab.cdefg.hi") {
  const testing::DataFolder folder;
  const auto stream = std::make_shared<const TokenStream>(
      TokenStream::open(folder.write_text("a.txt", text), TokenFormat::kText));
  options.seq_len = 8;
  options.vocab_size = 256;
  options.document_end = '.';
  const auto dataset =
      std::make_shared<const Dataset>(stream, TokenRange{0, stream->size()}, options);
  const BatchLoader loader(dataset, {dataset->size(), dataset->size(), 1}, 3, false);
  return loader.load(0, 0).front();
}

using Positions = std::vector<std::int64_t>;

TEST(BatchLoader, SpansAreWhatSeesItself) {
  EXPECT_EQ(all_of({}).spans, (Positions{8})) << "a packed window, whatever is in it";
  EXPECT_EQ(all_of({.keep_rest = true}).spans, (Positions{8, 2}));
  EXPECT_EQ(all_of({.pack_documents = false}).spans, (Positions{2, 5, 1})) << "without padding";
  EXPECT_EQ(all_of({.document_mask = true, .keep_rest = true}).spans, (Positions{3, 5, 1, 1}));
  DatasetOptions masked = {.pack_documents = false, .document_mask = true, .keep_rest = true};
  masked.masked = MaskedLmOptions{.vocab_size = 256};
  EXPECT_EQ(all_of(masked).spans, (Positions{3, 6, 2}));
}

TEST(BatchLoader, PositionsBeginAnewAtEachDocument) {
  EXPECT_TRUE(all_of({.document_mask = true}).positions.empty());
  const DatasetOptions reset = {.document_mask = true, .reset_positions = true, .keep_rest = true};
  EXPECT_EQ(all_of(reset).positions, (Positions{0, 1, 2, 0, 1, 2, 3, 4, 0, 0, 0, 1, 2, 3, 4, 5}));
  // What goes on from the sample before begins with 0: no more of it is seen.
  EXPECT_EQ(all_of(reset, "abcdefghij.k").positions,
            (Positions{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 0, 1, 2, 3, 4}));
}

TEST(BatchLoader, AModelThatSeesBothSidesIsToldThePadding) {
  DatasetOptions options = {.keep_rest = true};
  EXPECT_TRUE(all_of(options).documents.empty()) << "no key behind a query is seen";
  options.masked = MaskedLmOptions{.vocab_size = 256, .mask_token = 'm', .probability = 1.0};
  const TokenBatch padded = all_of(options);
  EXPECT_EQ(padded.documents, (Positions{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(padded.counted, 11);
  EXPECT_EQ(padded.tokens, 11);
  EXPECT_TRUE(all_of(options, "abcdefgh").documents.empty()) << "there is none";
}

TEST(BatchLoader, ALimitCutsTheBatch) {
  const testing::DataFolder folder;
  const BatchLoader loader(counting_dataset(folder, 10), {4, 1, 2}, 3, false);
  const auto mine = loader.load(0, 1, 3);
  ASSERT_EQ(mine.size(), 2u);
  EXPECT_EQ(mine[0].rows, 1);
  EXPECT_EQ(mine[1].rows, 0);
}

}  // namespace
}  // namespace meshloom::train
