// SPDX-License-Identifier: Apache-2.0
// What a new user meets at the edges: a wait that says for whom, a run's text, a folder to send, a
// sample without a prompt.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <future>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class EdgesE2e : public DaemonTest {};

TEST_F(EdgesE2e, WhoWaitsIsToldBehindWhomAndARunIsClosedByForce) {
  start(1);
  TinyJob tiny;
  tiny.steps = 3;
  const std::string file = write_job(tiny);
  // A job's file makes a run, with settings over it.
  const auto made = client({"--client", "maker", "run", "create", file, "--name", "r", "--set",
                            "lease_seconds=60", "--set", "optimizer.lr=2e-3", "--token-file",
                            (folder_ / "token").string()});
  ASSERT_EQ(made.exit_code, 0) << made.errors;
  EXPECT_THAT(made.errors, HasSubstr("is a job's file: a run takes its model"));
  EXPECT_THAT(made.errors, HasSubstr("training.steps"));
  ASSERT_TRUE(eventually(30s, [&] {
    return client_json({"run", "show", "r"})["state"] == "ready";
  }));
  EXPECT_EQ(client_json({"run", "show", "r"})["resolved"]["optimizer"]["lr"], 2e-3);
  submit(tiny, "waits");
  const auto shown = client({"job", "show", "waits"});
  EXPECT_THAT(shown.output,
              HasSubstr("behind runs/r, whose client \"maker\" does nothing: its lease ends in at "
                        "most "));
  EXPECT_THAT(client({"status"}).output, HasSubstr("queue: what is submitted now waits behind"));
  EXPECT_LE(job("waits")["wait"]["seconds"].get<double>(), 60.0);
  auto watched = std::async(std::launch::async, [&] { return client({"job", "watch", "waits"}); });
  std::this_thread::sleep_for(4500ms);
  // Its client alone may close it, which needs no token.
  const auto refused = client({"--client", "other", "run", "close", "r", "--force"});
  EXPECT_EQ(refused.exit_code, 1) << refused.output;
  EXPECT_THAT(refused.errors, HasSubstr("was made by client \"maker\""));
  EXPECT_EQ(client({"run", "close", "r"}).exit_code, 2) << "without a token and without --force";
  const auto closed = client({"--client", "maker", "run", "close", "r", "--force"});
  EXPECT_EQ(closed.exit_code, 0) << closed.errors;
  const auto ended = watched.get();
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("waits: behind runs/r"));
  EXPECT_EQ(client_json({"run", "show", "r"})["saved"][0]["name"], "runs/r/states/lease-0");
}

TEST_F(EdgesE2e, TextOfARunIsTokenizedAsAJobs) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + i * i % 23);
  std::ofstream(data_ / "plain.txt") << text;
  std::ofstream(data_ / "lines.jsonl") << "{\"text\": \"" << text.substr(0, 1000) << "\"}\n"
                                       << "{\"text\": \"" << text.substr(1000) << "\"}\n";
  start(2);
  const std::string token = create_run("r");
  const auto forward = [&](const std::string& path) {
    return client_json({"run", "forward", "r", "--token", token, "--data", path, "--samples", "3"});
  };
  const Json bytes = forward("plain.txt"), lines = forward("lines.jsonl");
  EXPECT_EQ(lines["result"]["loss"]["metrics"]["loss:sum"],
            bytes["result"]["loss"]["metrics"]["loss:sum"]);
  EXPECT_EQ(lines["result"]["loss"]["data_identity"]["tokenizer"].get<std::string>().size(), 64u);
  // The tokens are made once.
  const auto files = [&] {
    return std::distance(fs::directory_iterator(state_ / "tokens"), fs::directory_iterator());
  };
  const auto before = files();
  forward("lines.jsonl");
  EXPECT_EQ(files(), before);
  std::ofstream(data_ / "other.jsonl") << "{\"words\": \"a\"}\n";
  const auto refused =
      client({"run", "forward", "r", "--token", token, "--data", "other.jsonl", "--samples", "3"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.errors, HasSubstr("reference.data"));
}

