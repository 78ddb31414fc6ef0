// SPDX-License-Identifier: Apache-2.0
// The verbs of a run from the command line, against a real daemon on two ranks: what each of them
// changes, what it refuses, and data that are too large for a request.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/run_client.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

using ::testing::HasSubstr;

constexpr const char* kNorm = "transformer.ln_f.weight";
constexpr const char* kTable = "transformer.wte.weight";

class RunVerbsE2e : public DaemonTest {
 protected:
  /// A run of this name; its token stands behind the verbs of the test.
  void create(const std::string& name, const std::string& preset = "byte_gpt_tiny") {
    name_ = name;
    const std::string file = write_text("run.yaml", fmt::format(R"(config:
  model: {{preset: {}}}
  mesh: {{fsdp: 2}}
  plan: {{dtype: float32}}
  training: {{seq_len: 32}}
)",
                                                                preset));
    std::filesystem::remove(token_file_ = folder_ / "run.token");
    const Json made =
        client_json({"run", "create", file, "--name", name, "--token-file", token_file_});
    EXPECT_EQ(made.value("token", ""), "") << "it is written to the file alone";
    EXPECT_EQ(std::filesystem::status(token_file_).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    token_ = read_file(token_file_).substr(0, 32);
    ASSERT_TRUE(eventually(30s, [&] {
      return client_json({"run", "show", name})["state"] == "ready";
    }));
  }

  /// "run VERB NAME OPTIONS --token-file FILE".
  Arguments line(const std::string& verb, const Arguments& options = {}) const {
    Arguments all = {"run", verb, name_};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), {"--token-file", token_file_});
    return all;
  }
  Json verb(const std::string& name, const Arguments& options = {}) const {
    return client_json(line(name, options));
  }
  double loss(const Arguments& options) const {
    return verb("forward", options)["result"]["loss"]["metrics"]["loss:sum"];
  }
  /// The file's text: names, shapes, dtypes and values.
  std::string parameters(const Arguments& names, const std::string& file) const {
    Arguments options = names;
    const std::string path = (folder_ / file).string();
    options.insert(options.end(), {"--out", path});
    const auto result = client(line("get-parameters", options));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return read_file(path);
  }

  std::string name_, token_, token_file_;
};

