// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/plans/plan_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "daemon/cli/exit_code.h"
#include "daemon/cli/plans/model_config_reader.h"
#include "daemon/nn/models/presets.h"
#include "daemon/plan/model_shape.h"
#include "daemon/plan/plan_query.h"
#include "daemon/plan/traced_model.h"
#include "kernels/base/error.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"

namespace meshloom::cli {
namespace {

using ::testing::HasSubstr;

/// The text of what refuses it as wrong usage.
template <typename Action>
std::string plan_refusal(const Action& action) {
  try {
    action();
  } catch (const CliError& error) {
    EXPECT_EQ(error.code(), kUsage);
    return error.what();
  }
  return "accepted";
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

/// What the options ask of the planner.
plan::MeshAndPlan make_mesh_and_plan(const PlanOptions& options, const nn::ModelConfig& model) {
  const v1::PlanQuery query = make_query(options);
  try {
    return plan::query_plan(query, plan::TracedModel(model).modules(), plan::query_machine(query));
  } catch (const Error& error) {
    throw CliError(kUsage, error.what());
  }
}

planner::Machine machine_of(const std::string& cluster) {
  PlanOptions options;
  options.cluster = cluster;
  return plan::query_machine(make_query(options));
}

TEST(PlanOptions, ReadMeshes) {
  EXPECT_EQ(parse_mesh("dp=2,tp=3"), (planner::MeshSizes{2, 1, 1, 3}));
  EXPECT_EQ(parse_mesh("tp=1,cp=4,fsdp=5"), (planner::MeshSizes{1, 5, 4, 1}));
  for (const char* wrong : {"", "dp", "dp=", "dp=0", "dp=-1", "dp=2x", "pp=2", "dp=2,", "=3"})
    EXPECT_THAT(plan_refusal([&] { parse_mesh(wrong); }), HasSubstr("--mesh ")) << wrong;
  EXPECT_THAT(plan_refusal([] { parse_mesh("tp=2,tp=2"); }), HasSubstr("tp is given twice"));
  EXPECT_THAT(plan_refusal([] { parse_mesh("dp=100000,tp=100000"); }), HasSubstr("too many"));
  // The product is 2 in 64 bits.
  EXPECT_THAT(plan_refusal([] { parse_mesh("dp=7623851,fsdp=2459346,tp=3935371"); }),
              HasSubstr("too many"));
}

TEST(PlanOptions, EveryPresetIsReadWithItsParameters) {
  for (const std::string& name : nn::preset_names())
    EXPECT_EQ(nn::parameter_count(read_model_config(name)),
              nn::parameter_count(nn::preset_config(name)))
        << name;
}

TEST(PlanOptions, ModelsAreReadFromFilesAndFolders) {
  const test::TempFolder folder;
  write(folder.path() / "config.json", nn::preset_text("llama_tiny"));
  const auto expected = nn::parameter_count(read_model_config("llama_tiny"));
  EXPECT_EQ(nn::parameter_count(read_model_config(folder.path().string())), expected);
  EXPECT_EQ(nn::parameter_count(read_model_config((folder.path() / "config.json").string())),
            expected);
  EXPECT_THAT(
      plan_refusal([] { read_model_config("gpt9"); }),
      HasSubstr("--model gpt9: is neither a preset nor a file that is here (presets: bert_base"));
  write(folder.path() / "config.json",
        R"({"n_embed": 64, "model_type": "gpt2", "n_layer": 2, "vocab_size": 256})");
  EXPECT_THAT(plan_refusal([&] { read_model_config(folder.path().string()); }),
              HasSubstr("n_embed is no key of GPT2LMHeadModel (did you mean hidden_size?)"));
  write(folder.path() / "model.safetensors", "whose shapes speak");
  EXPECT_EQ(read_model_config(folder.path().string()).hidden_size, 768);
  std::filesystem::remove(folder.path() / "model.safetensors");
  write(folder.path() / "config.json", "{");
  EXPECT_THAT(plan_refusal([&] { read_model_config(folder.path().string()); }),
              HasSubstr("not valid JSON"));
}

TEST(PlanOptions, ClustersAreReadFromFilesWithPlaces) {
  const test::TempFolder folder;
  const std::string file = (folder.path() / "mine.yaml").string();
  write(file,
        "float32_flops: 1.0e12\nmemory_bytes_per_second: 1.0e11\n"
        "intra_host: {latency_seconds: 1.0e-6, bytes_per_second: 2.0e10}\n");
  PlanOptions options;
  options.cluster = file;
  options.flops = 4e12;
  const planner::Machine machine = plan::query_machine(make_query(options));
  EXPECT_EQ(machine.bfloat16_flops, 4e12);
  EXPECT_EQ(machine.topology.inter_host, machine.topology.intra_host);
  write(file, "float32_flop: 1.0e12\n");
  EXPECT_THAT(plan_refusal([&] { machine_of(file); }),
              HasSubstr("mine.yaml:1: unknown key \"float32_flop\"; did you mean"));
  write(file, "float32_flops: 1.0e12\noverlap: 2.0\n");
  EXPECT_THAT(plan_refusal([&] { machine_of(file); }), HasSubstr("overlap 2 must be 0 to 1"));
  EXPECT_THAT(plan_refusal([] { machine_of("moon"); }), HasSubstr("the clusters are a100"));
}

TEST(PlanOptions, NothingIsOverriddenOrWithoutEffect) {
  const nn::ModelConfig model = read_model_config("gpt2_124m");
  const test::TempFolder folder;
  PlanOptions options;
  options.plan_file = (folder.path() / "plan.yaml").string();
  const auto refused = [&](const char* file) {
    write(options.plan_file, file);
    return plan_refusal([&] { make_mesh_and_plan(options, model); });
  };
  EXPECT_THAT(refused("mesh: {tp: 2}\nplan: {tensor_parallel: false}\n"), HasSubstr("but tp is 2"));
  EXPECT_THAT(refused("mesh: {fsdp: 2}\nplan: {fully_shard: false}\n"), HasSubstr("but fsdp is 2"));
  options.no_reshard = true;
  EXPECT_THAT(refused("mesh: {tp: 2}\n"), HasSubstr("--no-reshard"));
}

TEST(PlanOptions, PlansComeFromTheMeshAFileAndFlags) {
  const nn::ModelConfig model = read_model_config("gpt2_124m");
  PlanOptions options;
  options.cluster = "h100";
  options.mesh = "fsdp=2,tp=2";
  plan::MeshAndPlan made = make_mesh_and_plan(options, model);
  EXPECT_TRUE(made.plan.tensor_parallel);
  EXPECT_TRUE(made.plan.fully_shard);
  EXPECT_FALSE(made.plan.sequence_parallel);
  EXPECT_EQ(made.plan.dtype, DType::kBFloat16);

  const test::TempFolder folder;
  options.plan_file = (folder.path() / "plan.yaml").string();
  options.mesh.clear();
  write(options.plan_file,
        "mesh: {tp: 3}\nplan: {tensor_parallel: true, sequence_parallel: true, dtype: float32, "
        "activation_checkpoint: full}\n");
  made = make_mesh_and_plan(options, model);
  EXPECT_EQ(made.mesh, (planner::MeshSizes{1, 1, 1, 3}));
  EXPECT_TRUE(made.plan.sequence_parallel);
  EXPECT_EQ(made.plan.checkpointing, planner::ActivationCheckpoint::kFull);
  EXPECT_EQ(made.plan.dtype, DType::kFloat32);

  options.mesh = "tp=4";
  options.dtype = "bfloat16";
  options.activation_checkpoint = "none";
  made = make_mesh_and_plan(options, model);
  EXPECT_EQ(made.mesh.tp, 4);
  EXPECT_EQ(made.plan.dtype, DType::kBFloat16);
  EXPECT_EQ(made.plan.checkpointing, planner::ActivationCheckpoint::kNone);

  options.dtype = "float8";
  EXPECT_THAT(plan_refusal([&] { make_mesh_and_plan(options, model); }), HasSubstr("float8"));
  options.dtype.clear();
  write(options.plan_file,
        "mesh: {fsdp: 2}\nplan: {fully_shard_options: {reshard_after_forward: false}}\n");
  options.mesh.clear();
  made = make_mesh_and_plan(options, model);
  EXPECT_TRUE(made.plan.fully_shard);
  EXPECT_FALSE(made.plan.shards.reshard_after_forward);

  write(options.plan_file, "plan: {tensor_paralel: true}\n");
  EXPECT_THAT(plan_refusal([&] { make_mesh_and_plan(options, model); }),
              HasSubstr("plan.yaml:1: plan: unknown key \"tensor_paralel\""));
}

/// The plan of a file with this text for GPT-2.
plan::MeshAndPlan read_plan(const std::string& text) {
  const test::TempFolder folder;
  PlanOptions options;
  options.plan_file = (folder.path() / "plan.yaml").string();
  write(options.plan_file, text);
  return make_mesh_and_plan(options, read_model_config("gpt2_124m"));
}

TEST(PlanOptions, DimsOfFullyShardComeFromPolicyAndPatterns) {
  const planner::FullyShardPlan shards =
      read_plan(
          "mesh: {fsdp: 2}\nplan: {fully_shard_options: {policy: largest_divisible, min_elements: "
          "7, choices: [{pattern: transformer.h.*.mlp.c_fc.weight, dim: 1}, {pattern: "
          "transformer.wpe.weight}]}}\n")
          .plan.shards;
  EXPECT_EQ(shards.policy, planner::ShardPolicy::kLargestDivisible);
  EXPECT_EQ(shards.min_elements, 7);
  const std::vector<planner::DimChoice> choices = {{"transformer.h.*.mlp.c_fc.weight", 1},
                                                   {"transformer.wpe.weight", std::nullopt}};
  EXPECT_EQ(shards.choices, choices);
  EXPECT_THAT(
      plan_refusal([] {
        read_plan("mesh: {fsdp: 2}\nplan: {fully_shard_options: {choices: [{pattern: a.b}]}}\n");
      }),
      HasSubstr("plan.fully_shard_options.choices: pattern \"a.b\" matches nothing"));
}

TEST(PlanOptions, StylesAreReadAsAJobReadsThem) {
  const auto styles = [](const std::string& text) {
    return read_plan("mesh: {tp: 2}\nplan:\n  styles:\n" + text).plan.styles;
  };
  const auto entry = [](const std::string& pattern, const std::string& style) {
    return "    - {pattern: " + pattern + ", styles: [{style: " + style + "}]}\n";
  };
  const std::string fc = "transformer.h.*.mlp.c_fc";
  const planner::StylePlan read = styles(entry(fc, "ColwiseParallel, output_layouts: [R]"));
  const planner::StylePlan expected = {
      {fc,
       {{.kind = planner::StyleKind::kColwise,
         .output_layouts =
             planner::ArgumentLayouts{planner::Placements{planner::Placement::replicate()}}}}}};
  EXPECT_EQ(read, expected);
  EXPECT_THAT(plan_refusal([&] { styles(entry("transformer.h.*.mlp.fc", "ColwiseParallel")); }),
              HasSubstr("plan.styles: pattern \"transformer.h.*.mlp.fc\" matches nothing"));
  EXPECT_THAT(plan_refusal([&] { styles(entry(fc, "DiagonalParallel")); }),
              HasSubstr("plan.styles[0].styles[0].style: unknown style DiagonalParallel"));
  EXPECT_THAT(plan_refusal([&] { styles(entry(fc, "ColwiseParallel, sequence_dim: 1")); }),
              HasSubstr("is no option of ColwiseParallel"));
}

TEST(PlanOptions, EveryPlanOfTheConfigsIsEstimated) {
  const nn::ModelConfig model = read_model_config("byte_gpt_10m");
  const planner::ModelShape shape = plan::make_model_shape(model);
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_file("configs/plans"))) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    PlanOptions options;
    options.plan_file = entry.path().string();
    const auto [mesh, plan] = make_mesh_and_plan(options, model);
    const planner::Workload work = plan::query_work(make_query(options), shape, mesh);
    EXPECT_EQ(planner::why_invalid(shape, mesh, plan, work), std::nullopt) << entry.path();
    EXPECT_GT(mesh.ranks(), 1) << entry.path();
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace meshloom::cli
