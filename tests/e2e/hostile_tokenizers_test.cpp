// SPDX-License-Identifier: Apache-2.0
// Tokenizers of strangers that make work or memory without end, beside a job that trains: whoever
// names one is refused, the job keeps its losses, and a stop is obeyed.
#include <fmt/ranges.h>

#include <csignal>
#include <fstream>

#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/run_client.h"
#include "tests/e2e/storms.h"
#include "tests/support/source_folder.h"
#include "v1/generate_service.grpc.pb.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

/// A tokenizer of the letters, with one part that is another.
Json tokenizer_of_letters(const std::string& part, const Json& value) {
  Json vocab = {{"<eos>", 0}, {" ", 1}};
  for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = static_cast<int>(vocab.size());
  Json json = {{"version", "1.0"},
               {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  json[part] = value;
  return json;
}

Json steps(const char* list, const Json& step, int count) {
  Json all = Json::array();
  for (int i = 0; i < count; ++i) all.push_back(step);
  return {{"type", "Sequence"}, {list, all}};
}

Json split_at(const std::string& regex) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

struct Hostile {
  std::string name, file;
  bool opens = false;  ///< it is refused by what it makes of a text, not by its file
};

std::vector<Hostile> hostile_tokenizers() {
  const Json doubles = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const Json widens = {
      {"type", "Metaspace"}, {"replacement", "  "}, {"prepend_scheme", "never"}, {"split", false}};
  const std::string large(200'000, 'a');
  std::string classes;
  for (int i = 0; i < 40'000; ++i) classes += "\\p{L}";
  Json words = tokenizer_of_letters("decoder", nullptr);
  words["model"]["type"] = "WordPiece";
  words["model"].erase("merges");
  words["model"]["unk_token"] = "<eos>";
  words["model"]["continuing_subword_prefix"] = "##";
  words["model"]["max_input_chars_per_word"] = 1 << 30;
  words["model"]["vocab"][large] = words["model"]["vocab"].size();
  const auto file = [](const char* part, const Json& value) {
    return tokenizer_of_letters(part, value).dump();
  };
  return {
      {"steps",
       file("pre_tokenizer", steps("pretokenizers", {{"type", "WhitespaceSplit"}}, 40'000))},
      {"prepend", file("normalizer", {{"type", "Prepend"}, {"prepend", large}})},
      {"classes", file("pre_tokenizer", split_at(classes))},
      {"words", words.dump()},
      {"doubled", file("normalizer", steps("normalizers", doubles, 31)), true},
      {"widened", file("pre_tokenizer", steps("pretokenizers", widens, 31)), true},
      {"regex", file("pre_tokenizer", split_at("(?:a?){25}a{25}b")), true},
  };
}

class HostileTokenizersE2e : public DaemonTest {
 protected:
  inline static const std::string kPrompt = std::string(500, 'a') + " a";

  /// DATA_DIR/NAME: a small model of 256 tokens, as a job has exported it, with this tokenizer.
  void make_folder(const std::string& name, const std::string& tokenizer) const {
    fs::copy(folder_ / "hf", data_ / name, fs::copy_options::recursive);
    std::ofstream(data_ / name / "tokenizer.json") << tokenizer;
    std::ofstream(data_ / name / "tokenizer_config.json") << R"({"eos_token": "<eos>"})";
  }
  static TinyJob job_of(const std::string& name) {
    TinyJob job;
    job.model = fmt::format("{{hf_folder: {}}}", name);
    job.data = "letters.txt, tokenizer: auto";
    return job;
  }
  void expect_limited(const Arguments& arguments) const {
    SCOPED_TRACE(fmt::format("{}", fmt::join(arguments, " ")));
    Arguments all = arguments;
    all.emplace_back("--json");
    const CommandResult result = client(all, 40s);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE(result.exit_code, -1) << "it took too long";
    EXPECT_NE(result.output.find("TOKENIZER_LIMIT"), std::string::npos)
        << result.output << result.errors;
  }
};

TEST_F(HostileTokenizersE2e, EndTheRequestsThatNameThemAlone) {
  start();
  ASSERT_NO_FATAL_FAILURE(export_first(folder_ / "hf"));
  submit_endless("dp2", "undisturbed", 1000);
  ASSERT_NO_FATAL_FAILURE(cancel("undisturbed"));
  std::ofstream(data_ / "letters.txt") << std::string(100'000, 'a') << " a";
  submit_endless("dp2", "beside", 3);

  for (const auto& [name, file, opens] : hostile_tokenizers()) {
    SCOPED_TRACE(name);
    make_folder(name, file);
    const auto made = client({"model", "create", name, "--from-data-dir", name});
    ASSERT_EQ(made.exit_code, 0) << made.errors;
    expect_limited({"generate", "--model", name, "--prompt", kPrompt, "--max-tokens", "3"});
    expect_limited({"data", "tokenize", "--tokenizer", "models/" + name, "--out", name + ".bin",
                    "letters.txt"});
    expect_limited({"data", "inspect", "--tokenizer", name, "letters.txt"});
    if (opens)
      submit(job_of(name), "of-" + name);  // its text is tokenized when it has the ranks
    else
      expect_limited({"job", "submit", write_job(job_of(name))});
    v1::RunSpec spec;
    spec.set_name(name);
    spec.mutable_config()->mutable_model()->set_name(name);
    spec.mutable_config()->mutable_training()->set_seq_len(16);
    RunClient run(address_);
    ASSERT_TRUE(run.submit(spec).ok());
    v1::SampleRequest sample;
    sample.add_prompts()->set_prompt(kPrompt);
    const Outcome outcome = run.sample(sample);
    EXPECT_EQ(outcome.code, grpc::StatusCode::RESOURCE_EXHAUSTED) << outcome.message;
    EXPECT_EQ(outcome.reason, "TOKENIZER_LIMIT") << outcome.message;
    EXPECT_TRUE(run.close().ok());
  }
  // A text for which it suffices is tokenized; a prompt of many contexts is not even tried.
  EXPECT_EQ(client({"data", "tokenize", "--tokenizer", "regex", "--out", "few.bin", "text.txt"})
                .exit_code,
            0);
  expect_refused_for({"generate", "--model", "regex", "--prompt", std::string(5000, 'b')},
                     "PROMPT_TOO_LONG");

  EXPECT_EQ(job("beside")["state"], "running");
  ASSERT_NO_FATAL_FAILURE(cancel("beside"));
  expect_same_losses("beside", "undisturbed");
  for (const auto& [name, file, opens] : hostile_tokenizers()) {
    if (!opens) continue;
    EXPECT_TRUE(reaches("of-" + name, "failed")) << job("of-" + name).dump(2);
    EXPECT_NE(job("of-" + name).dump().find("TOKENIZER_LIMIT"), std::string::npos)
        << job("of-" + name).dump(2);
  }
  shut_down();
}

TEST_F(HostileTokenizersE2e, KeepNobodyElseFromGenerating) {
  start();
  ASSERT_NO_FATAL_FAILURE(export_first(folder_ / "hf"));
  // Within its budget each prompt takes a tenth of a second and becomes a few tokens, so that a
  // call of many has work for many seconds.
  Json pieces = Json::array({Json::array({"<eos>", 0}), Json::array({"a", -1})});
  pieces.push_back(Json::array({std::string(100, 'a'), -2}));
  Json slow = tokenizer_of_letters(
      "normalizer",
      {{"type", "Replace"}, {"pattern", {{"Regex", "(?:a?){4}a{200}b"}}}, {"content", "b"}});
  slow["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}};
  make_folder("slow", slow.dump());
  v1::GenerateRequest request;
  request.set_hf_folder("slow");
  request.mutable_params()->set_max_tokens(1);
  for (int i = 0; i < 64; ++i) request.add_prompts()->set_prompt(std::string(1500, 'a'));
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> calls;
  const auto hostile = v1::GenerateService::NewStub(own_channel(address_));
  for (int i = 0; i < 18; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    calls.push_back(hostile->Generate(contexts.back().get(), request));
  }
  sleep_ms(1000);
  v1::GenerateRequest plain;
  plain.set_checkpoint("checkpoints/first/hf");
  plain.set_prompt("the ");
  plain.mutable_params()->set_max_tokens(3);
  grpc::ClientContext context;
  const auto begin = std::chrono::steady_clock::now();
  const auto drawn =
      v1::GenerateService::NewStub(channel_from("127.0.0.2", port()))->Generate(&context, plain);
  v1::GenerateResponse token;
  while (drawn->Read(&token)) continue;
  const grpc::Status status = drawn->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  for (auto& one : contexts) one->TryCancel();
  int cancelled = 0;
  for (auto& call : calls) {
    while (call->Read(&token)) continue;
    cancelled += call->Finish().error_code() == grpc::StatusCode::CANCELLED ? 1 : 0;
  }
  EXPECT_GE(cancelled, 12) << "of 18, which all had work for longer";
  shut_down();
}

TEST_F(HostileTokenizersE2e, AStopEndsATextThatTakesLong) {
  start(1);
  ASSERT_NO_FATAL_FAILURE(export_first(folder_ / "hf"));
  // Within its budget for many seconds: a third of a microsecond at each place.
  make_folder("slow", tokenizer_of_letters("pre_tokenizer", split_at("(?:a?){2}a{200}b")).dump());
  std::ofstream(data_ / "large.txt") << std::string(60'000'000, 'a');
  Process tokenizing({test::program("meshloom"), "--address", address_, "data", "tokenize",
                      "--tokenizer", "slow", "--out", "large.bin", "large.txt"},
                     folder_ / "tokenize.log", folder_ / "tokenize.err");
  TinyJob slow;
  slow.model = "{hf_folder: slow}";
  slow.data = "large.txt, tokenizer: auto";
  submit(slow, "slow");
  ASSERT_TRUE(reaches("slow", "preparing")) << job("slow").dump(2);
  EXPECT_EQ(tokenizing.wait(0s), std::nullopt) << read_file(folder_ / "tokenize.err");
  ::kill(pids_.at(0), SIGTERM);
  EXPECT_EQ(wait_for_end(20s), 0) << daemon_log();
  EXPECT_NE(daemon_log().find("meshloomd has stopped"), std::string::npos) << daemon_log();
  EXPECT_NE(tokenizing.wait(10s).value_or(0), 0);
}

}  // namespace
}  // namespace meshloom::e2e
