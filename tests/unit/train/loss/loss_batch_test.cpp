// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/loss/loss_batch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "daemon/train/data/dataset.h"
#include "daemon/train/loss/batch_parts.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

constexpr LossBatchLimits kLimits = {.vocab_size = 100, .positions = 16, .tokens = 8};

v1::LossBatch batch_of(const std::string& loss) {
  v1::LossBatch batch;
  batch.set_loss(loss);
  for (int i = 0; i < 4; ++i) {
    v1::Datum& datum = *batch.add_data();
    for (int t = 0; t <= i; ++t) {
      datum.add_tokens(t + 10 * i);
      datum.add_targets(t + 10 * i + 1);
      if (loss == "cross_entropy") {
        datum.add_weights(-0.5f);
        continue;
      }
      datum.add_logprobs(-1.0f);
      datum.add_advantages(1.0f);
      if (loss == "gspo") datum.add_sequence_ratio_mask(1.0f);
    }
  }
  return batch;
}

/// The field that is named if `change` is made to a good batch; empty if it stays good.
std::string refused(const std::string& loss, const std::function<void(v1::LossBatch&)>& change) {
  v1::LossBatch batch = batch_of(loss);
  change(batch);
  try {
    check_loss_batch(batch, kLimits);
  } catch (const InvalidArgument& error) {
    return error.metadata().at("field");
  }
  return {};
}

TEST(LossBatch, NamesTheFieldThatDoesNotFit) {
  using Batch = v1::LossBatch;
  for (const char* loss : {"cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo"})
    EXPECT_EQ(refused(loss, [](Batch&) {}), "");
  const char* ce = "cross_entropy";
  EXPECT_EQ(refused(ce, [](Batch& b) { b.set_loss("bpo"); }), "loss");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.clear_data(); }), "data");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.add_data(); }), "data[4].tokens");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.mutable_data(3)->set_tokens(2, 100); }),
            "data[3].tokens[2]");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.mutable_data(3)->set_tokens(2, -1); }),
            "data[3].tokens[2]");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.mutable_data(3)->set_targets(1, -100); }),
            "data[3].targets[1]");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.mutable_data(2)->add_targets(1); }), "data[2].targets");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.mutable_data(2)->set_targets_per_token(2); }),
            "data[2].targets");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.mutable_data(2)->set_targets_per_token(-1); }),
            "data[2].targets_per_token");
  EXPECT_EQ(refused("ppo", [](Batch& b) { b.mutable_data(2)->set_targets_per_token(2); }),
            "data[2].targets_per_token");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.mutable_data(2)->add_weights(1.0f); }), "data[2].weights");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.mutable_data(2)->set_weights(1, NAN); }),
            "data[2].weights[1]");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.mutable_data(0)->add_logprobs(1.0f); }),
            "data[0].logprobs");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.mutable_data(0)->add_advantages(1.0f); }),
            "data[0].advantages");
  EXPECT_EQ(refused("dro", [](Batch& b) { b.mutable_data(0)->add_weights(1.0f); }),
            "data[0].weights");
  EXPECT_EQ(refused("dro", [](Batch& b) { b.mutable_data(1)->clear_advantages(); }),
            "data[1].advantages");
  EXPECT_EQ(refused("ppo", [](Batch& b) { b.mutable_data(1)->set_logprobs(0, INFINITY); }),
            "data[1].logprobs[0]");
  EXPECT_EQ(refused("ppo", [](Batch& b) { b.mutable_data(1)->add_sequence_ratio_mask(1.0f); }),
            "data[1].sequence_ratio_mask");
  EXPECT_EQ(refused("gspo", [](Batch& b) { b.mutable_data(1)->clear_sequence_ratio_mask(); }),
            "data[1].sequence_ratio_mask");
  EXPECT_EQ(refused("gspo", [](Batch& b) { b.mutable_data(0)->set_sequence_ratio_mask(0, 0.0f); }),
            "data[0].sequence_ratio_mask");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.mutable_data(1)->add_document_ids(1); }),
            "data[1].document_ids");
  EXPECT_EQ(refused(ce,
                    [](Batch& b) {
                      b.mutable_data(1)->add_position_ids(0);
                      b.mutable_data(1)->add_position_ids(16);
                    }),
            "data[1].position_ids[1]");
  EXPECT_EQ(refused(ce,
                    [](Batch& b) {
                      for (int i = 0; i < 9; ++i) b.mutable_data(3)->add_tokens(1);
                    }),
            "data[3].tokens");
  EXPECT_EQ(refused(ce, [](Batch& b) { (*b.mutable_loss_config())["beta"] = 1; }),
            "loss_config[beta]");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.set_reduction(static_cast<v1::LossReduction>(7)); }),
            "reduction");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.set_tokens(3); }), "tokens");
  EXPECT_EQ(refused(ce, [](Batch& b) { b.set_micro_batch_size(-1); }), "micro_batch_size");
  EXPECT_EQ(refused(ce,
                    [](Batch& b) {
                      // 100 targets of one token, padded to 8 tokens in each of many data.
                      v1::Datum& wide = *b.mutable_data(0);
                      wide.set_targets_per_token(100);
                      wide.clear_weights();
                      wide.mutable_targets()->Resize(100, 1);
                      v1::Datum& longest = *b.mutable_data(3);
                      longest.clear_weights();
                      longest.mutable_tokens()->Resize(8, 1);
                      longest.mutable_targets()->Resize(8, 1);
                      for (int i = 0; i < 100'000; ++i) *b.add_data() = b.data(0);
                      b.set_micro_batch_size(100'000);
                    }),
            "micro_batch_size");
}

TEST(LossBatch, EveryDatumIsCutOnceAndPadded) {
  const v1::LossBatch batch = batch_of("cross_entropy");
  for (const std::int64_t ranks : {1, 2, 3, 7}) {
    for (const std::int64_t size : {1, 2, 9}) {
      const BatchSplit split{
          .samples = 4, .micro_batch_size = size, .ranks = ranks, .first_sample = 20};
      std::vector<int> seen(4, 0);
      std::size_t micro_batches = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const auto parts = split_batch(batch, split, rank);
        if (rank == 0) micro_batches = parts.size();
        EXPECT_EQ(parts.size(), micro_batches);
        for (const TokenBatch& part : parts) {
          EXPECT_LE(part.rows, size);
          EXPECT_EQ(part.first_sample, 20 + part.first_datum);
          ASSERT_EQ(part.inputs.size(), static_cast<std::size_t>(part.rows * part.length));
          ASSERT_EQ(part.labels.size(), part.inputs.size());
          ASSERT_EQ(part.weights.size(), part.inputs.size());
          EXPECT_TRUE(part.documents.empty() && part.positions.empty());
          for (std::int64_t row = 0; row < part.rows; ++row) {
            const std::int64_t i = part.first_datum + row;
            ++seen[static_cast<std::size_t>(i)];
            for (std::int64_t t = 0; t < part.length; ++t) {
              const auto at = static_cast<std::size_t>(row * part.length + t);
              const bool own = t <= i;
              EXPECT_EQ(part.inputs[at], own ? t + 10 * i : 0);
              EXPECT_EQ(part.labels[at], own ? t + 10 * i + 1 : kIgnoredLabel);
              EXPECT_EQ(part.weights[at], own ? -0.5f : 0.0f);
            }
          }
        }
      }
      EXPECT_EQ(seen, std::vector<int>(4, 1));
    }
  }
}

