// SPDX-License-Identifier: Apache-2.0
// A model with a tokenizer of its own: from files of text to a sample of text.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

class TextE2e : public DaemonTest {
 protected:
  /// DATA_DIR/model: the config of a small GPT-2 and the tokenizer of a golden case, of as many
  /// tokens.
  void make_model() {
    const Json golden = Json::parse(read_file(MESHLOOM_SOURCE "/tests/golden/tokenizer/gpt2.json"));
    fs::create_directories(data_ / "model");
    Json config = Json::parse(read_file(MESHLOOM_SOURCE "/configs/models/byte_gpt_tiny.json"));
    config["vocab_size"] = golden["tokenizer"]["model"]["vocab"].size();
    write("config.json", config.dump());
    write("tokenizer.json", golden["tokenizer"].dump());
    write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    write("generation_config.json", R"({"max_length": 77})");
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(data_ / "model" / name) << text;
  }
};

TEST_F(TextE2e, IsTokenizedTrainedOnAndSampled) {
  make_model();
  fs::create_directories(folder_ / "corpus");
  std::ofstream lines(folder_ / "corpus" / "lines.jsonl");
  for (int i = 0; i < 300; ++i)
    lines << "{\"text\": \"Der Fuchs fraß größtenteils Äpfel, it's what they've said.\"}\n";
  lines.close();

  const std::string model = data_ / "model", tokens = data_ / "corpus.bin";
  const Json made =
      client_json({"data", "tokenize", "--tokenizer", model, "--out", tokens, folder_ / "corpus"});
  EXPECT_EQ(made["documents"], 300);
  const Json seen = client_json({"data", "inspect", "--tokenizer", model, tokens});
  EXPECT_EQ(seen["tokens"], made["tokens"]);
  EXPECT_EQ(seen["eos_tokens"], 300);
  EXPECT_EQ(seen["outside_vocabulary"], 0);
  EXPECT_TRUE(seen["sample"].get<std::string>().starts_with("Der Fuchs fraß größtenteils"));

  start(1);
  TinyJob text;
  text.model = "{config: model/config.json}";
  text.data = "corpus.bin";
  text.steps = 100;
  text.optimizer = "{lr: 5.0e-3}";
  text.extra = "  export: {hf_folder: hf}\n";
  submit(text, "text");
  ASSERT_TRUE(reaches("text", "succeeded")) << job("text").dump(2);
  const auto sample = client({"generate", "--job", "text", "--tokenizer", model, "--prompt",
                              "Der Fuchs fra", "--temperature", "0", "--max-tokens", "40"});
  ASSERT_EQ(sample.exit_code, 0) << sample.errors;
  EXPECT_NE(sample.output.find(" Äpfel, it's what they've said."), std::string::npos)
      << sample.output;

  // What the model came with goes with its export.
  const std::string out = folder_ / "out";
  const auto copied = client({"checkpoint", "download", "checkpoints/text/hf", out});
  ASSERT_EQ(copied.exit_code, 0) << copied.errors;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    EXPECT_EQ(read_file(fs::path(out) / name), read_file(data_ / "model" / name)) << name;
  const auto again = client(
      {"generate", "--job", "text", "--tokenizer", out, "--prompt", "Der", "--max-tokens", "3"});
  EXPECT_EQ(again.exit_code, 0) << again.errors;
}

TEST_F(TextE2e, WhatIsNoTextOrHasNoTokenizerIsNamed) {
  make_model();
  const std::string model = data_ / "model", out = folder_ / "out.bin";
  write_text("array.npy", "no text");
  write_text("text.txt", "some text");
  const auto array = client(
      {"data", "tokenize", "--tokenizer", model, "--out", out, (folder_ / "array.npy").string()});
  EXPECT_EQ(array.exit_code, 2);
  EXPECT_NE(array.errors.find("array.npy ends in .npy"), std::string::npos) << array.errors;
  const auto none = client(
      {"data", "tokenize", "--tokenizer", folder_, "--out", out, (folder_ / "text.txt").string()});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.errors.find("has no tokenizer"), std::string::npos) << none.errors;
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace meshloom::e2e
