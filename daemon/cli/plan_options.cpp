// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/plan_options.h"

#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <set>

#include "daemon/base/yaml_reader.h"
#include "daemon/cli/clusters.h"
#include "daemon/cli/exit_code.h"
#include "daemon/plan/parallel_plan.h"
#include "kernels/base/error.h"
#include "planner/estimate/styled_model.h"
#include "planner/rank_count.h"

namespace meshloom::cli {
namespace {

bool fits(const planner::MeshSizes& mesh) {
  return planner::rank_count(std::array{mesh.dp, mesh.fsdp, mesh.cp, mesh.tp}).has_value();
}

planner::ShardPolicy make_shard_policy(const std::string& name) {
  if (name == "dim0") return planner::ShardPolicy::kDim0;
  if (name == "largest_divisible") return planner::ShardPolicy::kLargestDivisible;
  throw CliError(kUsage,
                 fmt::format("--shard-policy must be dim0 or largest_divisible, got \"{}\"", name));
}

/// What a plan file asks for and no estimate knows is a usage error.
template <typename Read>
auto from_file(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw CliError(kUsage, error.what());
  }
}

/// A mesh that shards and a plan that says not to; an option for what is not there.
void check_against_mesh(const PlanOptions& options, const v1::ParallelPlan& plan,
                        const planner::MeshSizes& mesh) {
  if (plan.has_tensor_parallel() && !plan.tensor_parallel() && mesh.tp > 1)
    throw CliError(kUsage, fmt::format("plan.tensor_parallel is false, but tp is {}", mesh.tp));
  if (plan.has_fully_shard() && !plan.fully_shard() && mesh.fsdp > 1)
    throw CliError(kUsage, fmt::format("plan.fully_shard is false, but fsdp is {}", mesh.fsdp));
  if (options.no_reshard && mesh.fsdp <= 1 && !plan.fully_shard())
    throw CliError(kUsage, "--no-reshard is an option of fully_shard, and the mesh has no fsdp");
}

/// A pattern that matches nothing is a mistake of the file.
void check_patterns(const planner::ParallelPlan& plan, const planner::ModelShape& model) {
  const std::vector<std::string> texts = planner::unmatched_styles(model, plan);
  if (!texts.empty()) throw CliError(kUsage, "plan.styles: " + texts.front());
  if (plan.shards.choices.empty()) return;
  try {
    planner::shard_options(plan.shards, planner::parameter_names(model));
  } catch (const Error& error) {
    throw CliError(kUsage, fmt::format("plan.fully_shard_options.choices: {}", error.what()));
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
      .add_option("--model", options.model,
                  "A preset (gpt2_124m), a config.json, or a Hugging Face folder")
      ->required();
}

void add_mesh_options(CLI::App& command, PlanOptions& options) {
  command.add_option("--mesh", options.mesh, "Sizes of the mesh dims, such as dp=2,fsdp=2,tp=2");
  command.add_option("--plan", options.plan_file,
                     "A YAML file with mesh and plan, as in a job; flags win over it");
  command.add_flag("--sequence-parallel", options.sequence_parallel,
                   "Shard the residual stream's tokens over tp");
  command.add_option("--shard-policy", options.shard_policy,
                     "fully_shard: dim0, or largest_divisible");
  command.add_flag("--no-reshard", options.no_reshard,
                   "fully_shard: keep parameters gathered between forward and backward");
}

void add_work_options(CLI::App& command, PlanOptions& options) {
  command.add_option("--seq", options.sequence, "Tokens of a sample; default: the model's context")
      ->check(CLI::PositiveNumber);
  command.add_option("--micro-batch", options.micro_batch, "Samples a rank computes at once")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--global-batch", options.global_batch,
                  "Samples of an optimizer step over all ranks")
      ->check(CLI::PositiveNumber);
  command.add_option("--dtype", options.dtype, "float32, bfloat16 or auto (what is faster there)");
  command.add_option("--activation-checkpoint", options.activation_checkpoint,
                     "none, selective or full");
  command.add_option("--optimizer", options.optimizer, "adamw, adam, sgd or sgd_momentum")
      ->capture_default_str();
}

void add_machine_options(CLI::App& command, PlanOptions& options) {
  command
      .add_option("--cluster", options.cluster,
                  fmt::format("A YAML file, or one of {}", fmt::join(cluster_names(), ", ")))
      ->capture_default_str();
  command.add_option("--flops", options.flops, "Replaces its rate of matrix products, per second")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--bandwidth", options.bandwidth, "Replaces its memory bandwidth, bytes a second")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--link-bandwidth", options.link_bandwidth,
                  "Replaces its bandwidth inside a host, bytes a second")
      ->check(CLI::PositiveNumber);
  command.add_option("--memory", options.memory, "Memory a rank may use, such as 80GB or 24GiB")
      ->transform(CLI::AsSizeValue(true));
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
  if (!fits(mesh)) throw fail("more than 2^31 - 1 ranks are too many");
  return mesh;
}