// What a rank makes of its part is what it makes of the whole batch, and no rank gets more.
TEST(LossBatch, ARankGetsItsOwnDataAndNoMore) {
  std::mt19937_64 random(5);
  const auto draw = [&](int most) { return 1 + static_cast<int>(random() % most); };
  for (int round = 0; round < 200; ++round) {
    const planner::MeshLayout mesh(
        {{"dp", draw(3)}, {"fsdp", draw(3)}, {"cp", draw(2)}, {"tp", draw(2)}});
    v1::LossBatch batch;
    batch.set_loss("cross_entropy");
    const int data = draw(20), of_run = draw(3);
    if (random() % 2 == 0) batch.set_micro_batch_size(draw(4));
    for (int i = 0; i < data; ++i) {
      v1::Datum& datum = *batch.add_data();
      for (int t = draw(8); t > 0; --t) {
        datum.add_tokens(i);
        datum.add_targets(t);
      }
    }
    const BatchSplit split{.samples = data,
                           .micro_batch_size = micro_batch_size_of(batch, of_run),
                           .ranks = sample_ranks(mesh)};
    std::map<std::int64_t, int> copies;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const SamplePlace place = sample_place(mesh, rank);
      const v1::LossBatch part = rank_part(batch, mesh, of_run, rank);
      for (const v1::Datum& datum : part.data()) ++copies[datum.tokens(0)];
      const auto mine = split_batch(part, split, place.data);
      const auto whole = split_batch(batch, split, place.data);
      ASSERT_EQ(mine.size(), whole.size());
      for (std::size_t k = 0; k < mine.size(); ++k) {
        EXPECT_EQ(mine[k].rows, whole[k].rows);
        EXPECT_EQ(mine[k].first_sample, whole[k].first_sample);
        EXPECT_EQ(mine[k].inputs, whole[k].inputs);
        EXPECT_EQ(mine[k].labels, whole[k].labels);
        EXPECT_EQ(mine[k].weights, whole[k].weights);
      }
    }
    // Once for each of the ranks that share samples.
    for (int i = 0; i < data; ++i) EXPECT_EQ(copies[i], mesh.size_of("cp") * mesh.size_of("tp"));
  }
}

