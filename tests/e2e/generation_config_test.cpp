// SPDX-License-Identifier: Apache-2.0
// What a model's generation_config.json says, wherever the model is drawn from.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

class GenerationConfigE2e : public DaemonTest {
 protected:
  struct Drawn {
    std::vector<int> tokens;
    std::vector<std::string> notes;
    std::string finish_reason;
  };

  /// A folder below the data dir with a model of bytes that was trained for two steps.
  void make_folder() {
    TinyJob job;
    job.steps = 2;
    job.extra = "  export: {hf_folder: hf}\n";
    submit(job, "first");
    ASSERT_TRUE(reaches("first", "succeeded"));
    fs::copy(state_ / "jobs/first/hf", data_ / "hf");
  }
  /// Puts another file in the folder.
  void write_config(const std::string& text) const {
    std::ofstream(data_ / "hf/generation_config.json") << text;
  }
  Drawn draw(const Arguments& source, const Arguments& more = {}) const {
    Arguments arguments{"generate", "--prompt", "in the ", "--max-tokens", "12", "--json"};
    arguments.insert(arguments.end(), source.begin(), source.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = client(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors << result.output;
    Drawn drawn;
    std::istringstream lines(result.output);
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line);
      if (record.contains("token_id")) drawn.tokens.push_back(record["token_id"]);
      for (const Json& note : record.value("notes", Json::array())) drawn.notes.push_back(note);
      drawn.finish_reason = record.value("finish_reason", "");
    }
    return drawn;
  }
};

TEST_F(GenerationConfigE2e, ItsEndTokensCountForRequestsJobsAndRunsAndItsDefaultsForRequests) {
  start();
  make_folder();
  const Arguments folder{"--hf-folder", "hf"};
  write_config(R"({"do_sample": false})");
  const Drawn greedy = draw(folder);
  ASSERT_EQ(greedy.tokens.size(), 12u);
  EXPECT_EQ(greedy.finish_reason, "length");
  ASSERT_EQ(greedy.notes.size(), 1u) << "said once";
  EXPECT_NE(greedy.notes[0].find("temperature 0 (do_sample: false)"), std::string::npos);
  const Drawn given = draw(folder, {"--temperature", "0"});
  EXPECT_EQ(given.tokens, greedy.tokens);
  EXPECT_TRUE(given.notes.empty());
  EXPECT_NE(draw(folder, {"--temperature", "1"}).tokens, greedy.tokens);
  const auto shown = client({"generate", "--hf-folder", "hf", "--prompt", "in the "});
  EXPECT_EQ(shown.errors.find("note: the model's generation_config.json gives temperature 0"), 0u)
      << shown.errors;

  // The likeliest token of a hardly trained model stays the same for a while: the first is the end.
  const int end = greedy.tokens[0];
  write_config(
      fmt::format(R"({{"eos_token_id": [255, {}], "do_sample": false, "top_p": 7}})", end));
  const auto expect_ended = [&](const Arguments& source) {
    const Drawn drawn = draw(source, {"--temperature", "0"});
    EXPECT_EQ(drawn.tokens, std::vector<int>{end}) << source[1];
    EXPECT_EQ(drawn.finish_reason, "stop") << source[1];
    EXPECT_EQ(draw(source, {"--temperature", "0", "--ignore-eos"}).tokens, greedy.tokens)
        << source[1];
  };
  expect_ended(folder);
  EXPECT_EQ(draw(folder).notes.size(), 2u) << "of the temperature, and of top_p";
  const auto made = client({"model", "create", "named", "--from-data-dir", "hf"});
  ASSERT_EQ(made.exit_code, 0) << made.errors;
  expect_ended({"--model", "named"});
  const auto sent = client({"model", "create", "sent", (data_ / "hf").string()});
  ASSERT_EQ(sent.exit_code, 0) << sent.errors;
  expect_ended({"--model", "sent"});

  TinyJob job;
  job.model = "{hf_folder: hf}";
  job.steps = 1;
  job.optimizer = "{lr: 1.0e-30}";
  job.extra =
      "  sample: {prompt: \"in the \", params: {temperature: 0}}\n  export: {hf_folder: out}\n";
  submit(job, "second");
  ASSERT_TRUE(reaches("second", "succeeded")) << this->job("second").dump(2);
  EXPECT_EQ(this->job("second")["samples"][0]["finish_reason"], "eos");
  expect_ended({"--job", "second"});
  expect_ended({"--checkpoint", "checkpoints/second/step-1"});
  expect_ended({"--checkpoint", "checkpoints/second/out"});
  job.steps = 10'000'000;
  submit(job, "third");
  ASSERT_TRUE(reaches_step("third", 2));
  expect_ended({"--job", "third"});
  ASSERT_EQ(client({"job", "cancel", "third"}).exit_code, 0);
  ASSERT_TRUE(reaches("third", "cancelled"));

  const std::string token = create_run("driven", "{hf_folder: hf}");
  const auto sample = [&](const std::string& temperature) {
    return client_json({"run", "sample", "driven", "--token", token, "--prompt", "in the ",
                        "--max-tokens", "12", "--temperature",
                        temperature})["result"]["sample"]["sequences"][0];
  };
  EXPECT_EQ(sample("0")["token_ids"], Json({end}));
  EXPECT_EQ(sample("0")["finish_reason"], "eos");
  EXPECT_EQ(client({"run", "close", "driven", "--token", token}).exit_code, 0);
}

TEST_F(GenerationConfigE2e, AFileThatIsWrongIsNotedAndKeepsNobodyFromAnything) {
  start(1);
  make_folder();
  const Arguments folder{"--hf-folder", "hf"};
  for (const std::string text :
       {R"({"eos_token_id": [[["x"]]], "temperature": "hot", "top_k": -1})", "{", "[]",
        R"({"eos_token_id": 99999})"}) {
    write_config(text);
    const Drawn drawn = draw(folder);
    EXPECT_EQ(drawn.tokens.size(), 12u) << text;
    EXPECT_FALSE(drawn.notes.empty()) << text;
  }
  TinyJob job;
  job.model = "{hf_folder: hf}";
  job.steps = 1;
  job.extra = "  sample: {prompt: \"in the \", params: {max_tokens: 4}}\n";
  const auto submitted = client({"job", "submit", write_job(job), "--name", "second"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
  EXPECT_NE((submitted.output + submitted.errors).find("eos_token_id holds 99999"),
            std::string::npos)
      << submitted.output << submitted.errors;
  ASSERT_TRUE(reaches("second", "succeeded")) << this->job("second").dump(2);
}

}  // namespace
}  // namespace meshloom::e2e
