// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "daemon/cli/plans/plan_commands.h"
#include "daemon/cli/plans/plan_options.h"
#include "daemon/nn/models/presets.h"
#include "daemon/plan/job_memory.h"
#include "tests/support/source_folder.h"

namespace meshloom::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct Answer {
  int code = -1;
  std::string text;  ///< what was printed, or the error's message
};

/// `meshloom ARGUMENTS`, without a daemon.
Answer run(const std::string& arguments, bool as_json = false) {
  CLI::App app("test", "meshloom");
  CommandContext context;
  context.json = as_json;
  add_plan_commands(app, context);
  ::testing::internal::CaptureStdout();
  Answer answer;
  try {
    app.parse(arguments);
    Client client("127.0.0.1:1");
    answer.code = context.action(client);
    answer.text = ::testing::internal::GetCapturedStdout();
  } catch (const CliError& error) {
    ::testing::internal::GetCapturedStdout();
    answer = {error.code(), error.what()};
  } catch (const CLI::ParseError& error) {
    ::testing::internal::GetCapturedStdout();
    answer = {kUsage, error.what()};
  }
  return answer;
}

json run_json(const std::string& arguments) {
  const Answer answer = run(arguments, true);
  EXPECT_EQ(answer.code, kOk) << answer.text;
  return json::parse(answer.text);
}

TEST(PlanCommands, AttentionShowsWhoReadsWhoseKeys) {
  const json schedule = run_json("plan attention --ranks 4 --seq 64 --balancer head_tail");
  EXPECT_EQ(schedule["ranks"].size(), 4u);
  EXPECT_GT(schedule["balance"].get<double>(), 0.99);
  std::int64_t pairs = 0;
  for (const json& rank : schedule["ranks"]) pairs += rank["pairs"].get<std::int64_t>();
  EXPECT_EQ(pairs, 64 * 65 / 2);
  // The last rank's queries see half of the keys of those before it.
  EXPECT_EQ(schedule["ranks"][3]["remote_keys"], 24);
  const Answer table = run("plan attention --ranks 2 --documents 20,10,6");
  EXPECT_EQ(table.code, kOk) << table.text;
  EXPECT_THAT(table.text, HasSubstr("36 tokens over 2 ranks, causal"));
  // The last rank sees all keys of the first under `none`, and its own under the diagonal.
  const std::string halves = run("plan attention --ranks 2 --seq 16 --balancer none").text;
  EXPECT_THAT(halves, HasSubstr("[8, 16) x [8, 16): later keys masked"));
  EXPECT_THAT(halves, HasSubstr("[8, 16) x [0, 8): whole"));
  EXPECT_THAT(table.text, HasSubstr("of document 0: later keys masked"));
}

TEST(PlanCommands, AttentionTellsTheBlocksOfEveryStep) {
  const json halves = run_json("plan attention --ranks 2 --seq 16 --balancer none");
  const json& block = halves["ranks"][1]["steps"][1]["blocks"][0];
  EXPECT_EQ(block["queries"], (json{{"begin", 8}, {"end", 16}}));
  EXPECT_EQ(block["keys"]["end"], 8);
  EXPECT_EQ(block["masked"], "whole");
  EXPECT_EQ(block["pairs"], 64);
  EXPECT_FALSE(block.contains("document"));
  const json packed = run_json("plan attention --ranks 3 --documents 20,10,6");
  for (const json& rank : packed["ranks"])
    for (const json& step : rank["steps"]) {
      std::int64_t pairs = 0;
      for (const json& each : step["blocks"]) {
        pairs += each["pairs"].get<std::int64_t>();
        EXPECT_TRUE(each.contains("document")) << each;
      }
      EXPECT_EQ(pairs, step["pairs"].get<std::int64_t>());
    }
}