TEST_F(EdgesE2e, AFolderIsSentWithAllThatIsInIt) {
  start(1);
  const fs::path folder = folder_ / "corpus";
  fs::create_directories(folder / "sub");
  fs::create_directories(folder / ".git");
  std::ofstream(folder / "a.txt") << std::string(500, 'a');
  std::ofstream(folder / "sub/b.txt") << std::string(500, 'b');
  std::ofstream(folder / ".git/config") << "hidden";
  const auto sent = client({"upload", folder.string(), "--data", "mine/corpus"});
  ASSERT_EQ(sent.exit_code, 0) << sent.errors;
  EXPECT_EQ(fs::file_size(data_ / "mine/corpus/a.txt"), 500u);
  EXPECT_EQ(fs::file_size(data_ / "mine/corpus/sub/b.txt"), 500u);
  EXPECT_FALSE(fs::exists(data_ / "mine/corpus/.git"));
  const auto named = client({"upload", (folder / "a.txt").string(), (folder / "sub/b.txt").string(),
                             "--data", "mine/named"});
  ASSERT_EQ(named.exit_code, 0) << named.errors;
  EXPECT_TRUE(fs::exists(data_ / "mine/named/a.txt"));
  EXPECT_TRUE(fs::exists(data_ / "mine/named/b.txt"));
  TinyJob tiny;
  tiny.steps = 2;
  tiny.data = "mine/corpus";
  submit(tiny, "on-a-folder");
  EXPECT_TRUE(reaches("on-a-folder", "succeeded")) << job("on-a-folder").dump(2);
  // Nothing leads out of the folder, on either side.
  fs::create_symlink(folder_ / "daemon.log", folder / "link.txt");
  const auto link = client({"upload", folder.string(), "--data", "again"});
  EXPECT_EQ(link.exit_code, 2);
  EXPECT_THAT(link.errors, HasSubstr("leads out of"));
  fs::remove(folder / "link.txt");
  for (const char* path : {"../out", "a/../../out", ".hidden/x"}) {
    const auto out = client({"upload", folder.string(), "--data", path});
    EXPECT_NE(out.exit_code, 0) << path;
  }
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  EXPECT_FALSE(fs::exists(data_ / ".hidden"));
}

TEST_F(EdgesE2e, ASampleNeedsNoPromptAndShowsItsSeed) {
  start(1);
  TinyJob tiny;
  tiny.steps = 3;
  submit(tiny, "done");
  ASSERT_TRUE(reaches("done", "succeeded"));
  const auto draw = [&](const Arguments& more) {
    Arguments all{"generate", "--job", "done", "--max-tokens", "40"};
    all.insert(all.end(), more.begin(), more.end());
    const auto drawn = client(all);
    EXPECT_EQ(drawn.exit_code, 0) << drawn.errors;
    return drawn;
  };
  const auto first = draw({}), second = draw({});
  EXPECT_THAT(first.errors, HasSubstr("without a prompt the sequence begins with "));
  EXPECT_NE(first.output, second.output) << "each call has a seed of its own";
  const auto at = first.errors.find("seed ");
  ASSERT_NE(at, std::string::npos) << first.errors;
  const std::string seed = first.errors.substr(at + 5, first.errors.find(':', at) - at - 5);
  const auto again = draw({"--seed", seed});
  EXPECT_EQ(again.output, first.output);
  EXPECT_EQ(again.errors.find("draws the same"), std::string::npos) << again.errors;
  const Arguments by_url{test::program("meshloom"), "--address", "http://" + address_ + "/",
                         "status"};
  EXPECT_EQ(run_command(by_url, 60s).exit_code, 0);
}