DType make_dtype(const std::string& name, const planner::Machine& machine) {
  if (name.empty() || name == "auto")
    return machine.bfloat16_flops > machine.float32_flops ? DType::kBFloat16 : DType::kFloat32;
  if (name == "float32") return DType::kFloat32;
  if (name == "bfloat16") return DType::kBFloat16;
  throw CliError(kUsage, fmt::format("dtype must be float32, bfloat16 or auto, got \"{}\"", name));
}

planner::ActivationCheckpoint make_checkpointing(const std::string& name) {
  if (name == "none") return planner::ActivationCheckpoint::kNone;
  if (name == "selective") return planner::ActivationCheckpoint::kSelective;
  if (name == "full") return planner::ActivationCheckpoint::kFull;
  throw CliError(kUsage, fmt::format("--activation-checkpoint must be none, selective or full, "
                                     "got \"{}\"",
                                     name));
}

planner::OptimizerState make_optimizer_state(const std::string& name) {
  if (name == "adamw" || name == "adam") return planner::OptimizerState::kAdam;
  if (name == "sgd") return planner::OptimizerState::kSgd;
  if (name == "sgd_momentum") return planner::OptimizerState::kSgdMomentum;
  throw CliError(
      kUsage,
      fmt::format("--optimizer must be adamw, adam, sgd or sgd_momentum, got \"{}\"", name));
}

planner::StylePlan read_styles(const std::string& path, const planner::ModelShape& model) {
  v1::PlanFile file = read_plan_file(path);
  const planner::ParallelPlan plan =
      from_file([&] { return plan::read_parallel_plan(file.plan(), {}, "plan"); });
  check_patterns(plan, model);
  file.mutable_plan()->clear_styles();
  file.mutable_plan()->clear_tensor_parallel();
  if (plan.styles.empty() || file.has_mesh() || file.plan().ByteSizeLong() > 0)
    throw CliError(kUsage, fmt::format("--styles {}: expected plan.styles alone, the search finds "
                                       "mesh and plan",
                                       path));
  return plan.styles;
}

MeshAndPlan make_mesh_and_plan(const PlanOptions& options, const planner::ModelShape& model,
                               const planner::Machine& machine) {
  MeshAndPlan result;
  std::string dtype = options.dtype;
  const v1::PlanFile file =
      options.plan_file.empty() ? v1::PlanFile() : read_plan_file(options.plan_file);
  result.mesh = options.mesh.empty() ? from_file([&] { return plan::make_mesh_sizes(file.mesh()); })
                                     : parse_mesh(options.mesh);
  check_against_mesh(options, file.plan(), result.mesh);
  result.plan =
      from_file([&] { return plan::read_parallel_plan(file.plan(), result.mesh, "plan"); });
  planner::ParallelPlan& plan = result.plan;
  check_patterns(plan, model);
  if (options.sequence_parallel) plan.sequence_parallel = true;
  if (options.no_reshard) plan.shards.reshard_after_forward = false;
  if (!options.shard_policy.empty()) plan.shards.policy = make_shard_policy(options.shard_policy);
  if (!options.activation_checkpoint.empty())
    plan.checkpointing = make_checkpointing(options.activation_checkpoint);
  if (dtype.empty()) dtype = file.plan().dtype();
  plan.dtype = make_dtype(dtype, machine);
  return result;
}

planner::Workload make_workload(const PlanOptions& options, const planner::ModelShape& model,
                                const planner::MeshSizes& mesh) {
  planner::Workload work;
  work.sequence = options.sequence > 0 ? options.sequence : model.positions;
  work.micro_batch = options.micro_batch > 0 ? options.micro_batch : 1;
  work.optimizer = make_optimizer_state(options.optimizer);
  work.global_batch = options.global_batch > 0
                          ? options.global_batch
                          : work.micro_batch * std::int64_t{mesh.dp} * mesh.fsdp;
  return work;
}

planner::Machine make_machine(const PlanOptions& options) {
  planner::Machine machine = load_cluster(options.cluster);
  if (options.flops > 0.0) {
    machine.bfloat16_flops *= options.flops / machine.float32_flops;
    machine.float32_flops = options.flops;
  }
  if (options.bandwidth > 0.0) machine.memory_bytes_per_second = options.bandwidth;
  if (options.link_bandwidth > 0.0)
    machine.topology.intra_host.bytes_per_second = options.link_bandwidth;
  return machine;
}

}  // namespace meshloom::cli