TEST(PlanCommands, AttentionFollowsTheWayThatIsAskedFor) {
  const auto pairs_of = [](const json& schedule) {
    std::int64_t pairs = 0;
    for (const json& rank : schedule["ranks"]) pairs += rank["pairs"].get<std::int64_t>();
    return pairs;
  };
  const std::string documents = "plan attention --ranks 4 --documents 40,24,33,31 ";
  const json pull = run_json(documents + "--rotate pull");
  const json both = run_json(documents + "--rotate ulysses --ulysses 2");
  const json heads = run_json(documents + "--rotate ulysses");
  EXPECT_EQ(pull["ranks"][0]["steps"].size(), 4u);
  EXPECT_EQ(both["ranks"][0]["steps"].size(), 2u) << "two pairs of neighbours";
  EXPECT_EQ(heads["ranks"][0]["steps"].size(), 1u);
  // Shares of the heads are rounded down, for each step of each rank.
  EXPECT_NEAR(static_cast<double>(pairs_of(both)), static_cast<double>(pairs_of(pull)), 8);
  EXPECT_NEAR(static_cast<double>(pairs_of(heads)), static_cast<double>(pairs_of(pull)), 4);
  // A rank of the second pair reads the keys of those at its place in the first.
  EXPECT_EQ(both["ranks"][3]["steps"][1]["source"], 1);
}

TEST(PlanCommands, AttentionSaysWhichBalancerAutoTakes) {
  const auto balancer = [](const std::string& options) {
    return run_json("plan attention --ranks 4 " + options)["load_balancer"].get<std::string>();
  };
  EXPECT_EQ(balancer("--seq 4096"), "head_tail");
  EXPECT_EQ(balancer("--seq 4096 --window 1023"), "mask_area");
  EXPECT_EQ(balancer("--seq 4096 --window 15"), "head_tail");
  EXPECT_EQ(balancer("--documents 900,300,400"), "per_document");
  EXPECT_EQ(balancer("--seq 4096 --window 1023 --balancer none"), "none");
  EXPECT_THAT(run("plan attention --ranks 4 --seq 4096 --window 1023").text,
              HasSubstr("load balancer mask_area"));
}

TEST(PlanCommands, EstimateAndSearchTellTheBalanceOfAttention) {
  const std::string estimate =
      "plan estimate --model gpt2_124m --seq 1024 --global-batch 4 --mesh ";
  EXPECT_GT(run_json(estimate + "cp=2")["seconds"]["attention_balance"].get<double>(), 0.99);
  EXPECT_EQ(run_json(estimate + "dp=2")["seconds"]["attention_balance"], 0);
  EXPECT_THAT(run(estimate + "cp=2").text, HasSubstr("balance of attention"));
  const json search = run_json(
      "plan search --model llama3_8b --seq 8192 --ranks 16 --cluster h100 --global-batch 1");
  int shared = 0;
  for (const json& plan : search["plans"]) {
    const bool shares = plan["mesh"].value("cp", 1) > 1;
    EXPECT_EQ(plan["seconds"]["attention_balance"] > 0.95, shares) << plan;
    shared += shares ? 1 : 0;
  }
  EXPECT_GT(shared, 0);
}

TEST(PlanCommands, AttentionSaysWhatAutoTakes) {
  const json schedule = run_json("plan attention --ranks 4 --seq 8192 --kv-heads 8");
  EXPECT_EQ(schedule["ways"][0]["rotate"], "pull");
  EXPECT_EQ(schedule["ways"].size(), 5u);
  EXPECT_THAT(run("plan attention --ranks 4 --seq 8192").text,
              HasSubstr("rotate auto is ulysses 4"));
  // Documents that lie on one rank have nothing to move.
  EXPECT_THAT(run("plan attention --ranks 2 --documents 64,64,64,64,64,64,64,64").text,
              HasSubstr("rotate auto is pull"));
  EXPECT_THAT(run("plan estimate --model gpt2_124m --mesh cp=4 --seq 1024 --global-batch 4").text,
              HasSubstr("context_parallel ulysses 4"));
  EXPECT_EQ(run("plan attention --ranks 2 --seq 64 --heads 6 --kv-heads 4").code, kUsage);
}