TEST_F(EdgesE2e, AnEvaluationOfAMaskedLanguageModelTellsWhatItComputedAndWhatCounts) {
  std::ofstream(data_ / "bert.json") << R"({"model_type": "bert",
      "architectures": ["BertForMaskedLM"], "vocab_size": 259, "hidden_size": 24,
      "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3,
      "max_position_embeddings": 32, "type_vocab_size": 2, "hidden_dropout_prob": 0.1,
      "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
      "initializer_range": 0.1, "tie_word_embeddings": true})";
  start(1);
  TinyJob bert;
  bert.steps = 2;
  bert.model = "{config: bert.json}";
  bert.data = "text.txt, tokenizer: bytes, masked_lm: {mask_token: 256}";
  submit(bert, "masked");
  ASSERT_TRUE(reaches("masked", "succeeded")) << job("masked").dump(2);
  const Arguments options{"--job", "masked", "--data", "text.txt", "--batches", "3"};
  const Json result = evaluate(options);
  const auto computed = result["computed_tokens"].get<std::int64_t>();
  const auto counted = result["tokens"].get<std::int64_t>();
  EXPECT_EQ(computed, 3 * 4 * 32);
  EXPECT_GT(counted, 0);
  EXPECT_LT(counted, computed / 2);
  EXPECT_DOUBLE_EQ(result["tokens_per_second"].get<double>(),
                   static_cast<double>(computed) / result["seconds"].get<double>());
  Arguments asked{"evaluate"};
  asked.insert(asked.end(), options.begin(), options.end());
  EXPECT_THAT(client(asked).output,
              HasSubstr(fmt::format("{} computed, {} count, in 3 batches", computed, counted)));
}

TEST_F(EdgesE2e, DamageThatIsFoundIsShownInTheListOfCheckpoints) {
  start(1);
  TinyJob tiny;
  tiny.steps = 4;
  tiny.checkpoint_interval = 2;
  submit(tiny, "first");
  ASSERT_TRUE(reaches("first", "succeeded"));
  const auto spoil = [&](const std::string& checkpoint) {
    for (const auto& entry :
         fs::directory_iterator(state_ / "jobs/first/checkpoints" / checkpoint)) {
      if (entry.path().extension() != ".safetensors") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(-1, std::ios::end);
      const char last = static_cast<char>(file.get() ^ 1);
      file.seekp(-1, std::ios::end);
      file.put(last);
    }
  };
  const auto list = [&] { return client({"checkpoint", "list", "--job", "first"}).output; };
  spoil("step-2");
  EXPECT_EQ(list().find("is damaged"), std::string::npos) << "a list alone reads no weights";
  expect_refused_for({"generate", "--checkpoint", "checkpoints/first/step-2", "--prompt", "in"},
                     "CHECKPOINT_DAMAGED");
  EXPECT_THAT(list(), HasSubstr("step-2/shard-"));
  spoil("step-4");
  TinyJob next;
  next.steps = 6;
  next.resume_from = "checkpoints/first/step-4";
  submit(next, "next");
  EXPECT_TRUE(reaches("next", "failed")) << job("next").dump(2);
  EXPECT_THAT(list(), HasSubstr("step-4/shard-"));
}

TEST_F(EdgesE2e, TheLearningRateOfAJobThatRunsIsEdited) {
  start(1);
  TinyJob endless;
  endless.steps = 100'000;
  endless.extra = "  lr_scheduler: {decay_type: constant}\n";
  submit(endless, "edited");
  ASSERT_TRUE(reaches_step("edited", 5));
  const auto edited = client({"job", "edit", "edited", "optimizer.lr=1.0e-4"});
  ASSERT_EQ(edited.exit_code, 0) << edited.errors;
  ASSERT_TRUE(eventually(30s, [&] { return job("edited")["last_step"]["lr"] == 1e-4; }))
      << job("edited").dump(2);
  EXPECT_EQ(job("edited")["edits"][0]["before"]["lr"], 3e-3);
  const auto fixed = client({"job", "edit", "edited", "optimizer.beta1=0.8"});
  EXPECT_EQ(fixed.exit_code, 2);
  EXPECT_THAT(fixed.errors, HasSubstr("meshloom job resume JOB --set FIELD=VALUE"));
  cancel("edited");
}

}  // namespace
}  // namespace meshloom::e2e
