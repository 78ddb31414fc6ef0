// SPDX-License-Identifier: Apache-2.0
// A model with a tokenizer of its own: from files of text to a sample of text.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

/// What a model draws behind a prompt, token by token.
struct Drawn {
  std::vector<int> ids;
  std::vector<std::string> pieces;  ///< the characters that became complete with each
  std::string text;
  std::string finish_reason;
};

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u; }

/// Where the character in front of a place begins, which is not that of the text's first.
std::size_t character_before(const std::string& text, std::size_t at) {
  do --at;
  while (at > 0 && !begins_character(text[at]));
  return at;
}

/// Where the one behind it ends.
std::size_t character_behind(const std::string& text, std::size_t at) {
  do ++at;
  while (at < text.size() && !begins_character(text[at]));
  return at;
}

/// Each begins with the last character of a token and ends with the first one of the next, where
/// both tokens have more, and is nowhere in the text before.
std::vector<std::string> across_borders(const Drawn& drawn) {
  std::vector<std::string> strings;
  std::size_t border = 0;
  for (std::size_t i = 1; i < drawn.pieces.size(); ++i) {
    const std::string& token = drawn.pieces[i - 1];
    border += token.size();
    if (token.empty() || drawn.pieces[i].empty()) continue;
    const std::size_t begin = character_before(drawn.text, border);
    const std::size_t end = character_behind(drawn.text, border);
    const std::string string = drawn.text.substr(begin, end - begin);
    if (begin > border - token.size() && end < border + drawn.pieces[i].size() &&
        drawn.text.find(string) == begin)
      strings.push_back(string);
  }
  return strings;
}

/// The same drawing up to the first of a string: the text before it, the tokens up to the one that
/// completes it.
Drawn up_to(const Drawn& whole, const std::string& stop) {
  Drawn cut;
  while (cut.text.find(stop) == std::string::npos) {
    cut.text += whole.pieces.at(cut.ids.size());
    cut.ids.push_back(whole.ids.at(cut.ids.size()));
  }
  cut.text.resize(cut.text.find(stop));
  return cut;
}

class TextE2e : public DaemonTest {
 protected:
  /// Job "text" on these data, with an export and `more` lines below run:.
  void train_text(const char* data, const std::string& more = "") {
    TinyJob text;
    text.model = "{config: model/config.json}";
    text.data = data;
    text.steps = 100;
    text.optimizer = "{lr: 5.0e-3}";
    text.extra = "  export: {hf_folder: hf}\n" + more;
    submit(text, "text");
    ASSERT_TRUE(reaches("text", "succeeded")) << job("text").dump(2);
  }
  /// DATA_DIR/model: the config of a small GPT-2 and the tokenizer of a golden case, of as many
  /// tokens.
  void make_model(const std::string& tokenizer = "gpt2",
                  const std::string& tokenizer_config = R"({"eos_token": "<|endoftext|>"})") {
    const Json golden =
        Json::parse(read_file(test::source_file("tests/golden/tokenizer/" + tokenizer + ".json")));
    fs::create_directories(data_ / "model");
    Json config = Json::parse(read_file(test::source_file("configs/models/byte_gpt_tiny.json")));
    config["vocab_size"] = golden["tokenizer"]["model"]["vocab"].size();
    write("config.json", config.dump());
    write("tokenizer.json", golden["tokenizer"].dump());
    write("tokenizer_config.json", tokenizer_config);
    write("generation_config.json", R"({"max_length": 77})");
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(data_ / "model" / name) << text;
  }
  /// DATA_DIR/name of so many documents.
  void write_lines(const std::string& name, int documents) const {
    fs::create_directories((data_ / name).parent_path());
    std::ofstream lines(data_ / name);
    for (int i = 0; i < documents; ++i) lines << Json{{"text", kLine}}.dump() << "\n";
  }
  int token_files() const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(state_ / "tokens"))
      count += entry.path().extension() == ".tokens";
    return count;
  }
  fs::path token_file() const {
    for (const auto& entry : fs::directory_iterator(state_ / "tokens"))
      if (entry.path().extension() == ".tokens") return entry.path();
    return {};
  }
  /// A run "driven" of what the job "text" has exported; its token.
  std::string drive_export() const {
    const std::string local = folder_ / "exported";
    EXPECT_EQ(client({"checkpoint", "download", "checkpoints/text/hf", local}).exit_code, 0);
    EXPECT_EQ(client({"model", "create", "small", local}).exit_code, 0);
    return create_run("driven", "{name: small}");
  }
  /// What the job "text", as `more` has it, draws behind kBegin.
  Drawn drawn(const Arguments& more) const {
    Arguments command{"generate", "--job", "text", "--json"};
    command.insert(command.end(), kGreedy.begin(), kGreedy.end());
    command.insert(command.end(), more.begin(), more.end());
    const auto result = client(command);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    Drawn drawn;
    std::istringstream lines(result.output);
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line);
      drawn.text += record.value("text", "");
      if (record.value("done", false)) {
        drawn.finish_reason = record["finish_reason"];
      } else {
        drawn.ids.push_back(record.value("token_id", 0));
        drawn.pieces.push_back(record.value("text", ""));
      }
    }
    return drawn;
  }
  inline static const std::string kBegin = "Der Fuchs fra";
  inline static const Arguments kGreedy = {"--prompt", kBegin,         "--temperature",
                                           "0",        "--max-tokens", "30"};
  inline static const std::string kLine =
      "Der Fuchs fraß größtenteils Äpfel, it's what they've said.";
};