TEST_F(RunVerbsE2e, StatesParametersAndTheLeaseByHand) {
  start();
  create("hand");
  const Arguments samples = {"--data", "text.txt", "--samples", "2"};
  const double first = loss(samples);
  verb("save-state", {"begin"});
  const std::string before = parameters({kNorm, kTable}, "before.json");
  EXPECT_THAT(before, HasSubstr("\"dtype\":\"float32\""));
  const auto shown = client(line("get-parameters", {kNorm}));
  EXPECT_THAT(shown.output, HasSubstr("float32")) << shown.errors;

  // Every value of a step: this one has the least effect that it can have.
  verb("forward-backward", samples);
  const Json still = verb("optim-step", {"--lr", "0", "--beta1", "0.5", "--beta2", "0.9", "--eps",
                                         "1e-6", "--weight-decay", "0", "--grad-clip-norm", "1"});
  EXPECT_EQ(still["result"]["optim_step"]["lr"], 0.0) << still.dump();
  EXPECT_EQ(loss(samples), first);
  verb("forward-backward", samples);
  verb("optim-step", {"--lr", "0.01"});
  EXPECT_LT(loss(samples), first);
  const auto useless = client(line("optim-step", {"--momentum", "0.9"}));
  EXPECT_EQ(useless.exit_code, 1);
  EXPECT_THAT(useless.errors, HasSubstr("momentum"));

  verb("load-state", {"runs/hand/states/begin"});
  EXPECT_EQ(loss(samples), first);
  EXPECT_EQ(client_json({"run", "show", "hand"})["step"], 0);
  verb("forward-backward", samples);
  verb("optim-step", {"--lr", "0.01"});
  EXPECT_NE(parameters({kNorm, kTable}, "after.json"), before);
  verb("set-parameters", {(folder_ / "before.json").string()});
  EXPECT_EQ(parameters({kNorm, kTable}, "again.json"), before);
  EXPECT_EQ(client(line("get-parameters", {kNorm, kTable, "--out", "-"})).output, before);

  const Json beat = verb("heartbeat");
  EXPECT_EQ(beat["state"], "ready");
  EXPECT_GT(beat["lease_left_ms"], 500'000) << beat.dump();
  EXPECT_THAT(client(line("heartbeat")).output, HasSubstr("left"));
  EXPECT_EQ(client({"run", "heartbeat", "hand", "--token", "0"}).exit_code, 1);
  verb("save-state", {"end"});
  client_json({"run", "delete-state", "runs/hand/states/begin", "--token", token_});
  EXPECT_EQ(client_json({"run", "show", "hand"})["saved"].size(), 1u);
  expect_refused_for(line("load-state", {"runs/hand/states/begin"}), "STATE_NOT_FOUND");
  expect_refused_for({"run", "delete", "hand"}, "RUN_NOT_ENDED");
  verb("close");
  ASSERT_TRUE(eventually(10s, [&] {
    return client_json({"run", "show", "hand"})["state"] == "closed";
  }));
  expect_refused_for({"--client", "another", "run", "delete", "hand"}, "RUN_OF_ANOTHER");
  EXPECT_EQ(client({"run", "delete", "hand"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(state_ / "runs" / "hand"));
  shut_down();
}

TEST_F(RunVerbsE2e, LossesAreNamedOnTheLineAndTheirDataComeFromAFileOrStandardInput) {
  start();
  create("losses");
  const std::string plain =
      write_text("plain.json", R"({"data": [{"tokens": [97, 98, 99], "targets": [98, 99, 100]}]})");
  const Json forward = verb("forward", {"--batch", plain});
  const Json& outputs = forward["result"]["loss"]["outputs"];
  ASSERT_EQ(outputs[0]["logprobs"].size(), 3u) << forward.dump();
  EXPECT_EQ(verb("forward", {"--batch", plain, "--train"})["result"], forward["result"])
      << "a model without dropout";
  const std::string rollouts = write_text(
      "rollouts.json", fmt::format(R"({{"data": [{{"tokens": [97, 98, 99], "targets": [98, 99, 100],
                  "logprobs": {}, "advantages": [1, -1, 2]}}]}})",
                                   outputs[0]["logprobs"].dump()));
  // The weights are those that drew them, so that every ratio is 1.
  const Json ppo = verb("forward-backward", {"--batch", rollouts, "--loss", "ppo"});
  EXPECT_NEAR(ppo["result"]["loss"]["metrics"]["loss:sum"].get<double>(), -2.0, 1e-5);
  EXPECT_NEAR(loss({"--batch", rollouts, "--loss", "ppo", "--loss-config", "clip_low_threshold=1.5",
                    "--loss-config", "clip_high_threshold=2"}),
              -1.5, 1e-5)
      << "positive advantages keep their ratio of 1, the negative one gets 1.5";
  const auto piped = run_command(
      {"sh", "-c",
       fmt::format(
           "MESHLOOM_RUN_TOKEN={} '{}/meshloom' --address {} --json run forward losses --batch - "
           "< '{}'",
           token_, test::program_folder(), address_, plain)},
      60s);
  EXPECT_EQ(Json::parse(piped.output)["result"], forward["result"]) << piped.errors;

  const auto wrong = client(line("forward", {"--batch", rollouts}));
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.errors, HasSubstr("loss cross_entropy has no use for it"));
  EXPECT_EQ(verb("optim-step")["result"]["optim_step"]["step"], 1);
  verb("close");
  shut_down();
}

TEST_F(RunVerbsE2e, ASkippedNumberLetsTheVerbsBehindItRun) {
  start();
  create("gap");
  RunClient other(address_);
  other.name = "runs/gap";
  other.token = token_;
  other.next_seq = 2;
  other.waits = false;
  const std::string waiting = other.save_state("behind").operation.name();
  const Json seen = client_json({"operation", "show", waiting});
  EXPECT_EQ(seen["state"], "waiting") << seen.dump();
  EXPECT_EQ(verb("skip", {"1", "--verb", "forward"})["verb"], "skip");
  const Outcome ended = other.wait(waiting);
  EXPECT_TRUE(ended.ok()) << ended.message;
  expect_refused_for(line("skip", {"1"}), "SEQUENCE_REUSED");
  // Without a name it counts as gradients that are lost.
  verb("skip", {"3"});
  expect_refused_for(line("optim-step"), "GRADIENTS_POISONED");
  verb("close");
  shut_down();
}

