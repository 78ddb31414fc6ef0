// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/token_bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "daemon/text/byte_tokenizer.h"
#include "daemon/text/token_file.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/data/run_data.h"
#include "daemon/train/run/run.h"
#include "tests/unit/train/data/text_job_test.h"

namespace meshloom::train {
namespace {

using Labels = std::vector<std::int64_t>;

TEST(TokenBytes, CountLabelsThatCount) {
  const Labels labels = {2, -100, 0, 1, 7, 2};
  EXPECT_FALSE(TokenBytes().known());
  EXPECT_EQ(TokenBytes().of(labels), 0.0);
  EXPECT_EQ(TokenBytes(std::vector<std::uint32_t>{0, 1, 5}).of(labels), 11.0);
  EXPECT_EQ(TokenBytes(2.5).of(labels), 12.5);
}

TEST(TokenBytes, BitsByByteAreTheSumOfNatsByTheSumOfBytes) {
  const LossSum batches[] = {{10.0, 4.0, 9.0}, {6.0, 2.0, 7.0}};
  EXPECT_DOUBLE_EQ(*bits_per_byte(batches), 16.0 / (std::numbers::ln2 * 16.0));
  const LossSum unknown[] = {{10.0, 4.0, 0.0}};
  EXPECT_FALSE(bits_per_byte(unknown));
}

/// Letters, pairs of letters and an eos.
class DataBytesTest : public TextJobTest {
 protected:
  static constexpr int kVocabulary = 29;

  void SetUp() override {
    write_model("model", kVocabulary);
    nlohmann::json vocab;
    for (int i = 0; i < 26; ++i) vocab[std::string(1, static_cast<char>('a' + i))] = i;
    vocab["<end>"] = 26;
    vocab["ab"] = 27;
    vocab["abab"] = 28;
    const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                       {"add_prefix_space", false},
                                       {"trim_offsets", true},
                                       {"use_regex", true}};
    const nlohmann::json json = {
        {"version", "1.0"},
        {"pre_tokenizer", byte_level},
        {"decoder", byte_level},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab ab"}}}}};
    folder_.write_text("model/tokenizer.json", json.dump());
    folder_.write_text("model/tokenizer_config.json", R"({"eos_token": "<end>"})");
    std::string text;
    for (int i = 0; i < 200; ++i) text += i % 3 == 0 ? "ababc" : "abx";
    folder_.write_text("text/a.txt", text);
    folder_.write_text("text/b.jsonl", "{\"text\": \"ababab\"}\n{\"text\": \"q\"}\n");
  }
  /// Bytes of all labels of a dataset, and of its text that they are.
  std::pair<double, double> bytes_of(const Dataset& data) const {
    const auto length = static_cast<std::size_t>(data.options().seq_len);
    double counted = 0.0, expected = 0.0;
    const double by_token[kVocabulary] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 2, 4};
    for (std::int64_t sample = 0; sample < data.size(); ++sample) {
      Labels inputs(length), labels(length);
      data.read(sample, {inputs, labels, {}});
      counted += data.options().bytes.of(labels);
      for (const std::int64_t label : labels)
        if (label >= 0) expected += by_token[label];
    }
    return {counted, expected};
  }
  RunData open(const v1::RunConfig& resolved) const {
    const nn::ModelConfig model = load_model_config(resolved.model(), folder_.path());
    return open_run_data(resolved, model, folder_.path(), "run.data", tokenize(resolved));
  }
};

TEST_F(DataBytesTest, OfTokenizedTextAreThoseOfItsTokens) {
  const RunData data = open(resolve(config()));
  for (const auto& part : {data.training, data.validation}) {
    const auto [counted, expected] = bytes_of(*part);
    EXPECT_GT(expected, 0.0);
    EXPECT_EQ(counted, expected);
  }
}

TEST_F(DataBytesTest, OfFilesOfDataTokenizeAreTheirMean) {
  v1::RunConfig given = config();
  const TokenizedText made = tokenize(resolve(given));
  std::filesystem::copy_file(made.tokens, folder_.path() / "mine.bin");
  given.mutable_data()->set_path("mine.bin");
  given.mutable_data()->set_validation_split(0.0);
  given.mutable_validation()->set_interval(0);
  const RunData data = open(resolve(given));
  const auto summary = text::TokenFile(folder_.path() / "mine.bin").summary();
  ASSERT_TRUE(summary);
  const Labels labels = {1, 2, 3};
  EXPECT_DOUBLE_EQ(
      data.training->options().bytes.of(labels),
      3.0 * static_cast<double>(summary->bytes) / static_cast<double>(summary->tokens));
}

TEST_F(DataBytesTest, OfTokensOfNobodyKnownAreNotKnown) {
  folder_.write_u16("tokens.bin", std::vector<std::uint16_t>(100, 3));
  v1::RunConfig given = config();
  given.mutable_data()->set_path("tokens.bin");
  const RunData data = open(resolve(given));
  EXPECT_FALSE(data.training->options().bytes.known());
}

TEST_F(DataBytesTest, OfBytesIsOneEach) {
  v1::RunConfig given = config();
  given.mutable_model()->clear_config();
  given.mutable_model()->set_preset("byte_gpt_tiny");
  given.mutable_data()->set_path("text/a.txt");
  given.mutable_training()->set_seq_len(16);
  const RunData data = open(resolve(given));
  EXPECT_EQ(data.training->options().bytes.of(Labels{1, -100, 200}), 2.0);
}

}  // namespace
}  // namespace meshloom::train
