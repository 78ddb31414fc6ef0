// SPDX-License-Identifier: Apache-2.0
// Batches whose samples the ranks read themselves.
#include "daemon/train/run/reference_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/train/data/data_identity.h"
#include "daemon/train/data/run_data.h"
#include "daemon/train/run/reference_text.h"
#include "tests/unit/train/run/stepped_fixture.h"

namespace meshloom::train {
namespace {

using ::testing::HasSubstr;

class ReferenceDataTest : public SteppedFixture {
 protected:
  ReferenceDataTest() {
    // Documents from 1 to 40 bytes.
    std::mt19937_64 rng(4);
    std::string text;
    for (int document = 0; document < 120; ++document) {
      for (auto i = rng() % 40; i > 0; --i) text.push_back(static_cast<char>('a' + rng() % 20));
      text.push_back('\n');
    }
    folder_.write_text("documents.txt", text);
  }

  static v1::LossBatch reference(std::int64_t first, std::int64_t samples) {
    v1::LossBatch batch;
    batch.set_loss("cross_entropy");
    v1::DataReference& read = *batch.mutable_reference();
    read.mutable_data()->set_path("documents.txt");
    read.set_seq_len(16);
    read.set_first_sample(first);
    read.set_samples(samples);
    return batch;
  }
  /// Samples that start at documents, padded, with masks.
  static v1::LossBatch documents(std::int64_t first, std::int64_t samples) {
    v1::LossBatch batch = reference(first, samples);
    v1::DataConfig& data = *batch.mutable_reference()->mutable_data();
    data.set_pack_documents(false);
    data.set_document_end('\n');
    return batch;
  }
  static v1::LossBatch masked(std::int64_t first, std::int64_t samples) {
    v1::LossBatch batch = reference(first, samples);
    v1::DataConfig& data = *batch.mutable_reference()->mutable_data();
    data.set_document_mask(true);
    data.set_document_end('\n');
    return batch;
  }

  /// The same, with positions that begin anew at each document.
  static v1::LossBatch reset(std::int64_t first, std::int64_t samples) {
    v1::LossBatch batch = masked(first, samples);
    batch.mutable_reference()->mutable_data()->set_reset_positions(true);
    return batch;
  }