TEST(LossBatch, AReferenceHasNoDataAndFitsTheRun) {
  const auto refuses = [](const std::function<void(v1::LossBatch&)>& change) {
    return refused("cross_entropy", [&](v1::LossBatch& batch) {
      batch.clear_data();
      batch.mutable_reference()->set_samples(3);
      change(batch);
    });
  };
  EXPECT_EQ(refuses([](v1::LossBatch&) {}), "");
  EXPECT_EQ(refuses([](v1::LossBatch& b) { b.add_data(); }), "data");
  EXPECT_EQ(refuses([](v1::LossBatch& b) { b.set_loss("ppo"); }), "reference");
  EXPECT_EQ(refuses([](v1::LossBatch& b) { b.mutable_reference()->set_samples(0); }),
            "reference.samples");
  EXPECT_EQ(refuses([](v1::LossBatch& b) { b.mutable_reference()->set_first_sample(-1); }),
            "reference.first_sample");
  EXPECT_EQ(refuses([](v1::LossBatch& b) { b.mutable_reference()->set_epoch(-1); }),
            "reference.epoch");
  EXPECT_EQ(refuses([](v1::LossBatch& b) { b.mutable_reference()->set_epoch(INT64_MAX); }),
            "reference.epoch");
  EXPECT_EQ(refuses([](v1::LossBatch& b) { b.mutable_reference()->set_samples(INT64_MAX); }),
            "reference.samples");
  EXPECT_EQ(refuses([](v1::LossBatch& b) { b.mutable_reference()->set_seq_len(9); }),
            "reference.seq_len");
}

TEST(LossBatch, DocumentIdsMayBeAnyNumbers) {
  v1::LossBatch batch = batch_of("cross_entropy");
  v1::Datum& last = *batch.mutable_data(3);
  const std::int32_t low = std::numeric_limits<std::int32_t>::min();
  const std::int32_t high = std::numeric_limits<std::int32_t>::max();
  for (const std::int32_t id : {high, low, low, high}) last.add_document_ids(id);
  const TokenBatch whole = split_batch(batch, {.samples = 4, .micro_batch_size = 4}, 0).front();
  EXPECT_EQ(std::vector<std::int64_t>(whole.documents.end() - 4, whole.documents.end()),
            (std::vector<std::int64_t>{0, 1, 1, 0}));
}

TEST(LossBatch, DocumentsPositionsAndTargetsFillUp) {
  v1::LossBatch batch = batch_of("cross_entropy");
  v1::Datum& last = *batch.mutable_data(3);
  for (const int id : {5, 5, 2, 2}) last.add_document_ids(id);
  for (const int position : {0, 1, 0, 1}) last.add_position_ids(position);
  v1::Datum& first = *batch.mutable_data(0);
  first.set_targets_per_token(2);
  first.add_targets(3);
  first.add_weights(1.0f);
  const TokenBatch whole = split_batch(batch, {.samples = 4, .micro_batch_size = 4}, 0).front();
  EXPECT_EQ(whole.targets, 2);
  EXPECT_TRUE(whole.weights.empty());
  using Values = std::vector<std::int64_t>;
  EXPECT_EQ(whole.documents, (Values{0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 1}));
  EXPECT_EQ(whole.positions, (Values{0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 0, 0, 1, 0, 1}));
  EXPECT_EQ(Values(whole.labels.begin(), whole.labels.begin() + 4), (Values{1, 3, -100, -100}));
  EXPECT_EQ(Values(whole.labels.begin() + 8, whole.labels.begin() + 12),
            (Values{11, -100, 12, -100}));
}

}  // namespace
}  // namespace meshloom::train
