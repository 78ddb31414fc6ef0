// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/plans/plan_options.h"

#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <set>

#include "daemon/base/yaml_reader.h"
#include "daemon/cli/exit_code.h"
#include "daemon/command_line/number_checks.h"
#include "daemon/plan/clusters.h"
#include "daemon/plan/local_machine.h"
#include "daemon/plan/parallel_plan.h"
#include "daemon/plan/plan_messages.h"
#include "kernels/base/error.h"
#include "planner/plan/fusion.h"
#include "planner/rank_count.h"

namespace meshloom::cli {
namespace {

v1::ShardPolicy make_shard_policy(const std::string& name) {
  if (name == "dim0") return v1::SHARD_POLICY_DIM0;
  if (name == "largest_divisible") return v1::SHARD_POLICY_LARGEST_DIVISIBLE;
  throw CliError(kUsage,
                 fmt::format("--shard-policy must be dim0 or largest_divisible, got \"{}\"", name));
}

v1::ActivationCheckpoint make_checkpointing(const std::string& name) {
  if (name == "none") return v1::ACTIVATION_CHECKPOINT_NONE;
  if (name == "selective") return v1::ACTIVATION_CHECKPOINT_SELECTIVE;
  if (name == "full") return v1::ACTIVATION_CHECKPOINT_FULL;
  throw CliError(kUsage, fmt::format("--activation-checkpoint must be none, selective or full, "
                                     "got \"{}\"",
                                     name));
}

/// The cluster with the numbers that flags replace; none where none is given.
void add_cluster(const PlanOptions& options, v1::PlanQuery* query) {
  const bool changed = options.flops || options.bandwidth || options.link_bandwidth;
  if (options.cluster.empty() && !changed) return;
  const std::string name = options.cluster.empty() ? plan::kLocalCluster : options.cluster;
  v1::Cluster& cluster = *query->mutable_cluster();
  try {
    cluster = plan::read_cluster(name);
    plan::make_machine(cluster, name);
  } catch (const Error& error) {
    throw CliError(kUsage, fmt::format("--cluster: {}", error.what()));
  }
  if (cluster.name().empty()) cluster.set_name(name);
  if (options.flops) {
    if (cluster.has_bfloat16_flops())
      cluster.set_bfloat16_flops(cluster.bfloat16_flops() * *options.flops /
                                 cluster.float32_flops());
    cluster.set_float32_flops(*options.flops);
  }
  if (options.bandwidth) cluster.set_memory_bytes_per_second(*options.bandwidth);
  if (options.link_bandwidth) {
    if (!cluster.has_inter_host()) *cluster.mutable_inter_host() = cluster.intra_host();
    cluster.mutable_intra_host()->set_bytes_per_second(*options.link_bandwidth);
  }
}

}  // namespace

v1::PlanFile read_plan_file(const std::string& path, base::SourceLines* lines) {
  v1::PlanFile file;
  try {
    base::SourceLines read = base::read_yaml_file(path, &file);
    if (lines) *lines = std::move(read);
  } catch (const Error& error) {
    throw CliError(kUsage, error.what());
  }
  return file;
}

void add_model_option(CLI::App& command, PlanOptions& options) {
  command
      .add_option(
          "--model", options.model,
          "A preset (gpt2_124m), a config.json, or a Hugging Face folder; of the daemon also "
          "models/NAME")
      ->required();
}

void add_server_option(CLI::App& command, PlanOptions& options) {
  command.add_flag("--server-side", options.server_side,
                   "Let the daemon compute it, for a model that it can read and the ranks it has; "
                   "files are below its data dir then");
}

void add_mesh_options(CLI::App& command, PlanOptions& options) {
  command.add_option("--mesh", options.mesh, "Sizes of the mesh dims, such as dp=2,fsdp=2,tp=2");
  command.add_option("--plan", options.plan_file,
                     "A YAML file with mesh and plan, as in a job; flags win over it");
  command.add_flag("--sequence-parallel", options.sequence_parallel,
                   "Shard the residual stream's tokens over tp");
  command.add_option("--fusion", options.fusion,
                     fmt::format("Whether products of tp take their collectives along: {}",
                                 planner::kFusionModeNames));
  command.add_option("--shard-policy", options.shard_policy,
                     "fully_shard: dim0, or largest_divisible");
  command.add_flag("--no-reshard", options.no_reshard,
                   "fully_shard: keep parameters gathered between forward and backward");
}

void add_work_options(CLI::App& command, PlanOptions& options) {
  command.add_option("--seq", options.sequence, "Tokens of a sample; default: the model's context")
      ->check(command_line::positive());
  command.add_option("--micro-batch", options.micro_batch, "Samples a rank computes at once")
      ->check(command_line::positive());
  command
      .add_option("--global-batch", options.global_batch,
                  "Samples of an optimizer step over all ranks")
      ->check(command_line::positive());
  command.add_option("--dtype", options.dtype, "float32, bfloat16 or auto (what is faster there)");
  command.add_option("--activation-checkpoint", options.activation_checkpoint,
                     "none, selective or full");
  command.add_option("--optimizer", options.optimizer,
                     "adamw (default), adam, sgd or sgd_momentum");
}

void add_machine_options(CLI::App& command, PlanOptions& options) {
  command.add_option("--cluster", options.cluster,
                     fmt::format("A YAML file, or one of {}; default: local_cpu",
                                 fmt::join(plan::cluster_names(), ", ")));
  command.add_option("--flops", options.flops, "Replaces its rate of matrix products, per second")
      ->check(command_line::positive());
  command
      .add_option("--bandwidth", options.bandwidth, "Replaces its memory bandwidth, bytes a second")
      ->check(command_line::positive());
  command
      .add_option("--link-bandwidth", options.link_bandwidth,
                  "Replaces its bandwidth inside a host, bytes a second")
      ->check(command_line::positive());
  command.add_option("--memory", options.memory, "Memory a rank may use, such as 80GB or 24GiB")
      ->transform(command_line::size_with_unit());
}

planner::MeshSizes parse_mesh(const std::string& text) {
  planner::MeshSizes mesh;
  std::set<std::string> seen;
  const auto fail = [&](const std::string& what) -> CliError {
    return {kUsage, fmt::format("--mesh {}: {}", text, what)};
  };
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    int* size = name == "dp"     ? &mesh.dp
                : name == "fsdp" ? &mesh.fsdp
                : name == "cp"   ? &mesh.cp
                : name == "tp"   ? &mesh.tp
                                 : nullptr;
    if (size == nullptr || equals == std::string::npos)
      throw fail(
          fmt::format("\"{}\" is not of the form DIM=SIZE with a dim of dp, fsdp, cp, tp", part));
    if (!seen.insert(name).second) throw fail(name + " is given twice");
    const char* last = part.data() + part.size();
    const auto read = std::from_chars(part.data() + equals + 1, last, *size);
    if (read.ec != std::errc() || read.ptr != last || *size < 1)
      throw fail(fmt::format("the size of {} is not a whole number of at least 1", name));
  }
  if (!planner::rank_count(std::array{mesh.dp, mesh.fsdp, mesh.cp, mesh.tp}))
    throw fail("more than 2^31 - 1 ranks are too many");
  return mesh;
}

