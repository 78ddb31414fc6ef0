// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/resolve_plan.h"

#include <algorithm>
#include <array>
#include <optional>

#include "daemon/train/field_error.h"
#include "daemon/train/resolve.h"
#include "daemon/train/tensor_plan.h"
#include "planner/limits.h"
#include "planner/name_pattern.h"
#include "planner/rank_count.h"

namespace meshloom::train {
namespace {

void check_sizes(const v1::Mesh& mesh) {
  const auto check_size = [](const char* name, std::int32_t size) {
    if (size < 0)
      refuse_field(fmt::format("run.mesh.{}", name), "must not be negative, got {}", size);
  };
  check_size("dp", mesh.dp());
  check_size("fsdp", mesh.fsdp());
  check_size("cp", mesh.cp());
  check_size("tp", mesh.tp());
  if (mesh.cp() > 1)
    field_not_offered("run.mesh.cp", "size {} is not offered by this build", mesh.cp());
}

/// The field that a refusal of the mesh as a whole names.
const char* last_shard(const v1::Mesh& mesh) {
  if (mesh.tp() > 1) return "run.mesh.tp";
  return mesh.fsdp() > 1 ? "run.mesh.fsdp" : "run.mesh.dp";
}

/// All sizes are at least 1.
int ranks_of(const v1::Mesh& mesh) {
  const std::optional<int> count =
      planner::rank_count(std::array{mesh.dp(), mesh.fsdp(), mesh.tp()});
  if (!count)
    refuse_field(last_shard(mesh), "the mesh dp={},fsdp={},tp={} has more than 2^31 - 1 ranks",
                 mesh.dp(), mesh.fsdp(), mesh.tp());
  return *count;
}

/// One dim takes the ranks that the others leave.
void resolve_mesh(v1::Mesh& mesh, bool fully_shard, int world_size) {
  check_sizes(mesh);
  const bool free_fsdp = fully_shard && mesh.fsdp() == 0;
  const bool free_dp = !free_fsdp && mesh.dp() == 0;
  if (mesh.dp() == 0) mesh.set_dp(1);
  if (mesh.fsdp() == 0) mesh.set_fsdp(1);
  mesh.set_cp(1);
  if (mesh.tp() == 0) mesh.set_tp(1);
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
    refuse_field(last_shard(mesh), "the mesh dp={},fsdp={},tp={} has {} ranks, the daemon {}",
                 mesh.dp(), mesh.fsdp(), mesh.tp(), ranks_of(mesh), world_size);
}

void resolve_min_elements(v1::FullyShardOptions& options) {
  const char* field = "run.plan.fully_shard_options.min_elements";
  if (options.policy() == v1::SHARD_POLICY_LARGEST_DIVISIBLE) {
    if (!options.has_min_elements()) options.set_min_elements(std::int64_t{1} << 18);
  } else if (options.has_min_elements()) {
    refuse_field(field, "is {}, but only policy largest_divisible leaves small parameters whole",
                 options.min_elements());
  }
  if (options.min_elements() < 0)
    refuse_field(field, "must not be negative, got {}", options.min_elements());
}

void resolve_fully_shard(v1::ParallelPlan& plan) {
  v1::FullyShardOptions& options = *plan.mutable_fully_shard_options();
  if (options.policy() == v1::SHARD_POLICY_UNSPECIFIED) options.set_policy(v1::SHARD_POLICY_DIM0);
  if (!v1::ShardPolicy_IsValid(options.policy()))
    refuse_field("run.plan.fully_shard_options.policy", "has the unknown value {}",
                 static_cast<int>(options.policy()));
  resolve_min_elements(options);
  if (!options.has_reshard_after_forward()) options.set_reshard_after_forward(true);
}

/// What a plan says of a way to cut must not contradict its mesh dim; one rank alone cuts nothing
/// and takes any plan.
void check_against_mesh(bool said, bool wanted, const char* way, const char* dim, int size,
                        int world_size) {
  if (!said || world_size == 1 || wanted == (size > 1)) return;
  refuse_field(fmt::format("run.plan.{}", way), "is {}, but run.mesh.{} is {}", wanted, dim, size);
}

void resolve_tensor_parallel(v1::ParallelPlan& plan, const v1::Mesh& mesh, int world_size) {
  check_against_mesh(plan.has_tensor_parallel(), plan.tensor_parallel(), "tensor_parallel", "tp",
                     mesh.tp(), world_size);
  if (mesh.tp() > 1) plan.set_tensor_parallel(true);
  if (plan.sequence_parallel() && mesh.tp() == 1)
    refuse_field("run.plan.sequence_parallel",
                 "needs a mesh with tp larger than 1, run.mesh.tp is {}", mesh.tp());
  if (plan.styles_size() > 0 && mesh.tp() == 1)
    refuse_field("run.plan.styles", "need a mesh with tp larger than 1, run.mesh.tp is {}",
                 mesh.tp());
  if (plan.styles_size() > 0 && plan.sequence_parallel())
    refuse_field("run.plan.sequence_parallel",
                 "is a choice between the model's default plans, but run.plan.styles is given");
  for (int i = 0; i < plan.styles_size(); ++i)
    if (plan.styles(i).styles().empty())
      refuse_field(fmt::format("run.plan.styles[{}].styles", i),
                   "is missing: what is to be done with the modules {}", plan.styles(i).pattern());
  make_tensor_plan(plan);
}

void check_checkpoint_choices(const v1::ParallelPlan& plan) {
  const auto& choices = plan.activation_checkpoint_choices();
  for (int i = 0; i < choices.size(); ++i) {
    const std::string field = fmt::format("run.plan.activation_checkpoint_choices[{}]", i);
    if (choices[i].mode() == v1::ACTIVATION_CHECKPOINT_UNSPECIFIED)
      refuse_field(field + ".mode", "is missing for {}: none, selective or full",
                   choices[i].pattern());
    for (int k = 0; k < i; ++k)
      if (choices[k].pattern() == choices[i].pattern())
        refuse_field(field + ".pattern", "{} is there twice", choices[i].pattern());
  }
}

/// Each pattern is looked at for every name of the model.
void check_pattern_counts(const v1::ParallelPlan& plan, std::int64_t layers) {
  const auto check_size = [layers](const char* field, std::int64_t size) {
    const std::int64_t most =
        std::min(planner::kMostPatterns, planner::kMostPatternLayers / layers);
    if (size > most)
      refuse_field(field, "has {} entries, at most {} are allowed for a model of {} layers", size,
                   most, layers);
  };
  check_size("run.plan.styles", plan.styles_size());
  check_size("run.plan.fully_shard_options.choices", plan.fully_shard_options().choices_size());
  check_size("run.plan.activation_checkpoint_choices", plan.activation_checkpoint_choices_size());
}

bool has_patterns(const v1::ParallelPlan& plan) {
  return plan.styles_size() > 0 || plan.fully_shard_options().choices_size() > 0 ||
         plan.activation_checkpoint_choices_size() > 0;
}

void resolve_plan(v1::ParallelPlan& plan, const v1::Mesh& mesh, int world_size) {
  if (plan.has_context_parallel())
    field_not_offered("run.plan.context_parallel", "is not offered by this build");
  resolve_tensor_parallel(plan, mesh, world_size);
  check_against_mesh(plan.has_fully_shard(), plan.fully_shard(), "fully_shard", "fsdp", mesh.fsdp(),
                     world_size);
  if (mesh.fsdp() > 1) plan.set_fully_shard(true);
  if (plan.fully_shard()) {
    resolve_fully_shard(plan);
  } else if (plan.has_fully_shard_options()) {
    refuse_field("run.plan.fully_shard_options",
                 "is given, but run.plan.fully_shard is false and run.mesh.fsdp is {}",
                 mesh.fsdp());
  }
  check_checkpoint_choices(plan);
  if (plan.activation_checkpoint() == v1::ACTIVATION_CHECKPOINT_UNSPECIFIED)
    plan.set_activation_checkpoint(v1::ACTIVATION_CHECKPOINT_NONE);
  if (!v1::ActivationCheckpoint_IsValid(plan.activation_checkpoint()))
    refuse_field("run.plan.activation_checkpoint", "has the unknown value {}",
                 static_cast<int>(plan.activation_checkpoint()));
}

/// `what` says what the names are names of.
void check_all_match(const std::vector<std::string>& patterns,
                     const std::vector<std::string>& names, const char* what) {
  for (const std::string& pattern : patterns)
    check(std::any_of(names.begin(), names.end(),
                      [&](const auto& name) { return planner::matches_pattern(pattern, name); }),
          "{}; patterns name {}, such as {}", planner::unmatched_text(pattern, names), what,
          names[0]);
}

nn::ActivationCheckpoint checkpoint_mode(v1::ActivationCheckpoint mode) {
  switch (mode) {
    case v1::ACTIVATION_CHECKPOINT_FULL: return nn::ActivationCheckpoint::kFull;
    case v1::ACTIVATION_CHECKPOINT_SELECTIVE: return nn::ActivationCheckpoint::kSelective;
    default: return nn::ActivationCheckpoint::kNone;
  }
}

}  // namespace

void resolve_mesh_and_plan(v1::RunConfig& config, int world_size) {
  v1::ParallelPlan& plan = *config.mutable_plan();
  resolve_mesh(*config.mutable_mesh(), plan.fully_shard(), world_size);
  resolve_plan(plan, config.mesh(), world_size);
}

std::vector<std::string> check_plan_fits(const v1::RunConfig& config,
                                         const nn::ModelConfig& model) {
  check_pattern_counts(config.plan(), model.num_layers);
  ExecutionContext context;
  const DeferParametersGuard defer(context);
  // Layers are alike where no pattern tells them apart.
  nn::ModelConfig looked_at = model;
  if (!has_patterns(config.plan())) looked_at.num_layers = 1;
  const auto described = nn::make_model(context, looked_at, DType::kFloat32);
  std::vector<std::string> names;
  std::vector<parallel::ShardCandidate> candidates;
  for (const nn::NamedParameter& p : described->named_parameters()) {
    names.push_back(p.name);
    candidates.push_back({p.name, p.parameter->value.shape(), {}});
  }
  make_block_checkpoints(config.plan(), names);
  if (const auto options = make_fully_shard_options(config.plan(), names))
    with_field("run.plan.fully_shard_options.choices",
               [&] { parallel::choose_shards(candidates, config.mesh().fsdp(), *options); });
  std::vector<std::string> notes = check_tensor_plan(config, *described);
  if (config.mesh().tp() > model.num_heads)
    notes.push_back(
        fmt::format("run.mesh.tp: {} ranks share {} attention heads, the last have none",
                    config.mesh().tp(), model.num_heads));
  return notes;
}

std::vector<nn::ActivationCheckpoint> make_block_checkpoints(
    const v1::ParallelPlan& plan, const std::vector<std::string>& parameters) {
  std::vector<std::string> blocks, patterns;
  for (const std::string& name : parameters) {
    const std::string block(parallel::unit_of(name));
    if (!block.empty() && (blocks.empty() || blocks.back() != block)) blocks.push_back(block);
  }
  for (const v1::CheckpointChoice& choice : plan.activation_checkpoint_choices())
    patterns.push_back(choice.pattern());
  std::vector<nn::ActivationCheckpoint> modes;
  with_field("run.plan.activation_checkpoint_choices", [&] {
    check(patterns.empty() || !blocks.empty(), "this model has no blocks");
    check_all_match(patterns, blocks, "blocks");
    for (const std::string& block : blocks) {
      const auto best = planner::best_pattern(patterns, block);
      modes.push_back(
          checkpoint_mode(best ? plan.activation_checkpoint_choices(static_cast<int>(*best)).mode()
                               : plan.activation_checkpoint()));
    }
  });
  return modes;
}

std::optional<parallel::FullyShardOptions> make_fully_shard_options(
    const v1::ParallelPlan& plan, const std::vector<std::string>& parameters) {
  if (!plan.fully_shard()) return std::nullopt;
  const v1::FullyShardOptions& given = plan.fully_shard_options();
  parallel::FullyShardOptions options;
  if (given.policy() == v1::SHARD_POLICY_LARGEST_DIVISIBLE)
    options.policy = parallel::ShardPolicy::kLargestDivisible;
  if (given.has_min_elements()) options.min_elements = given.min_elements();
  if (given.has_reshard_after_forward())
    options.reshard_after_forward = given.reshard_after_forward();
  std::vector<std::string> patterns;
  for (const v1::ShardChoice& choice : given.choices()) patterns.push_back(choice.pattern());
  with_field("run.plan.fully_shard_options.choices", [&] {
    check_all_match(patterns, parameters, "parameters");
    for (const std::string& name : parameters) {
      const auto best = planner::best_pattern(patterns, name);
      if (!best) continue;
      const v1::ShardChoice& choice = given.choices(static_cast<int>(*best));
      options.dims[name] = choice.has_dim() ? std::optional<int>(choice.dim()) : std::nullopt;
    }
  });
  return options;
}

}  // namespace meshloom::train
