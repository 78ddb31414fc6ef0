// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/resolve_plan.h"

#include <algorithm>
#include <array>
#include <optional>

#include "daemon/base/given_number.h"
#include "daemon/nn/models/default_styles.h"
#include "daemon/parallel/tensor_parallel/parallelize_module.h"
#include "daemon/plan/model_shape.h"
#include "daemon/plan/parallel_plan.h"
#include "daemon/train/config/device_choice.h"
#include "daemon/train/config/resolve.h"
#include "planner/estimate/memory.h"
#include "planner/estimate/rotate_choice.h"
#include "planner/limits.h"
#include "planner/rank_count.h"

namespace meshloom::train {
namespace {

/// The field that a refusal of the mesh as a whole names.
const char* last_shard(const v1::Mesh& mesh) {
  if (mesh.tp() > 1) return "run.mesh.tp";
  if (mesh.cp() > 1) return "run.mesh.cp";
  return mesh.fsdp() > 1 ? "run.mesh.fsdp" : "run.mesh.dp";
}

/// "dp=2,fsdp=1,tp=1"; cp is named if it is used.
std::string mesh_text(const v1::Mesh& mesh) {
  const std::string cp = mesh.cp() > 1 ? fmt::format("cp={},", mesh.cp()) : std::string();
  return fmt::format("dp={},fsdp={},{}tp={}", mesh.dp(), mesh.fsdp(), cp, mesh.tp());
}

/// All sizes are at least 1.
int ranks_of(const v1::Mesh& mesh) {
  const std::optional<int> count =
      planner::rank_count(std::array{mesh.dp(), mesh.fsdp(), mesh.cp(), mesh.tp()});
  if (!count)
    base::refuse_field(last_shard(mesh), "the mesh {} has more than 2^31 - 1 ranks",
                       mesh_text(mesh));
  return *count;
}

/// One dim takes the ranks that the others leave.
void resolve_mesh(v1::Mesh& mesh, bool fully_shard, int world_size) {
  const bool free_fsdp = fully_shard && !mesh.has_fsdp();
  const bool free_dp = !free_fsdp && !mesh.has_dp();
  const auto otherwise = [](bool is_free) { return is_free ? "the ranks that are left" : "1"; };
  base::check_given_positive("run.mesh.dp", mesh.has_dp(), mesh.dp(), otherwise(!free_fsdp));
  base::check_given_positive("run.mesh.fsdp", mesh.has_fsdp(), mesh.fsdp(), otherwise(fully_shard));
  base::check_given_positive("run.mesh.cp", mesh.has_cp(), mesh.cp(), "1");
  base::check_given_positive("run.mesh.tp", mesh.has_tp(), mesh.tp(), "1");
  if (!mesh.has_dp()) mesh.set_dp(1);
  if (!mesh.has_fsdp()) mesh.set_fsdp(1);
  if (!mesh.has_cp()) mesh.set_cp(1);
  if (!mesh.has_tp()) mesh.set_tp(1);
  const int fixed = ranks_of(mesh);
  if ((free_fsdp || free_dp) && world_size % fixed == 0) {
    const int rest = world_size / fixed;
    if (free_fsdp) {
      mesh.set_fsdp(rest);
    } else {
      mesh.set_dp(rest);
    }
  }
  if (ranks_of(mesh) != world_size)
    base::refuse_field(last_shard(mesh), "the mesh {} has {} ranks, the daemon {}", mesh_text(mesh),
                       ranks_of(mesh), world_size);
}

void resolve_fully_shard(v1::ParallelPlan& plan) {
  v1::FullyShardOptions& options = *plan.mutable_fully_shard_options();
  if (options.policy() == v1::SHARD_POLICY_UNSPECIFIED) options.set_policy(v1::SHARD_POLICY_DIM0);
  const char* field = "run.plan.fully_shard_options.min_elements";
  if (options.policy() == v1::SHARD_POLICY_LARGEST_DIVISIBLE) {
    if (!options.has_min_elements()) options.set_min_elements(std::int64_t{1} << 18);
  } else if (options.has_min_elements()) {
    base::refuse_field(field,
                       "is {}, but only policy largest_divisible leaves small parameters whole",
                       options.min_elements());
  }
  if (options.min_elements() < 0)
    base::refuse_field(field, "must not be negative, got {}", options.min_elements());
  if (!options.has_reshard_after_forward()) options.set_reshard_after_forward(true);
}

/// What a plan says of a way to shard must not contradict its mesh dim; one rank alone shards
/// nothing and takes any plan.
void check_against_mesh(bool said, bool wanted, const char* way, const char* dim, int size,
                        int world_size) {
  if (!said || world_size == 1 || wanted == (size > 1)) return;
  base::refuse_field(fmt::format("run.plan.{}", way), "is {}, but run.mesh.{} is {}", wanted, dim,
                     size);
}

void resolve_tensor_parallel(v1::ParallelPlan& plan, const v1::Mesh& mesh, int world_size) {
  check_against_mesh(plan.has_tensor_parallel(), plan.tensor_parallel(), "tensor_parallel", "tp",
                     mesh.tp(), world_size);
  if (mesh.tp() > 1) plan.set_tensor_parallel(true);
  if (plan.sequence_parallel() && mesh.tp() == 1)
    base::refuse_field("run.plan.sequence_parallel",
                       "needs a mesh with tp larger than 1, run.mesh.tp is {}", mesh.tp());
  if (plan.has_fusion() && mesh.tp() == 1)
    base::refuse_field("run.plan.fusion", "needs a mesh with tp larger than 1, run.mesh.tp is {}",
                       mesh.tp());
  if (plan.styles_size() > 0 && mesh.tp() == 1)
    base::refuse_field("run.plan.styles", "need a mesh with tp larger than 1, run.mesh.tp is {}",
                       mesh.tp());
  if (plan.styles_size() > 0 && plan.sequence_parallel())
    base::refuse_field(
        "run.plan.sequence_parallel",
        "is a choice between the model's default plans, but run.plan.styles is given");
}

/// Of a plan that is read, on the device of its run.
void check_fusion_on(const std::string& device, const planner::FusionPlan& fusion) {
  if (!has_device_memory(device)) return;
  const auto check_mode = [&](planner::FusionMode mode, const std::string& field) {
    if (mode == planner::FusionMode::kForce)
      base::refuse_field(field,
                         "is force, but fused products need memory that ranks of one host share, "
                         "which device {} has not; give auto or forbid, or run.device cpu",
                         device);
  };
  check_mode(fusion.mode, "run.plan.fusion.mode");
  for (std::size_t i = 0; i < fusion.choices.size(); ++i)
    check_mode(fusion.choices[i].mode, fmt::format("run.plan.fusion.choices[{}].mode", i));
}

/// Each pattern is looked at for every name of the model.
void check_pattern_counts(const v1::ParallelPlan& plan, std::int64_t layers) {
  const auto check_size = [layers](const char* field, std::int64_t size) {
    const std::int64_t most =
        std::min(planner::kMostPatterns, planner::kMostPatternLayers / layers);
    if (size > most)
      base::refuse_field(field, "has {} entries, at most {} are allowed for a model of {} layers",
                         size, most, layers);
  };
  check_size("run.plan.styles", plan.styles_size());
  check_size("run.plan.fusion.choices", plan.fusion().choices_size());
  check_size("run.plan.fully_shard_options.choices", plan.fully_shard_options().choices_size());
  check_size("run.plan.activation_checkpoint_choices", plan.activation_checkpoint_choices_size());
}

planner::StylePlan styles_of(const planner::ParallelPlan& plan, const nn::Model& model) {
  return planner::styles_of(
      plan, nn::default_styles(model.config().architecture, plan.sequence_parallel));
}

/// As the styles will be used when the run is made.
std::vector<std::string> check_styles(const planner::ParallelPlan& plan, int tp, nn::Model& model) {
  if (tp <= 1) return {};
  const auto mesh = std::make_shared<const planner::MeshLayout>(planner::MeshLayout({{"tp", tp}}));
  if (plan.fusion != planner::FusionPlan{})
    base::with_field("run.plan.fusion", [&] {
      parallel::check_fusion(model, mesh, styles_of(plan, model), plan.fusion);
    });
  if (plan.styles.empty()) return {};
  const std::string field = "run.plan.styles";
  auto [warnings, applied, sharded] =
      base::with_field(field, [&] { return parallel::check_styles(model, mesh, plan.styles); });
  if (sharded == 0)
    warnings.push_back(
        "no parameter is sharded: each of the ranks of tp holds and computes them all");
  for (std::string& warning : warnings) warning = fmt::format("{}: {}", field, warning);
  return warnings;
}

/// A run that is driven step by step has no global batch.
planner::Workload workload_of(const v1::TrainingConfig& training) {
  return {.global_batch = std::max(training.global_batch_size(), training.micro_batch_size()),
          .micro_batch = training.micro_batch_size(),
          .sequence = training.seq_len()};
}

}  // namespace

void resolve_mesh_and_plan(v1::RunConfig& config, int world_size) {
  v1::ParallelPlan& plan = *config.mutable_plan();
  resolve_mesh(*config.mutable_mesh(), plan.fully_shard(), world_size);
  const v1::Mesh& mesh = config.mesh();
  resolve_tensor_parallel(plan, mesh, world_size);
  check_fusion_on(config.device(),
                  plan::read_parallel_plan(plan, plan::make_mesh_sizes(mesh), "run.plan").fusion);
  check_against_mesh(plan.has_fully_shard(), plan.fully_shard(), "fully_shard", "fsdp", mesh.fsdp(),
                     world_size);
  if (mesh.fsdp() > 1) plan.set_fully_shard(true);
  if (plan.fully_shard()) {
    resolve_fully_shard(plan);
  } else if (plan.has_fully_shard_options()) {
    base::refuse_field("run.plan.fully_shard_options",
                       "is given, but run.plan.fully_shard is false and run.mesh.fsdp is {}",
                       mesh.fsdp());
  }
  if (plan.activation_checkpoint() == v1::ACTIVATION_CHECKPOINT_UNSPECIFIED)
    plan.set_activation_checkpoint(v1::ACTIVATION_CHECKPOINT_NONE);
}

bool balances_documents(const v1::ParallelPlan& plan) {
  return plan.context_parallel().load_balancer() ==
         planner::to_string(planner::LoadBalancer::kPerDocument);
}

bool rotate_is_auto(const v1::ParallelPlan& plan) {
  const std::string& rotate = plan.context_parallel().rotate();
  return rotate.empty() || rotate == "auto";
}

bool balancer_is_auto(const v1::ParallelPlan& plan) {
  const std::string& balancer = plan.context_parallel().load_balancer();
  return balancer.empty() || balancer == "auto";
}

void resolve_context_parallel(v1::RunConfig& config, const nn::ModelConfig& model,
                              int ranks_per_host) {
  if (config.mesh().cp() <= 1) return;
  const planner::Workload work = workload_of(config.training());
  planner::ParallelPlan given = make_plan(config);
  const bool balancer_open = balancer_is_auto(config.plan());
  if (balancer_open && config.data().document_mask())
    given.context_parallel.load_balancer = planner::LoadBalancer::kPerDocument;
  const planner::ContextParallelPlan resolved =
      planner::resolve_context_parallel(given, plan::make_model_shape(model),
                                        plan::make_mesh_sizes(config.mesh()), work, ranks_per_host)
          .context_parallel;
  v1::ContextParallelPlan& plan = *config.mutable_plan()->mutable_context_parallel();
  if (balancer_open && resolved.load_balancer == planner::LoadBalancer::kMaskArea)
    plan.set_load_balancer(planner::to_string(resolved.load_balancer));
  plan.set_rotate(planner::to_string(resolved.rotate));
  if (resolved.ulysses_degree > 0) plan.set_ulysses_degree(resolved.ulysses_degree);
}

std::vector<std::string> check_plan_fits(const v1::RunConfig& config,
                                         const nn::ModelConfig& model) {
  const v1::ParallelPlan& given = config.plan();
  check_pattern_counts(given, model.num_layers);
  ExecutionContext context;
  const DeferParametersGuard defer(context);
  const bool has_patterns = given.styles_size() > 0 || given.fusion().choices_size() > 0 ||
                            given.fully_shard_options().choices_size() > 0 ||
                            given.activation_checkpoint_choices_size() > 0;
  // Layers are alike if no pattern tells them apart.
  nn::ModelConfig looked_at = model;
  if (!has_patterns) looked_at.num_layers = 1;
  const auto described = nn::make_model(context, looked_at, DType::kFloat32);
  std::vector<std::string> names;
  std::vector<planner::ShardCandidate> candidates;
  for (const nn::NamedParameter& p : described->named_parameters()) {
    names.push_back(p.name);
    candidates.push_back({p.name, p.parameter->value.shape(), {}});
  }
  const planner::ParallelPlan plan = make_plan(config);
  base::with_field("run.plan.activation_checkpoint_choices",
                   [&] { planner::block_checkpoints(plan, names); });
  if (plan.fully_shard)
    base::with_field("run.plan.fully_shard_options.choices", [&] {
      planner::choose_shards(candidates, plan::make_mesh_sizes(config.mesh()).parameter_shards(),
                             planner::shard_options(plan.shards, names));
    });
  std::vector<std::string> notes = check_styles(plan, config.mesh().tp(), *described);
  if (config.mesh().tp() > model.num_heads)
    notes.push_back(
        fmt::format("run.mesh.tp: {} ranks share {} attention heads, the last have none",
                    config.mesh().tp(), model.num_heads));
  return notes;
}

planner::ParallelPlan make_plan(const v1::RunConfig& config) {
  return plan::read_parallel_plan(config.plan(), plan::make_mesh_sizes(config.mesh()), "run.plan");
}

std::int64_t fused_workspace_of(const v1::RunConfig& config, const nn::ModelConfig& model) {
  return planner::fused_workspace_bytes(plan::make_mesh_sizes(config.mesh()), make_plan(config),
                                        workload_of(config.training()), model.hidden_size);
}

}  // namespace meshloom::train