  /// The same samples as tokens, read by hand. Labels that do not count become target 0 of weight
  /// 0.
  v1::LossBatch as_tokens(const v1::LossBatch& given, std::int64_t seed) const {
    const v1::DataReference& read = given.reference();
    const v1::RunConfig run = stepped_config({});
    v1::RunConfig config;
    *config.mutable_data() = read.data();
    config.mutable_training()->set_seq_len(read.seq_len());
    const nn::ModelConfig model = load_model_config(run.model(), folder_.path());
    resolve_data(*config.mutable_data(), model);
    const RunData data = open_run_data(config, model, folder_.path());
    const BatchLoader loader(data.training, {read.samples(), read.samples(), 1},
                             static_cast<std::uint64_t>(seed), true);
    const std::int64_t position = read.epoch() * data.training->size() + read.first_sample();
    const TokenBatch host = loader.load(position, 0).front();
    v1::LossBatch batch = given;
    batch.clear_reference();
    for (std::int64_t row = 0; row < host.rows; ++row) {
      v1::Datum& datum = *batch.add_data();
      for (std::int64_t t = 0; t < read.seq_len(); ++t) {
        const auto at = static_cast<std::size_t>(row * read.seq_len() + t);
        const bool counts = host.labels[at] >= 0;
        datum.add_tokens(static_cast<int>(host.inputs[at]));
        datum.add_targets(counts ? static_cast<int>(host.labels[at]) : 0);
        datum.add_weights(counts ? 1.0f : 0.0f);
        if (!host.documents.empty()) datum.add_document_ids(static_cast<int>(host.documents[at]));
        if (!host.positions.empty()) datum.add_position_ids(static_cast<int>(host.positions[at]));
      }
    }
    return batch;
  }
};

TEST_F(ReferenceDataTest, GivesTheBitsOfTheSameTokens) {
  for (const WholeMesh& m : kWholeMeshes) {
    for (v1::LossBatch batch : {reference(3, 7), documents(11, 5), masked(0, 6), reset(0, 6)}) {
      batch.mutable_reference()->set_epoch(2);
      batch.set_reduction(v1::LOSS_REDUCTION_TOKEN_MEAN);
      const v1::LossBatch tokens = as_tokens(batch, 11);
      std::map<std::string, std::vector<float>> read, sent;
      double read_loss = 0, sent_loss = 1;
      v1::LossOutput read_output, sent_output;
      const auto train = [&](const v1::LossBatch& given, auto& values, double& loss,
                             v1::LossOutput& output) {
        on_mesh(m, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
          const v1::LossOutput forward = run.forward(given, false);
          const v1::LossOutput told = run.forward_backward(given);
          run.forward_backward(given);
          const v1::OptimStepOutput step = run.optim_step({});
          auto parameters = parameters_of(run);
          if (world.rank() != 0) return;
          expect_same_outputs(forward, told);
          values = std::move(parameters);
          loss = step.loss();
          output = told;
        });
      };
      train(batch, read, read_loss, read_output);
      train(tokens, sent, sent_loss, sent_output);
      EXPECT_EQ(read, sent);
      EXPECT_EQ(read_loss, sent_loss);
      EXPECT_EQ(read_output.metrics().at("loss:sum"), sent_output.metrics().at("loss:sum"));
      EXPECT_EQ(read_output.metrics().at("tokens:sum"), sent_output.metrics().at("tokens:sum"));
      EXPECT_EQ(read_output.data_identity().file_count(), 1);
    }
  }
}

TEST_F(ReferenceDataTest, WhatIsNotThereIsATypedErrorOnAllRanks) {
  for (const WholeMesh& m : {WholeMesh{}, WholeMesh{"fsdp2_tp2", 1, 2, 1, 2}}) {
    on_mesh(m, [&](WholeBatchRun& run, comm::ProcessGroup&) {
      std::optional<OutOfRange> beyond;
      thrown_by<OutOfRange>([&] { run.forward(reference(0, 100'000), false); }, beyond);
      EXPECT_EQ(beyond->reason(), "DATA_OUT_OF_RANGE");
      EXPECT_EQ(
          reason_of<OutOfRange>([&] { run.forward(reference(std::int64_t{1} << 40, 3), false); }),
          "DATA_OUT_OF_RANGE");
      const std::int64_t size = std::stoll(beyond->metadata().at("samples"));
      run.forward(reference(size - 2, 2), false);
      EXPECT_EQ(reason_of<OutOfRange>([&] { run.forward(reference(size - 2, 3), false); }),
                "DATA_OUT_OF_RANGE");
      v1::LossBatch batch = reference(0, 1);
      batch.mutable_reference()->mutable_data()->set_path("../text.txt");
      EXPECT_EQ(field_of([&] { run.forward(batch, false); }), "reference.data.path");
      batch.mutable_reference()->mutable_data()->clear_path();
      EXPECT_EQ(field_of([&] { run.forward(batch, false); }), "reference.data.path");
      batch.mutable_reference()->mutable_data()->set_path("no_such.txt");
      EXPECT_THROW(run.forward_backward(batch), NotFound);
      EXPECT_EQ(reason_of<FailedPrecondition>([&] { run.optim_step({}); }), "GRADIENTS_POISONED");
      batch = reference(0, 1);
      batch.mutable_reference()->mutable_data()->set_tokenizer("words");
      EXPECT_EQ(reason_of<InvalidArgument>([&] { run.forward(batch, false); }), "TOKENIZER_NEEDED")
          << "its tokens were not made";
    });
  }
}

/// What a daemon does of text before the ranks hear of it.
std::shared_ptr<const TokenizedText> tokens_of(v1::LossBatch& batch, const v1::RunConfig& run,
                                               const std::filesystem::path& folder) {
  v1::RunConfig config;
  *config.mutable_model() = run.model();
  v1::DataConfig& data = *batch.mutable_reference()->mutable_data();
  const nn::ModelConfig model = load_model_config(run.model(), folder);
  if (!resolve_reference_text(data, model, {}, folder)) return nullptr;
  *config.mutable_data() = data;
  TokenCache cache(folder / "cache", 1 << 20);
  return std::make_shared<const TokenizedText>(
      tokenize_text(config, model.vocab_size, {}, folder, cache, 1,
                    [](const std::string&, std::uint64_t, std::uint64_t) {}));
}

TEST_F(ReferenceDataTest, TextThatIsTokenizedGivesTheBitsOfItsTokens) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + i * i % 23);
  folder_.write_text("plain.txt", text);
  folder_.write_text("lines.jsonl", "{\"text\": \"" + text.substr(0, 150) + "\"}\n{\"text\": \"" +
                                        text.substr(150) + "\"}\n");
  v1::LossBatch bytes = reference(2, 5), tokenized = bytes;
  bytes.mutable_reference()->mutable_data()->set_path("plain.txt");
  tokenized.mutable_reference()->mutable_data()->set_path("lines.jsonl");
  EXPECT_EQ(tokens_of(bytes, stepped_config({}), folder_.path()), nullptr)
      << "bytes are tokens already";
  EXPECT_FALSE(bytes.reference().data().has_append_eos()) << "and nothing of it is filled in";
  const auto made = tokens_of(tokenized, stepped_config({}), folder_.path());
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(tokenized.reference().data().field(), "text");
  for (const WholeMesh& m : {WholeMesh{}, WholeMesh{"dp2", 2}}) {
    on_mesh(m, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
      const v1::LossOutput expected = run.forward(bytes, false);
      const v1::LossOutput seen = run.forward(tokenized, false, made);
      if (world.rank() != 0) return;
      expect_same_outputs(seen, expected);
      EXPECT_EQ(seen.metrics().at("loss:sum"), expected.metrics().at("loss:sum"));
      EXPECT_EQ(seen.data_identity().tokenizer(), made->tokenizer);
    });
  }
}

TEST_F(ReferenceDataTest, WrongTextIsToldInTermsOfTheBatch) {
  folder_.write_text("lines.jsonl", "{\"other\": \"a\"}\n");
  const auto refusal = [&](const std::function<void(v1::DataConfig&)>& change) -> std::string {
    v1::LossBatch batch = reference(0, 1);
    v1::DataConfig& data = *batch.mutable_reference()->mutable_data();
    data.set_path("lines.jsonl");
    change(data);
    try {
      tokens_of(batch, stepped_config({}), folder_.path());
    } catch (const Error& error) {
      return in_reference_terms(error).what();
    }
    return "taken";
  };
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("reference.data.field"));
  EXPECT_THAT(refusal([](auto& data) { data.set_append_eos(true); }),
              HasSubstr("reference.data.append_eos"));
  EXPECT_THAT(refusal([](auto& data) { data.set_path("documents.txt"), data.set_field("text"); }),
              HasSubstr("reference.data.field"));
  EXPECT_THAT(refusal([](auto& data) { data.set_path("none.txt"); }),
              HasSubstr("reference.data.path"));
}

TEST_F(ReferenceDataTest, OtherDataThanBeforeAreRefused) {
  v1::DataIdentity identity;
  const v1::LossBatch batch = reference(0, 4);
  on_mesh({}, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    identity = run.forward(batch, false).data_identity();
    v1::LossBatch same = batch;
    *same.mutable_reference()->mutable_data()->mutable_identity() = identity;
    run.forward_backward(same);
    run.optim_step({});
  });
  folder_.write_text("documents.txt", std::string(3000, 'x'));
  on_mesh({"dp2", 2}, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    v1::LossBatch changed = batch;
    v1::DataConfig& data = *changed.mutable_reference()->mutable_data();
    *data.mutable_identity() = identity;
    EXPECT_EQ(reason_of<FailedPrecondition>([&] { run.forward(changed, false); }), "DATA_CHANGED");
    data.set_allow_changed(true);
    run.forward(changed, false);
  });
}

}  // namespace
}  // namespace meshloom::train
