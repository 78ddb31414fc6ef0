// SPDX-License-Identifier: Apache-2.0
// The same job on every plan of configs/plans.
#include <fmt/format.h>

#include <map>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

// Rounding grows with the steps: beyond some tens 1e-5 holds no longer (configs/plans/README.md).
constexpr int kPlanSteps = 30;

/// What `job show` says of a plan.
const std::map<std::string, std::vector<std::string>> kShown = {
    {"dp2", {"mesh        dp=2", "transformer.h.[0-1].attn.c_attn.weight [64, 192]  whole on"}},
    {"fsdp2", {"plan        fully_shard, float32", "c_attn.weight [64, 192]  fsdp S(0) (dim0)"}},
    {"tp2", {"plan        tensor_parallel, float32", "tp S(1) by heads, 3 x"}},
    {"tp2_sequence", {"plan        tensor_parallel, sequence_parallel, float32"}},
    {"tp2_styles", {"own styles for transformer.wte and transformer.h.*.attn.c_attn and"}},
    {"tp3", {"mesh        tp=3"}},
    {"fsdp2_tp2", {"mesh        fsdp=2,tp=2", "fsdp S(0) (dim0), tp S(0)", "tp before fsdp"}},
    {"dp2_fsdp2", {"mesh        dp=2,fsdp=2"}},
    {"cp2", {"mesh        cp=2"}},
    {"cp2_tp2", {"mesh        cp=2,tp=2", "tensor_parallel, sequence_parallel"}},
    {"fsdp2_cp2", {"mesh        fsdp=2,cp=2"}},
};

class PlansE2e : public DaemonTest {
 protected:
  static Arguments plan_flag(const std::string& plan) {
    if (plan.empty()) return {};
    return {"--plan", plan_path(plan)};
  }
  /// Submits a short job in float32 and returns its losses, step by step.
  std::vector<double> losses(const std::string& name, const std::string& plan) {
    TinyJob tiny;
    tiny.steps = kPlanSteps;
    tiny.validation_interval = 10;
    tiny.extra =
        "  export: {hf_folder: hf}\n"
        "  sample: {prompt: \"in the \", params: {max_tokens: 8}}\n";
    Arguments arguments = {"job", "submit", write_job(tiny), "--name", name};
    for (const std::string& flag : plan_flag(plan)) arguments.push_back(flag);
    const auto result = client(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
    EXPECT_TRUE(reaches(name, "succeeded")) << client({"job", "show", "-v", name}).output;
    std::vector<double> values;
    for (const auto& [step, loss] : step_losses(name)) values.push_back(loss);
    EXPECT_EQ(values.size(), static_cast<std::size_t>(kPlanSteps));
    return values;
  }
  void expect_close(const std::vector<double>& a, const std::vector<double>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], 1e-5 * b[i]) << "step " << i + 1;
  }
  /// One rank first, then every plan of that many ranks.
  void check_plans(int ranks, const std::vector<std::string>& plans) {
    start(1);
    const auto one = losses("one", "");
    const std::string text = job("one")["sample"].get<std::string>();
    daemon_->signal(SIGTERM);
    wait_for_end();
    start(ranks);
    for (const std::string& plan : plans) {
      SCOPED_TRACE(plan);
      const auto trained = losses(plan, plan);
      expect_close(trained, one);
      EXPECT_EQ(losses(plan + "-again", plan), trained) << "a rerun gives other bits";
      const Json shown = job(plan);
      EXPECT_EQ(shown["sample"].get<std::string>(), text);
      EXPECT_TRUE(fs::exists(fs::path(shown["hf_folder"].get<std::string>()) / "config.json"));
      const auto page = client({"job", "show", "-v", plan});
      for (const std::string& line : kShown.at(plan))
        EXPECT_NE(page.output.find(line), std::string::npos) << line << "\n" << page.output;
      EXPECT_NE(page.output.find("sent by rank 0"), std::string::npos) << page.output;
    }
  }
};

TEST_F(PlansE2e, PlansOfTwoRanks) {
  check_plans(2, {"dp2", "fsdp2", "tp2", "tp2_sequence", "tp2_styles", "cp2"});
  EXPECT_EQ(step_losses("tp2"), step_losses("tp2_styles")) << "the default plan, spelled out";
}

TEST_F(PlansE2e, PlansOfThreeRanks) { check_plans(3, {"tp3"}); }

TEST_F(PlansE2e, PlansOfFourRanks) {
  check_plans(4, {"fsdp2_tp2", "dp2_fsdp2", "cp2_tp2", "fsdp2_cp2"});
}

/// Documents packed behind each other, and sequences that fill the context of one step.
class LongPlansE2e : public PlansE2e {
 protected:
  std::vector<double> losses_of(const std::string& name, const std::string& data,
                                const std::string& mesh, const std::string& plan) {
    const std::string job = write_text(name + ".yaml", fmt::format(R"(run:
  model: {{preset: byte_llama_long}}
  mesh: {}
  plan: {}
  training: {{steps: 6, seq_len: 397, global_batch_size: 2, seed: 3}}
  optimizer: {{lr: 1.0e-3}}
  data: {}
)",
                                                                   mesh, plan, data));
    const auto result = client({"job", "submit", job, "--name", name});
    EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
    EXPECT_TRUE(reaches(name, "succeeded")) << client({"job", "show", "-v", name}).output;
    std::vector<double> values;
    for (const auto& [step, loss] : step_losses(name)) values.push_back(loss);
    EXPECT_EQ(values.size(), 6u);
    return values;
  }
};

TEST_F(LongPlansE2e, ContextParallelRanksHaveTheLossesOfOne) {
  const std::map<std::string, std::string> data = {
      {"packed", "{path: text.txt, document_mask: true, document_end: 10}"},
      {"whole", "{path: text.txt}"}};
  std::map<std::string, std::vector<double>> one;
  start(1);
  for (const auto& [name, source] : data)
    one[name] = losses_of(name + "-one", source, "{dp: 1}", "{dtype: float32}");
  EXPECT_NE(one["packed"], one["whole"]) << "documents are not masked";
  daemon_->signal(SIGTERM);
  wait_for_end();
  for (const auto& [ranks, mesh] : {std::pair{2, "{cp: 2}"}, {4, "{cp: 2, tp: 2}"}}) {
    start(ranks);
    for (const auto& [name, source] : data) {
      SCOPED_TRACE(fmt::format("{} on {}", name, mesh));
      const std::string plan = fmt::format(
          "{{dtype: float32, tensor_parallel: {0}, sequence_parallel: {0}}}", ranks > 2);
      expect_close(losses_of(fmt::format("{}-{}", name, ranks), source, mesh, plan), one[name]);
    }
    daemon_->signal(SIGTERM);
    wait_for_end();
  }
}

TEST_F(PlansE2e, APlanThatDoesNotFitIsRefusedAndTheDaemonServesOn) {
  start(2);
  Arguments arguments = {"job", "submit", write_job({}), "--name", "wrong"};
  for (const std::string& flag : plan_flag("tp3")) arguments.push_back(flag);
  const auto refused = client(arguments);
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_NE(refused.errors.find("run.mesh.tp"), std::string::npos) << refused.errors;
  EXPECT_NE(refused.errors.find("has 3 ranks, the daemon 2"), std::string::npos) << refused.errors;
  arguments = {"job", "submit", write_job({}), "--plan", write_text("bad.yaml", "mesh: {tq: 2}\n")};
  EXPECT_EQ(client(arguments).exit_code, 2);
  losses("right", "tp2");
}

}  // namespace
}  // namespace meshloom::e2e
