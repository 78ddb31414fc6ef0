// SPDX-License-Identifier: Apache-2.0
// A tokenizer of one's own text, models trained with it, and losses by byte.
#include <fmt/format.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <numbers>
#include <random>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
  "vocab_size": 320, "n_positions": 32, "n_embd": 32, "n_layer": 1, "n_head": 2,
  "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0})";

class OwnTokenizerE2e : public DaemonTest {
 protected:
  void SetUp() override {
    // The first token is one byte, which nothing predicts.
    std::mt19937 random(5);
    std::string text = "Q\n";
    const char* words[] = {"the", "fox", "asks", "what", "they", "said", "\u00e9t\u00e9", "of"};
    while (text.size() < 30'000) text += std::string(words[random() % 8]) + " ";
    std::ofstream(data_ / "words.txt") << text;
    std::ofstream(data_ / "model.json") << kModel;
  }
  CommandResult train(const Arguments& more, const std::string& out = "bpe",
                      const std::string& text = "words.txt") const {
    Arguments all = {"data", "train-tokenizer", "--out", (data_ / out).string(),
                     (data_ / text).string()};
    all.insert(all.end(), more.begin(), more.end());
    return client(all);
  }
};

TEST_F(OwnTokenizerE2e, TrainsAModelWhoseLossIsToldByByte) {
  const auto made = train({"--vocab", "320", "--json"});
  ASSERT_EQ(made.exit_code, 0) << made.errors;
  const Json told = Json::parse(made.output);
  EXPECT_EQ(told["bytes"], fs::file_size(data_ / "words.txt"));
  EXPECT_GT(told["bytes_per_token"].get<double>(), 2.0);
  start();
  TinyJob tiny;
  tiny.validation_interval = 20;
  tiny.model = "{config: model.json}";
  tiny.data = "words.txt, tokenizer: bpe";
  submit(tiny, "first");
  ASSERT_TRUE(reaches("first", "succeeded")) << job("first").dump(2);
  const Json all = evaluate({"--job", "first", "--data", "words.txt"});
  const auto bytes = static_cast<double>(fs::file_size(data_ / "words.txt"));
  // The eos behind the text is predicted, and stands for no byte.
  EXPECT_EQ(all["tokens"].get<double>(), told["tokens"].get<double>());
  EXPECT_NEAR(
      all["bits_per_byte"].get<double>(),
      all["loss"].get<double>() * all["tokens"].get<double>() / (std::numbers::ln2 * (bytes - 1)),
      1e-9);
  const Json shown = job("first");
  for (const char* validation : {"first_validation", "last_validation"})
    EXPECT_GT(shown[validation]["bits_per_byte"].get<double>(), 0.1) << shown.dump(2);
  EXPECT_LT(shown["last_validation"]["bits_per_byte"].get<double>(),
            shown["first_validation"]["bits_per_byte"].get<double>());
  EXPECT_EQ(shown["data"]["bytes"].get<double>(), bytes);
  EXPECT_NE(client({"job", "show", "first"}).output.find(" bits/byte"), std::string::npos);
  std::ifstream metrics(state_ / "jobs/first/metrics.jsonl");
  int steps = 0;
  for (std::string line; std::getline(metrics, line); ++steps) {
    const Json entry = Json::parse(line);
    const char* key = entry.contains("loss") ? "bits_per_byte" : "validation_bits_per_byte";
    EXPECT_GT(entry.at(key).get<double>(), 0.1) << line;
  }
  EXPECT_GE(steps, 20);
  // Whatever its tokens are, two jobs compare by bytes.
  TinyJob of_bytes;
  of_bytes.data = "words.txt";
  submit(of_bytes, "bytes");
  ASSERT_TRUE(reaches("bytes", "succeeded"));
  const auto compared = client({"job", "compare", "first", "bytes"});
  EXPECT_NE(compared.output.find("bits/byte at step 20"), std::string::npos) << compared.output;
  const Json last = job("bytes")["last_step"];
  EXPECT_NEAR(last["bits_per_byte"].get<double>(), last["loss"].get<double>() / std::numbers::ln2,
              1e-9);
  const Json curves = client_json({"job", "plot", "first", "bytes", "--bits-per-byte"})["curves"];
  ASSERT_EQ(curves.size(), 2u);
  for (const Json& curve : curves) EXPECT_EQ(curve["points"].size(), 20u) << curve.dump();
  const auto sample = client({"generate", "--job", "first", "--prompt", "the fox"});
  EXPECT_EQ(sample.exit_code, 0) << sample.errors;
  shut_down();
}

TEST_F(OwnTokenizerE2e, TokensOfUnknownTextAreNotToldByByte) {
  start();
  std::ofstream bin(data_ / "tokens.bin", std::ios::binary);
  for (int i = 0; i < 4000; ++i) bin.put(static_cast<char>(i % 50)).put('\0');
  bin.close();
  TinyJob tiny;
  tiny.data = "tokens.bin";
  tiny.validation_interval = 20;
  submit(tiny, "first");
  ASSERT_TRUE(reaches("first", "succeeded")) << job("first").dump(2);
  EXPECT_FALSE(job("first")["last_step"].contains("bits_per_byte"));
  EXPECT_FALSE(job("first")["last_validation"].contains("bits_per_byte"));
  EXPECT_EQ(client({"job", "show", "first"}).output.find("bits/byte"), std::string::npos);
  shut_down();
}

TEST_F(OwnTokenizerE2e, IdsBeyondTheVocabularyAreToldBeforeAJobBegins) {
  start();
  submit_endless("dp2", "beside", 3);
  std::ofstream bin(data_ / "tokens.bin", std::ios::binary);
  for (int i = 0; i < 4000; ++i) bin.put('\1').put(i == 3999 ? '\2' : '\0');
  bin.close();
  const std::string file = write_job({.data = "tokens.bin"});
  for (const Arguments& how : {Arguments{"--dry-run"}, Arguments{}}) {
    Arguments all = {"job", "submit", file};
    all.insert(all.end(), how.begin(), how.end());
    expect_refused_for(all, "TOKEN_OUT_OF_RANGE");
  }
  const auto told = client({"job", "submit", file, "--dry-run"});
  EXPECT_NE(told.errors.find("token 513 at position 3999"), std::string::npos) << told.errors;
  const int step = job("beside")["step"];
  EXPECT_TRUE(reaches_step("beside", step + 3));
  cancel("beside");
  shut_down();
}

TEST_F(OwnTokenizerE2e, WhatCannotBeMadeIsTold) {
  const auto expect = [&](const CommandResult& result, int code, const char* text) {
    EXPECT_EQ(result.exit_code, code) << result.output << result.errors;
    EXPECT_NE((result.output + result.errors).find(text), std::string::npos)
        << result.output << result.errors;
  };
  expect(train({"--vocab", "100"}), 2, "at least 257 are needed");
  expect(train({"--vocab", "300", "--special", "x"}), 2, "is a byte of the alphabet");
  expect(train({"--vocab", "300", "--special", ""}), 2, "is empty");
  std::ofstream(data_ / "empty.txt");
  expect(train({"--vocab", "300"}, "none", "empty.txt"), 2, "there is no text");
  expect(train({"--vocab", "300"}, "none", "nowhere.txt"), 2, "nowhere.txt");
  std::ofstream(data_ / "array.npy") << "numbers";
  expect(train({"--vocab", "300"}, "none", "array.npy"), 2, "expected files of text");
  expect(train({"--vocab", "300"}, "no/parent"), 2, "no/parent");
  EXPECT_FALSE(fs::exists(data_ / "none"));
  std::ofstream(data_ / "line.txt") << "one line";
  expect(train({"--vocab", "300"}, "line", "line.txt"), 0, "fewer than the 300 asked for");
  std::ofstream(data_ / "latin.txt") << "\xE9t\xE9 \xE9t\xE9";
  expect(train({"--vocab", "258"}, "latin", "latin.txt"), 0, "no UTF-8");
  const std::string before = read_file(data_ / "latin/tokenizer.json");
  const auto again = train({"--vocab", "300", "--json"}, "latin");
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_EQ(Json::parse(again.output)["error"]["info"]["reason"], "TOKENIZER_EXISTS");
  EXPECT_EQ(read_file(data_ / "latin/tokenizer.json"), before);
}

TEST_F(OwnTokenizerE2e, AnInterruptLeavesNothing) {
  {
    std::mt19937 random(1);
    std::ofstream text(data_ / "large.txt");
    std::string block;
    for (int i = 0; i < 60; ++i) {
      block.clear();
      while (block.size() < (1u << 20)) block += fmt::format("{} ", random() % 5'000'000);
      text << block;
    }
  }
  Process training({test::program("meshloom"), "data", "train-tokenizer", "--vocab", "100000",
                    "--out", (data_ / "large").string(), (data_ / "large.txt").string()},
                   folder_ / "train.log", folder_ / "train.err");
  ASSERT_TRUE(eventually(20s, [&] { return fs::exists(data_ / "large"); }));
  training.signal(SIGINT);
  EXPECT_EQ(training.wait(30s), 130) << read_file(folder_ / "train.err");
  EXPECT_FALSE(fs::exists(data_ / "large"));
  EXPECT_NE(read_file(folder_ / "train.err").find("nothing was written"), std::string::npos);
}

}  // namespace
}  // namespace meshloom::e2e
