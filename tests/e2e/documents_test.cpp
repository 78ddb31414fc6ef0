// SPDX-License-Identifier: Apache-2.0
// Text as documents of tokens: what stands around them, what is read of files from elsewhere.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

class DocumentsE2e : public DaemonTest {
 protected:
  /// DATA_DIR/model: a small GPT-2 whose tokenizer puts a bos before every text.
  void make_model() {
    const Json golden =
        Json::parse(read_file(test::source_file("tests/golden/tokenizer/llama3.json")));
    fs::create_directories(data_ / "model");
    Json config = Json::parse(read_file(test::source_file("configs/models/byte_gpt_tiny.json")));
    config["vocab_size"] = 702;
    write("model/config.json", config.dump());
    write("model/tokenizer.json", golden["tokenizer"].dump());
    write("model/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(data_ / name, std::ios::binary) << text;
  }
  void write_lines(const std::string& name, int documents) const {
    std::string lines;
    for (int i = 0; i < documents; ++i) lines += Json{{"text", kLine}}.dump() + "\n";
    write(name, lines);
  }
  Json tokenized(const std::string& path, Arguments more = {}) const {
    Arguments all{"data", "tokenize", "--tokenizer", "model", "--out", "out.bin", "--overwrite"};
    all.insert(all.end(), more.begin(), more.end());
    all.push_back(path);
    return client_json(all);
  }
  double evaluated(const Arguments& options) const {
    return evaluate(options)["loss"].get<double>();
  }
  bool has_note(const std::string& name, const std::string& text) const {
    const Json told = job(name);
    for (const Json& note : told.at("notes"))
      if (note.get<std::string>().find(text) != std::string::npos) return true;
    return false;
  }

  inline static const std::string kLine = "Der Fuchs fragt, it's what they've said.";
};

TEST_F(DocumentsE2e, HaveTheTemplatesTokensOfPromptsAroundThem) {
  make_model();
  write_lines("lines.jsonl", 10);
  start(1);
  const int around = tokenized("lines.jsonl")["tokens"];
  EXPECT_EQ(tokenized("lines.jsonl", {"--no-special-tokens"})["tokens"], around - 10);
  EXPECT_EQ(tokenized("lines.jsonl", {"--no-document-end"})["tokens"], around - 10);
  const auto seen = [&](const Arguments& more) {
    Arguments all{"data", "inspect", "--tokenizer", "model", "--seq", "2", "lines.jsonl"};
    all.insert(all.end(), more.begin(), more.end());
    return client_json(all)["sample"].get<std::string>();
  };
  EXPECT_TRUE(seen({}).starts_with("<s>")) << seen({});
  EXPECT_FALSE(seen({"--no-special-tokens"}).starts_with("<s>"));
  shut_down();
}

TEST_F(DocumentsE2e, AreWhatPythonReadsOfAFileOfText) {
  make_model();
  write("plain.txt", "one\ntwo\nthree\n");
  write("windows.txt", "\xEF\xBB\xBFone\r\ntwo\r\nthree\r\n");
  start(1);
  const Json plain = tokenized("plain.txt");
  const std::string tokens = read_file(data_ / "out.bin");
  EXPECT_EQ(tokenized("windows.txt")["tokens"], plain["tokens"]);
  EXPECT_EQ(read_file(data_ / "out.bin").substr(1024), tokens.substr(1024));
  EXPECT_EQ(client_json({"data", "inspect", "--tokenizer", "bytes", "windows.txt"})["tokens"], 20)
      << "bytes are what they are";
  shut_down();
}

TEST_F(DocumentsE2e, OfLinesOfJsonAreTakenRefusedOrSkippedLineByLine) {
  make_model();
  write_lines("lines.jsonl", 300);
  std::ofstream(data_ / "lines.jsonl", std::ios::app) << R"({"text": "half a pair: \ud83d"})"
                                                      << "\n"
                                                      << R"({"text": "a pair: \ud83d\ude00"})"
                                                      << "\n"
                                                      << R"({"text": null})"
                                                      << "\n"
                                                      << R"({"body": "x"})"
                                                      << "\n";
  start(1);
  TinyJob lines;
  lines.model = "{config: model/config.json}";
  lines.data = "lines.jsonl";
  lines.steps = 2;
  const auto refused = client({"job", "submit", write_job(lines)});
  EXPECT_NE(refused.exit_code, 0) << refused.output;
  EXPECT_NE(refused.errors.find("lines.jsonl:303: there is no text under \"text\""),
            std::string::npos)
      << refused.errors;
  lines.data = "lines.jsonl, skip_lines_without_text: true";
  submit(lines, "skipping");
  ASSERT_TRUE(reaches("skipping", "succeeded")) << job("skipping").dump(2);
  const Json data = job("skipping")["data"];
  EXPECT_EQ(data["documents"], 302);
  EXPECT_EQ(data["replaced_documents"], 1);
  EXPECT_EQ(data["skipped_lines"], 2);
  EXPECT_TRUE(has_note("skipping", "run.data.path: 1 of 302 documents has"));
  EXPECT_TRUE(has_note("skipping", "run.data.path: 2 lines were left out"));

  const Json made = tokenized("lines.jsonl", {"--skip-lines-without-text"});
  EXPECT_EQ(made["skipped_lines"], 2);
  EXPECT_EQ(made["replaced_documents"], 1);
  const Json seen = client_json(
      {"data", "inspect", "--tokenizer", "model", "--skip-lines-without-text", "lines.jsonl"});
  EXPECT_EQ(seen["skipped_lines"], 2);
  const auto shown = client(
      {"data", "inspect", "--tokenizer", "model", "--skip-lines-without-text", "lines.jsonl"});
  EXPECT_NE(shown.output.find("; 2 lines without text left out"), std::string::npos)
      << shown.output;
  expect_refused_for({"data", "inspect", "--tokenizer", "model", "lines.jsonl"}, "NO_FIELD");
  shut_down();
}

TEST_F(DocumentsE2e, OfAJobOfAnOlderDaemonStayAsTheyWere) {
  make_model();
  write_lines("lines.jsonl", 300);
  write_lines("held_out.jsonl", 8);
  start(1);
  TinyJob before;
  before.model = "{config: model/config.json}";
  // As such a daemon leaves it in resolved.yaml: with an identity, and without add_special_tokens.
  before.data =
      "lines.jsonl, validation_path: held_out.jsonl, allow_changed: true, "
      "identity: {tokenizer: older}";
  before.steps = 4;
  before.validation_interval = 4;
  submit(before, "before");
  ASSERT_TRUE(reaches("before", "succeeded")) << job("before").dump(2);
  TinyJob now = before;
  now.data = "lines.jsonl, validation_path: held_out.jsonl";
  submit(now, "now");
  ASSERT_TRUE(reaches("now", "succeeded")) << job("now").dump(2);
  EXPECT_FALSE(job("before")["resolved"]["data"].contains("add_special_tokens"));
  EXPECT_TRUE(job("now")["resolved"]["data"]["add_special_tokens"].get<bool>());
  const int tokens = job("now")["data"]["tokens"];
  EXPECT_EQ(job("before")["data"]["tokens"], tokens - 300);
  for (const char* name : {"before", "now"}) {
    const double loss = job(name)["last_validation"]["loss"];
    EXPECT_NEAR(evaluated({"--job", name}), loss, 1e-6 * std::abs(loss)) << name;
  }
  EXPECT_NE(evaluated({"--job", "now", "--no-special-tokens"}), evaluated({"--job", "now"}));
  const auto next = client({"job", "resume", "before", "--steps", "6", "--name", "next"});
  ASSERT_EQ(next.exit_code, 0) << next.errors;
  ASSERT_TRUE(reaches("next", "succeeded")) << job("next").dump(2);
  EXPECT_EQ(job("next")["data"]["tokens"], tokens - 300);
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