TEST_F(RunVerbsE2e, WhatIsTooLargeForARequestOrAnAnswerTravelsInPieces) {
  start();
  create("large", "byte_gpt_10m");
  // 37 MiB in all: more than an answer tells along, and more than a request may have.
  Arguments names;
  for (int layer = 0; layer < 6; ++layer)
    for (const char* part : {"attn.c_attn", "mlp.c_fc", "mlp.c_proj"})
      names.push_back(fmt::format("transformer.h.{}.{}.weight", layer, part));
  const std::string before = parameters(names, "before.json");
  ASSERT_GT(before.size(), std::size_t{40} << 20);
  verb("forward-backward", {"--data", "text.txt", "--samples", "2"});
  verb("optim-step", {"--lr", "0.01"});
  const auto set = client(line("set-parameters", {(folder_ / "before.json").string()}));
  EXPECT_EQ(set.exit_code, 0) << set.errors;
  EXPECT_THAT(set.errors, HasSubstr("ParameterValues: ")) << "the line of its transfer";
  EXPECT_THAT(set.errors, HasSubstr("/s"));
  EXPECT_TRUE(parameters(names, "again.json") == before);
  verb("close");
  shut_down();
}

TEST_F(RunVerbsE2e, TheClientWatchesStopsAndSavesWhatItSamplesFrom) {
  start();
  const std::string token = create_run("watched");
  const auto sample = [&](std::vector<std::string> options) {
    std::vector<std::string> line = {"run", "sample",   "watched", "--token",
                                     token, "--tokens", "97,98",   "--max-tokens",
                                     "12",  "--seed",   "0"};
    line.insert(line.end(), options.begin(), options.end());
    return line;
  };
  const Json whole = client_json(sample({"--exact-logprobs", "--prompt-logprobs"}));
  const Json& sequence = whole["result"]["sample"]["sequences"][0];
  EXPECT_EQ(sequence["finish_reason"], "length");
  EXPECT_EQ(sequence["exact_logprobs"].size(), 12u) << whole.dump();
  EXPECT_EQ(whole["result"]["sample"]["prompts"][0]["logprobs"].size(), 1u) << whole.dump();
  const auto ids = sequence["token_ids"].get<std::vector<int>>();
  const std::string text(ids.begin(), ids.end());
  const auto watched = client({"operation", "watch", whole["name"].get<std::string>()});
  EXPECT_EQ(watched.exit_code, 0) << watched.errors;
  EXPECT_EQ(watched.output, text + "\n");
  EXPECT_EQ(client(sample({"--watch"})).output, text + "\n");
  EXPECT_EQ(client(sample({})).output, text + "\n");
  EXPECT_EQ(client(sample({"--watch"})).errors.find("draws the same"), std::string::npos);
  for (const Arguments& more : {Arguments{}, Arguments{"--watch"}}) {
    Arguments by_chance = sample(more);
    by_chance.erase(std::find(by_chance.begin(), by_chance.end(), "--seed"),
                    std::find(by_chance.begin(), by_chance.end(), "0") + 1);
    EXPECT_THAT(client(by_chance).errors, HasSubstr("draws the same again"));
  }
  EXPECT_EQ(client(sample({"--ids"})).output, fmt::format("{}\n", fmt::join(ids, " ")));
  const Json stopped = client_json(sample({"--stop-token", std::to_string(ids[2])}));
  EXPECT_EQ(stopped["result"]["sample"]["sequences"][0]["finish_reason"], "stop_token");
  client_json({"run", "save-weights", "watched", "kept", "--memory", "--token", token});
  const std::string kept = "runs/watched/weights/kept";
  const Json again = client_json(sample({"--weights", kept}));
  EXPECT_EQ(again["result"]["sample"]["sequences"][0]["token_ids"], sequence["token_ids"]);
  EXPECT_EQ(client_json({"run", "show", "watched"})["weights"][0]["storage"], "memory");
  EXPECT_EQ(client({"run", "delete-weights", kept, "--token", token}).exit_code, 0);
  const auto stale = client(sample({"--weights", kept}));
  EXPECT_EQ(stale.exit_code, 2);
  EXPECT_NE(stale.errors.find("not there (any more)"), std::string::npos) << stale.errors;
  client_json({"run", "save-weights", "watched", "disk", "--token", token});
  const Json read = client_json(sample({"--weights", "runs/watched/weights/disk"}));
  EXPECT_EQ(read["result"]["sample"]["sequences"][0]["token_ids"], sequence["token_ids"]);
  client_json({"run", "save-state", "watched", "s", "--ttl", "3600", "--metadata", "epoch=3",
               "--token", token});
  const auto shown = client({"run", "show", "watched"});
  EXPECT_NE(shown.output.find("left, epoch=3"), std::string::npos) << shown.output;
  EXPECT_EQ(client({"run", "close", "watched", "--token", token}).exit_code, 0);
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