TEST_F(TextE2e, IsTokenizedTrainedOnAndSampled) {
  make_model();
  start(1);
  write_lines("corpus/lines.jsonl", 300);
  const Arguments tokenize = {"data",  "tokenize",   "--tokenizer", "model",
                              "--out", "corpus.bin", "corpus"};
  const Json made = client_json(tokenize);
  EXPECT_EQ(made["documents"], 300);
  EXPECT_EQ(made["path"], "corpus.bin");
  const auto again_there = client(tokenize);
  EXPECT_NE(again_there.exit_code, 0);
  EXPECT_NE(again_there.errors.find("corpus.bin is there already"), std::string::npos)
      << again_there.errors;
  Arguments overwriting = tokenize;
  overwriting.emplace_back("--overwrite");
  const auto shown = client(overwriting);
  ASSERT_EQ(shown.exit_code, 0) << shown.errors;
  EXPECT_NE(shown.output.find("\n  data: {path: corpus.bin, format: llmc, document_end: 0}\n"),
            std::string::npos)
      << shown.output;
  const Json seen = client_json({"data", "inspect", "--tokenizer", "model", "corpus.bin"});
  EXPECT_EQ(seen["tokens"], made["tokens"]);
  EXPECT_EQ(seen["documents"], 300);
  EXPECT_EQ(seen["outside_vocabulary"], 0);
  EXPECT_EQ(seen["seq_len_source"], "model");
  EXPECT_EQ(seen["seq_len"], 128);
  EXPECT_TRUE(seen["sample"].get<std::string>().starts_with("Der Fuchs fraß größtenteils"));
  const Json read =
      client_json({"data", "inspect", "--tokenizer", "model", "--seq", "8", "corpus"});
  EXPECT_EQ(read["documents"], 300);
  EXPECT_EQ(read["tokens"], made["tokens"]);
  EXPECT_EQ(read["sample_tokens"], 8);
  EXPECT_EQ(read["samples"], (made["tokens"].get<int>() - 1) / 8);
  EXPECT_TRUE(kLine.starts_with(read["sample"].get<std::string>()));
  const auto text = client({"data", "inspect", "corpus"}).output;
  EXPECT_NE(text.find(", of 1,024 tokens (the default: --seq says another)"), std::string::npos)
      << text;
  EXPECT_NE(text.find("sample      the first 1,024 tokens\n\nDer Fuchs"), std::string::npos)
      << text;

  ASSERT_NO_FATAL_FAILURE(train_text("corpus.bin"));
  const auto sample =
      client({"generate", "--job", "text", "--tokenizer", data_ / "model", "--prompt",
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
  start(1);
  const auto write_data = [&](const char* name, const std::string& text) {
    std::ofstream(data_ / name) << text;
  };
  write_data("array.npy", "no text");
  write_data("text.txt", "some text");
  write_data("empty.txt", "");
  write_data("body.jsonl", "{\"body\": \"x\"}\n");
  fs::create_directories(data_ / "nothing");
  const auto expect_refused = [&](const std::string& tokenizer, const std::string& out,
                                  const std::string& path, const std::string& why) {
    const auto result = client({"data", "tokenize", "--tokenizer", tokenizer, "--out", out, path});
    EXPECT_NE(result.exit_code, 0) << path;
    EXPECT_NE(result.errors.find(why), std::string::npos) << result.errors;
    EXPECT_EQ(result.errors.find(".new"), std::string::npos) << result.errors;
  };
  expect_refused("model", "out.bin", "array.npy", "array.npy ends in .npy");
  expect_refused("nothing", "out.bin", "text.txt", "has no tokenizer");
  expect_refused("gpt2_124m", "out.bin", "text.txt", "has 50257 tokens and no tokenizer");
  expect_refused("auto", "out.bin", "text.txt", "here is no job");
  expect_refused("model", "out.bin", "empty.txt", "empty.txt: there is no text");
  expect_refused("model", "out.bin", "body.jsonl", "run.data.field: ");
  expect_refused("model", "out.bin", "/etc/passwd", "outside the data folder");
  expect_refused("model", "../out.bin", "text.txt", "\"..\"");
  expect_refused("model", "/tmp/out.bin", "text.txt", "outside the data folder");
  expect_refused("model", "no/out.bin", "text.txt", "does not exist below");
  EXPECT_FALSE(fs::exists(data_ / "out.bin"));
  EXPECT_FALSE(fs::exists(data_ / ".out.bin.new"));
  // And by jobs, before they wait for their turn.
  TinyJob job;
  job.model = "{config: model/config.json}";
  job.data = "body.jsonl";
  const auto checked = client({"job", "submit", write_job(job), "--dry-run"});
  EXPECT_NE(checked.exit_code, 0) << checked.output;
  EXPECT_NE(checked.errors.find("no text under \"text\": the line has \"body\""), std::string::npos)
      << checked.errors;
  shut_down();
}

TEST_F(TextE2e, IsFineTunedFromFilesOfTextToASampleOfText) {
  make_model();
  // A small GPT-2 folder with weights, on the client's side.
  start(2);
  write_lines("corpus/lines.jsonl", 300);
  write_lines("held_out.jsonl", 20);
  TinyJob first;
  first.model = "{config: model/config.json}";
  first.data = "corpus";
  first.steps = 1;
  first.extra = "  export: {hf_folder: hf}\n";
  submit(first, "first");
  ASSERT_TRUE(reaches("first", "succeeded")) << job("first").dump(2);
  const std::string local = folder_ / "gpt2";
  ASSERT_EQ(client({"checkpoint", "download", "checkpoints/first/hf", local}).exit_code, 0);

  const auto made = client({"model", "create", "small", local});
  ASSERT_EQ(made.exit_code, 0) << made.errors;
  TinyJob tuned;
  tuned.model = "{name: small}";
  tuned.data = "corpus, tokenizer: auto, validation_path: held_out.jsonl";
  tuned.steps = 120;
  tuned.validation_interval = 60;
  tuned.checkpoint_interval = 60;
  tuned.optimizer = "{lr: 5.0e-3}";
  tuned.extra =
      "  export: {hf_folder: hf}\n"
      "  sample: {prompt: Der Fuchs fra, params: {temperature: 0, max_tokens: 40}}\n";
  const auto followed =
      client({"job", "submit", write_job(tuned), "--name", "tuned", "--follow"}, 120s);
  ASSERT_EQ(followed.exit_code, 0) << followed.output << followed.errors;
  // Once before the tokens are made, and again with all.
  const std::string tokens = "data        corpus: 1 file, 300 documents, ";
  EXPECT_NE(followed.output.find(" of text; its tokens are made"), std::string::npos)
      << followed.output;
  EXPECT_NE(followed.output.find(tokens), std::string::npos) << followed.output;
  const std::string shown = client({"job", "show", "tuned"}).output;
  EXPECT_NE(shown.find(tokens), std::string::npos) << shown;
  EXPECT_NE(shown.find(" samples to train on, "), std::string::npos) << shown;
  const Json ended = job("tuned");
  EXPECT_EQ(ended["resolved"]["data"]["document_end"], 0);
  EXPECT_LT(ended["last_validation"]["loss"].get<double>(), 1.0);
  EXPECT_GT(ended["first_validation"]["loss"].get<double>(), 4.0);
  EXPECT_NE(ended["sample"].get<std::string>().find(kLine.substr(13, 20)), std::string::npos)
      << ended["sample"];
  // The corpus was tokenized for the first job, and is not again.
  EXPECT_EQ(token_files(), 2);

  // From the checkpoint, the export and the model: text goes in and comes out.
  const Arguments rest = {"--prompt", "Der Fuchs fra", "--temperature", "0", "--max-tokens", "40"};
  for (const Arguments& source :
       {Arguments{"--job", "tuned"}, Arguments{"--checkpoint", "checkpoints/tuned/step-120"}}) {
    Arguments command = {"generate"};
    command.insert(command.end(), source.begin(), source.end());
    command.insert(command.end(), rest.begin(), rest.end());
    const auto sample = client(command);
    ASSERT_EQ(sample.exit_code, 0) << sample.errors;
    EXPECT_NE(sample.output.find(" Äpfel, it's what they've said."), std::string::npos)
        << sample.output;
  }
  for (const char* folder : {"checkpoints/step-120", "hf"})
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
      EXPECT_EQ(read_file(state_ / "jobs" / "tuned" / folder / name),
                read_file(data_ / "model" / name))
          << folder << " " << name;
  shut_down();
}

TEST_F(TextE2e, IsEvaluatedOnTextWithTheTokenizerOfItsCheckpoint) {
  make_model();
  start(2);
  write_lines("corpus/lines.jsonl", 300);
  write_lines("held_out.jsonl", 20);
  TinyJob text;
  text.model = "{config: model/config.json}";
  text.data = "corpus, validation_path: held_out.jsonl";
  text.steps = 20;
  text.validation_interval = 20;
  text.extra = "  export: {hf_folder: hf}\n";
  submit(text, "text");
  ASSERT_TRUE(reaches("text", "succeeded")) << job("text").dump(2);
  const auto loss = [&](const Arguments& options) {
    return evaluate(options)["loss"].get<double>();
  };
  const double expected = loss({"--job", "text"});
  EXPECT_GT(expected, 0.0);
  EXPECT_EQ(loss({"--job", "text", "--data", "held_out.jsonl"}), expected);
  EXPECT_EQ(loss({"--checkpoint", "checkpoints/text/hf"}), expected);
  // The job's tokenizer is that of its checkpoint, whatever has become of the model's folder.
  fs::remove(data_ / "model" / "tokenizer.json");
  EXPECT_EQ(loss({"--job", "text"}), expected);
  // Another format than the job's.
  std::ofstream plain(data_ / "plain.txt");
  for (int i = 0; i < 20; ++i) plain << kLine << "\n";
  plain.close();
  EXPECT_GT(loss({"--job", "text", "--data", "plain.txt"}), 0.0);
  shut_down();
}

TEST_F(TextE2e, SamplesEndBeforeStopStringsThatBeginAndEndInsideTokens) {
  make_model();
  start(2);
  write_lines("corpus/lines.jsonl", 300);
  ASSERT_NO_FATAL_FAILURE(train_text("corpus"));
  const Drawn whole = drawn({});
  ASSERT_EQ(whole.ids.size(), 30u);
  EXPECT_EQ(whole.finish_reason, "length");
  std::vector<std::string> stops = across_borders(whole);
  ASSERT_GE(stops.size(), 2u) << whole.text;

  const std::string token = drive_export();
  const auto sample = [&](const Arguments& more) {
    Arguments command{"run", "sample", "driven", "--token", token};
    command.insert(command.end(), kGreedy.begin(), kGreedy.end());
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  const auto expect_both = [&](const Arguments& more, const Drawn& expected, bool stopped) {
    SCOPED_TRACE(more.back());
    const Drawn generated = drawn(more);
    EXPECT_EQ(generated.text, expected.text);
    EXPECT_EQ(generated.ids, expected.ids);
    EXPECT_EQ(generated.finish_reason, stopped ? "stop" : "length");
    const Json sampled = client_json(sample(more))["result"]["sample"]["sequences"][0];
    EXPECT_EQ(sampled["token_ids"].get<std::vector<int>>(), expected.ids);
    EXPECT_EQ(sampled["finish_reason"], stopped ? "stop_string" : "length");
    EXPECT_EQ(client(sample(more)).output, kBegin + expected.text + "\n");
  };
  expect_both({"--ignore-eos"}, whole, false);
  for (const std::string& stop : stops) expect_both({"--stop", stop}, up_to(whole, stop), true);
  // The first of several that is complete, in whatever order they are named.
  expect_both({"--stop", stops.back(), "--stop", stops.front()}, up_to(whole, stops.front()), true);
  // What only begins like one is told all the same.
  expect_both({"--stop", stops.front() + "never"}, whole, false);
  EXPECT_EQ(client({"run", "close", "driven", "--token", token}).exit_code, 0);
  shut_down();
}

TEST_F(TextE2e, TheFirstWordBehindAPromptKeepsItsBlank) {
  // Words have their blank in front, which a text's first one is written without.
  make_model("llama2", "{}");
  write("special_tokens_map.json", R"({"eos_token": "</s>"})");
  start(1);
  write_lines("corpus/lines.jsonl", 300);
  ASSERT_NO_FATAL_FAILURE(train_text(
      "corpus",
      "  sample: {prompt: Der Fuchs, interval: 50, params: {temperature: 0, max_tokens: 12}}\n"));
  const std::string begin = "Der Fuchs", text = job("text")["sample"];
  EXPECT_TRUE(text.starts_with(begin + " ")) << text;
  EXPECT_TRUE(kLine.starts_with(text)) << text;
  EXPECT_TRUE(job("text")["samples"][0]["text"].get<std::string>().starts_with(begin + " "));
  const Arguments greedy = {"--prompt", begin, "--temperature", "0", "--max-tokens", "12"};
  const auto shown = [&](Arguments command, const Arguments& more) {
    command.insert(command.end(), greedy.begin(), greedy.end());
    command.insert(command.end(), more.begin(), more.end());
    const auto result = client(command);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output;
  };
  const Arguments generate = {"generate", "--job", "text"};
  EXPECT_EQ(shown(generate, {}), text + "\n");
  EXPECT_EQ(shown(generate, {"--tokenizer", data_ / "model"}), text + "\n");
  EXPECT_EQ(shown(generate, {"--stop", " "}), begin + "\n");

  const std::string token = drive_export();
  const Arguments sample = {"run", "sample", "driven", "--token", token};
  EXPECT_EQ(shown(sample, {}), text + "\n");
  Arguments stopped = sample;
  stopped.emplace_back("--json");
  const Json sequence =
      Json::parse(shown(stopped, {"--stop", " "}))["result"]["sample"]["sequences"][0];
  EXPECT_EQ(sequence["finish_reason"], "stop_string");
  EXPECT_LE(sequence["token_ids"].size(), 2u);
  EXPECT_EQ(client({"run", "close", "driven", "--token", token}).exit_code, 0);
  shut_down();
}

TEST_F(TextE2e, AJobGoesOnWithItsTokensAndNotWithAnotherTokenizers) {
  make_model();
  write_lines("corpus/lines.jsonl", 300);
  start(2);
  TinyJob text;
  text.model = "{config: model/config.json}";
  text.data = "corpus";
  text.steps = 10'000'000;
  text.checkpoint_interval = 20;
  submit(text, "text");
  ASSERT_TRUE(reaches_step("text", 40)) << job("text").dump(2);
  // A running job takes text, too.
  const auto sample = client({"generate", "--job", "text", "--prompt", "Der", "--max-tokens", "4"});
  EXPECT_EQ(sample.exit_code, 0) << sample.errors;
  EXPECT_TRUE(sample.output.starts_with("Der")) << sample.output;
  kill_everything();
  // What a writer that was killed leaves is no cache file.
  for (const auto& entry : fs::directory_iterator(state_ / "tokens"))
    if (entry.path().extension() == ".tokens")
      fs::resize_file(entry.path(), fs::file_size(entry.path()) / 2);
  start(2);
  ASSERT_TRUE(reaches_step("text", 60)) << job("text").dump(2);
  EXPECT_EQ(token_files(), 1);
  ASSERT_EQ(client({"job", "cancel", "text"}).exit_code, 0);
  ASSERT_TRUE(reaches("text", "cancelled"));

  write("tokenizer.json", Json::parse(read_file(data_ / "model" / "tokenizer.json")).dump(1));
  text.resume_from = "checkpoints/text";
  expect_refused_for({"job", "submit", write_job(text)}, "DATA_CHANGED");
  shut_down();
}

TEST_F(TextE2e, FilesThatAreNoTextAreRefusedForBytesToo) {
  start(1);
  std::ofstream(data_ / "array.npy") << "no text";
  std::ofstream(data_ / "zeros.txt") << std::string(1000, '\0');
  TinyJob bytes;
  for (const char* data : {"array.npy", "zeros.txt", "text.txt, validation_path: array.npy"}) {
    bytes.data = data;
    expect_refused_for({"job", "submit", write_job(bytes)}, "NOT_TEXT");
  }
  // Documents of .jsonl are told from the lines around them.
  write_lines("lines.jsonl", 300);
  bytes.data = "lines.jsonl";
  bytes.optimizer = "{lr: 1.0e-2}";
  bytes.steps = 2;
  submit(bytes, "bytes");
  ASSERT_TRUE(reaches("bytes", "succeeded")) << job("bytes").dump(2);
  EXPECT_EQ(fs::file_size(token_file()), 1024 + 4 * 300 * kLine.size());
  EXPECT_EQ(token_files(), 1);
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