TEST(PlanCommands, AttentionIsDrawn) {
  const std::string file = ::testing::TempDir() + "attention_schedule.svg";
  const Answer answer = run("plan attention --ranks 3 --seq 300 --svg " + file);
  EXPECT_EQ(answer.code, kOk) << answer.text;
  std::ifstream in(file);
  const std::string svg((std::istreambuf_iterator<char>(in)), {});
  std::remove(file.c_str());
  EXPECT_THAT(svg, ::testing::StartsWith("<svg"));
  EXPECT_THAT(svg, HasSubstr("keys of rank 2"));
  EXPECT_EQ(run("plan attention --ranks 3 --seq 30 --svg /nonexistent/x.svg").code, kFailed);
}

TEST(PlanCommands, AttentionRefusesWhatDoesNotFit) {
  for (const auto& [arguments, text] :
       {std::pair{"plan attention --ranks 2", "--seq is 0"},
        {"plan attention --ranks 2 --seq 9 --documents 4,4", "--documents have 8 tokens"},
        {"plan attention --ranks 2 --seq 9 --balancer even", "--balancer is 'even'"},
        {"plan attention --ranks 2 --seq 9 --rotate ring", "--rotate is 'ring'"},
        {"plan attention --ranks 2 --seq 9 --rotate pull --ulysses 2", "--ulysses is 2"},
        {"plan attention --ranks 4 --seq 9 --rotate ulysses --ulysses 3", "does not divide"},
        {"plan attention --ranks 2 --seq 9 --balancer per_document", "needs documents"}}) {
    const Answer answer = run(arguments);
    EXPECT_EQ(answer.code, kUsage) << arguments;
    EXPECT_THAT(answer.text, HasSubstr(text));
  }
}

TEST(PlanCommands, ShowPrintsPlacementsAndLocalShapes) {
  const json plan = run_json("plan show --model gpt2_124m --mesh tp=5 --rank 4");
  EXPECT_EQ(plan["mesh_dims"], json({"dp", "fsdp", "cp", "tp"}));
  const auto& parameters = plan["parameters"];
  EXPECT_EQ(parameters[0]["name"], "transformer.wte.weight");
  EXPECT_EQ(parameters[0]["placements"], json({"R", "R", "R", "S(0)"}));
  // 50257 rows over 5 ranks: 10052 each, the last 10049. 12 heads: 3, 3, 3, 3, none.
  EXPECT_EQ(parameters[0]["local_shape"], json({10049, 768}));
  EXPECT_EQ(parameters[4]["name"], "transformer.h.*.attn.c_attn.weight");
  EXPECT_EQ(parameters[4]["units"], "3 x 64");
  EXPECT_EQ(parameters[4]["local_shape"], json({768, 0}));
  EXPECT_EQ(plan["traffic"][1]["calls"], 24);

  const Answer text = run("plan show --model gpt2_124m --mesh tp=5");
  EXPECT_THAT(text.text, HasSubstr("[768, 576]"));
  EXPECT_THAT(text.text, HasSubstr("all_reduce"));
}

TEST(PlanCommands, EstimatePrintsMemoryTrafficAndTime) {
  const json e = run_json("plan estimate --model gpt2_124m --mesh dp=2 --seq 256 --memory 1GiB");
  EXPECT_EQ(e["ranks"], 2);
  EXPECT_EQ(e["global_batch_size"], 2);
  EXPECT_EQ(e["parameters"], 124439808);
  EXPECT_EQ(e["memory"]["gradients"], 4 * 124439808);
  EXPECT_EQ(e["fits"], false);
  EXPECT_NEAR(e["bytes_sent"].get<double>(), 4.0 * 124439808, 1e4);
  EXPECT_GT(e["seconds"]["total"].get<double>(), 0.0);
  EXPECT_THAT(run("plan estimate --model gpt2_124m --memory 1GiB").text,
              HasSubstr("1.0 GiB: does not fit"));
}