v1::ParallelPlan read_styles(const std::string& path) {
  v1::PlanFile file = read_plan_file(path);
  v1::ParallelPlan styles;
  styles.mutable_styles()->Swap(file.mutable_plan()->mutable_styles());
  file.mutable_plan()->clear_tensor_parallel();
  if (styles.styles().empty() || file.has_mesh() || file.plan().ByteSizeLong() > 0)
    throw CliError(kUsage, fmt::format("--styles {}: expected plan.styles alone, the search finds "
                                       "mesh and plan",
                                       path));
  return styles;
}

v1::PlanQuery make_query(const PlanOptions& options) {
  const v1::PlanFile file =
      options.plan_file.empty() ? v1::PlanFile() : read_plan_file(options.plan_file);
  v1::PlanQuery query;
  planner::MeshSizes mesh;
  if (!options.mesh.empty()) {
    mesh = parse_mesh(options.mesh);
  } else {
    try {
      mesh = plan::make_mesh_sizes(file.mesh());
    } catch (const Error& error) {
      throw CliError(kUsage, error.what());
    }
  }
  if (!options.mesh.empty() || file.has_mesh()) *query.mutable_mesh() = plan::to_message(mesh);
  v1::ParallelPlan& chosen = *query.mutable_plan();
  chosen = file.plan();
  if (options.no_reshard && query.mesh().fsdp() <= 1 && !chosen.fully_shard())
    throw CliError(kUsage, "--no-reshard is an option of fully_shard, and the mesh has no fsdp");
  if (options.sequence_parallel) chosen.set_sequence_parallel(true);
  if (!options.fusion.empty()) chosen.mutable_fusion()->set_mode(options.fusion);
  if (options.no_reshard) chosen.mutable_fully_shard_options()->set_reshard_after_forward(false);
  if (!options.shard_policy.empty())
    chosen.mutable_fully_shard_options()->set_policy(make_shard_policy(options.shard_policy));
  if (!options.activation_checkpoint.empty())
    chosen.set_activation_checkpoint(make_checkpointing(options.activation_checkpoint));
  if (!options.dtype.empty()) chosen.set_dtype(options.dtype);
  if (options.sequence) query.set_seq_len(*options.sequence);
  if (options.micro_batch) query.set_micro_batch_size(*options.micro_batch);
  if (options.global_batch) query.set_global_batch_size(*options.global_batch);
  query.set_optimizer(options.optimizer);
  if (options.memory) query.set_memory_limit_bytes(static_cast<std::int64_t>(*options.memory));
  add_cluster(options, &query);
  return query;
}

}  // namespace meshloom::cli