// What a job is admitted by.
TEST(PlanCommands, EstimateGivesTheMemoryThatASubmissionIsCheckedWith) {
  const auto agree = [](const std::string& flags, const char* plan_file, v1::RunConfig run) {
    const std::string plan = test::source_file("configs/plans/") + plan_file;
    const json e = run_json("plan estimate --model byte_gpt_10m --plan " + plan + " " + flags);
    v1::PlanFile file = read_plan_file(plan);
    *run.mutable_mesh() = file.mesh();
    *run.mutable_plan() = file.plan();
    run.mutable_plan()->set_dtype(e["plan"]["dtype"].get<std::string>());
    const planner::MemoryEstimate memory =
        plan::estimate_job_memory(run, nn::preset_config("byte_gpt_10m"));
    EXPECT_EQ(e["memory"]["total"], memory.total()) << plan_file;
    EXPECT_EQ(e["memory"]["activations"], memory.activations) << plan_file;
  };
  v1::RunConfig run;
  run.mutable_training()->set_seq_len(256);
  run.mutable_training()->set_global_batch_size(8);
  run.mutable_training()->set_micro_batch_size(2);
  const std::string work = "--seq 256 --global-batch 8 --micro-batch 2";
  for (const char* plan : {"dp2.yaml", "fsdp2.yaml", "tp2.yaml", "tp2_sequence.yaml",
                           "tp2_styles.yaml", "tp3.yaml", "dp2_fsdp2.yaml", "fsdp2_tp2.yaml"})
    agree(work, plan, run);
  run.mutable_optimizer()->set_type(v1::OPTIMIZER_TYPE_SGD);
  agree(work + " --optimizer sgd", "tp2.yaml", run);
  run.mutable_optimizer()->set_momentum(0.5);
  agree(work + " --optimizer sgd_momentum --dtype bfloat16", "fsdp2.yaml", run);
}

TEST(PlanCommands, SearchRanksWhatFits) {
  const std::string common = "plan search --model llama3_8b --seq 4096 --ranks 16 --cluster h100 ";
  const json s = run_json(common + "--global-batch 64 --top 3 --rejected 2");
  EXPECT_EQ(s["plans"].size(), 3u);
  EXPECT_EQ(s["rejected"].size(), 2u);
  // Of 16 into dp, fsdp and tp, and what 8 and 4 have for each rank's half or quarter of a
  // sequence.
  EXPECT_EQ(s["meshes_that_fit"].get<int>() + s["rejected_count"].get<int>(), 15 + 10 + 6);
  EXPECT_LE(s["plans"][0]["seconds"]["total"], s["plans"][1]["seconds"]["total"]);
  const Answer near = run("plan search --model gpt2_124m --ranks 4 --global-batch 64 --top 4");
  EXPECT_THAT(near.text, HasSubstr("are equal within the estimate's error (10 %)"));
  const Answer none = run(common + "--memory 8GiB");
  EXPECT_EQ(none.code, kFailed);
  EXPECT_THAT(none.text, HasSubstr("of 8.00 GiB"));
}

TEST(PlanCommands, WrongUsageIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"plan", "subcommand"},
      {"plan show", "--model"},
      {"plan search --model gpt2_124m", "--ranks"},
      {"plan show --model gpt2_124m --mesh tp=2 --rank 2", "rank: 2 is not one of"},
      {"plan estimate --model gpt2_124m --mesh cp=2048", "cp=2048 is more than a sequence"},
      {"plan estimate --model gpt2_124m --seq 4096", "longer than the model's context"},
      {"plan estimate --model gpt2_124m --sequence-parallel", "needs tensor_parallel"},
      {"plan estimate --model gpt2_124m --optimizer lion", "optimizer: must be"},
      {"plan estimate --model gpt2_124m --memory many", "--memory"},
      {"plan estimate --model gpt2_124m --activation-checkpoint some", "none, selective or full"},
      {"plan search --model gpt2_124m --ranks 4 --micro-batch 2 --global-batch 1 --seq 2048",
       "longer than the model's context"},
  };
  for (const auto& [arguments, message] : cases) {
    const Answer answer = run(arguments);
    EXPECT_EQ(answer.code, kUsage) << arguments;
    EXPECT_THAT(answer.text, HasSubstr(message)) << arguments;
  }
}

}  // namespace
}  // namespace meshloom::cli
