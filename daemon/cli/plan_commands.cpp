// SPDX-License-Identifier: Apache-2.0
// plan show, estimate and search: nothing here needs a daemon.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "daemon/cli/commands.h"
#include "daemon/cli/model_shape_reader.h"
#include "daemon/cli/output.h"
#include "daemon/cli/plan_messages.h"
#include "daemon/cli/plan_options.h"
#include "daemon/cli/plan_report.h"
#include "kernels/base/error.h"
#include "planner/estimate/parameter_layout.h"
#include "planner/estimate/rotate_choice.h"

namespace meshloom::cli {
namespace {

struct ShowOptions {
  PlanOptions plan;
  std::int64_t rank = 0;
};

struct SearchOptions {
  PlanOptions plan;
  std::int64_t ranks = 0;
  int max_tp = 0;
  std::string styles_file;
  int top = 10;
  int rejected = 10;
};

std::int64_t memory_limit(const PlanOptions& options, const planner::Machine& machine,
                          std::int64_t ranks) {
  return options.memory > 0 ? static_cast<std::int64_t>(options.memory)
                            : planner::share_of_rank(machine, ranks).memory_bytes;
}

v1::ParameterPlacement to_message(const planner::ParameterLayout& p) {
  v1::ParameterPlacement m;
  m.set_name(p.name);
  m.set_count(p.count);
  m.mutable_shape()->Add(p.shape.begin(), p.shape.end());
  for (const planner::Placement& placement : p.placements)
    m.add_placements(planner::to_string(placement));
  m.mutable_local_shape()->Add(p.local.begin(), p.local.end());
  if (p.placements[3].is_shard() && (p.groups > 1 || p.unit > 1))
    m.set_units(p.groups > 1 ? fmt::format("{} x {}", p.groups, p.unit) : std::to_string(p.unit));
  return m;
}

ExitCode show(bool json, const ShowOptions& options) {
  const planner::ModelShape model = read_model_shape(options.plan.model);
  const planner::Machine machine = make_machine(options.plan);
  const auto [mesh, given] = make_mesh_and_plan(options.plan, model, machine);
  const planner::Workload work = make_workload(options.plan, model, mesh);
  if (const auto reason = planner::why_invalid(model, mesh, given, work))
    throw CliError(kUsage, *reason);
  const planner::ParallelPlan plan =
      planner::resolve_rotate(given, model, mesh, work, machine.topology.ranks_per_host);
  if (options.rank < 0 || options.rank >= mesh.ranks())
    throw CliError(kUsage, fmt::format("--rank {} is not one of the mesh's {} ranks", options.rank,
                                       mesh.ranks()));
  v1::PlanDescription d;
  d.set_model(options.plan.model);
  *d.mutable_mesh() = cli::to_message(mesh);
  *d.mutable_plan() = cli::to_message(plan);
  d.set_rank(options.rank);
  const planner::MeshLayout layout = planner::mesh_layout(mesh);
  for (const planner::MeshDim& dim : layout.dims()) d.add_mesh_dims(dim.name);
  std::int64_t local = 0;
  for (const planner::ParameterLayout& p : planner::parameter_layouts(
           model, mesh, plan, layout.coordinates(static_cast<int>(options.rank)))) {
    *d.add_parameters() = to_message(p);
    local += p.count * numel(p.local);
  }
  d.set_parameter_count(planner::parameter_count(model));
  d.set_local_parameter_count(local);
  for (const planner::Traffic& t :
       planner::step_traffic(planner::local_model(model, mesh, plan, work)))
    *d.add_traffic() = cli::to_message(t);
  if (json) {
    print_json(d);
  } else {
    print_description(d);
  }
  return kOk;
}

ExitCode estimate(bool json, const PlanOptions& options) {
  const planner::ModelShape model = read_model_shape(options.model);
  const planner::Machine machine = make_machine(options);
  const auto [mesh, plan] = make_mesh_and_plan(options, model, machine);
  const planner::Workload work = make_workload(options, model, mesh);
  const v1::PlanEstimate message =
      cli::to_message(planner::estimate(model, mesh, plan, work, machine), machine.name,
                      memory_limit(options, machine, mesh.ranks()));
  if (json) {
    print_json(message);
  } else {
    print_estimate(options.model, message);
  }
  return kOk;
}

planner::SearchRequest make_request(const SearchOptions& options, const planner::ModelShape& model,
                                    const planner::Machine& machine) {
  const PlanOptions& o = options.plan;
  planner::SearchRequest request;
  request.ranks = options.ranks;
  request.memory_limit = memory_limit(o, machine, options.ranks);
  request.global_batch = o.global_batch > 0 ? o.global_batch : options.ranks;
  request.sequence = o.sequence > 0 ? o.sequence : model.positions;
  request.micro_batch = o.micro_batch;
  request.dtype = make_dtype(o.dtype, machine);
  request.optimizer = make_optimizer_state(o.optimizer);
  if (!o.activation_checkpoint.empty())
    request.checkpointing = make_checkpointing(o.activation_checkpoint);
  request.max_tensor_parallel = options.max_tp;
  if (!options.styles_file.empty()) request.styles = read_styles(options.styles_file, model);
  return request;
}

v1::PlanSearch to_message(const planner::SearchResult& result, const SearchOptions& options,
                          const planner::SearchRequest& request, const std::string& cluster) {
  v1::PlanSearch m;
  m.set_model(options.plan.model);
  m.set_ranks(request.ranks);
  m.set_memory_limit_bytes(request.memory_limit);
  m.set_cluster(cluster);
  m.set_plans_tried(result.plans_tried);
  m.set_meshes_that_fit(static_cast<std::int64_t>(result.candidates.size()));
  m.set_rejected_count(static_cast<std::int64_t>(result.rejected.size()));
  const auto limit = [](std::size_t size, int most) {
    return std::min(size, static_cast<std::size_t>(most));
  };
  for (std::size_t i = 0; i < limit(result.candidates.size(), options.top); ++i)
    *m.add_plans() = cli::to_message(result.candidates[i].estimate, cluster, request.memory_limit);
  for (std::size_t i = 0; i < limit(result.rejected.size(), options.rejected); ++i) {
    v1::RejectedMesh& rejected = *m.add_rejected();
    *rejected.mutable_mesh() = cli::to_message(result.rejected[i].mesh);
    rejected.set_reason(result.rejected[i].reason);
    rejected.set_least_memory_bytes(result.rejected[i].least_memory);
  }
  return m;
}

ExitCode search(bool json, const SearchOptions& options) {
  const planner::ModelShape model = read_model_shape(options.plan.model);
  const planner::Machine machine = make_machine(options.plan);
  const planner::SearchRequest request = make_request(options, model, machine);
  const v1::PlanSearch message =
      to_message(planner::search_plans(model, request, machine), options, request, machine.name);
  if (json) {
    print_json(message);
  } else {
    print_search(message);
  }
  return message.meshes_that_fit() > 0 ? kOk : kFailed;
}

/// The planner's refusals are usage errors here.
template <typename Action>
ExitCode checked(const Action& action) {
  try {
    return action();
  } catch (const Error& error) {
    throw CliError(kUsage, error.what());
  }
}

void add_show(CLI::App& plan, CommandContext& context) {
  auto* command = plan.add_subcommand(
      "show", "How a model lies on a mesh: placements, shapes on a rank, collectives of a step");
  auto options = std::make_shared<ShowOptions>();
  add_model_option(*command, options->plan);
  add_mesh_options(*command, options->plan);
  add_work_options(*command, options->plan);
  command->add_option("--rank", options->rank, "Whose shapes to show")->capture_default_str();
  command->footer("Example: meshloom plan show --model gpt2_124m --mesh fsdp=2,tp=3");
  command->callback([&context, options] {
    context.action = [&context, options](Client&) {
      return checked([&] { return show(context.json, *options); });
    };
  });
}

void add_estimate(CLI::App& plan, CommandContext& context) {
  auto* command =
      plan.add_subcommand("estimate", "Memory of a rank, bytes on the wire and seconds of a step");
  auto options = std::make_shared<PlanOptions>();
  add_model_option(*command, *options);
  add_mesh_options(*command, *options);
  add_work_options(*command, *options);
  add_machine_options(*command, *options);
  command->footer(
      "Example: meshloom plan estimate --model llama3_8b --mesh fsdp=8 --cluster h100 "
      "--activation-checkpoint selective");
  command->callback([&context, options] {
    context.action = [&context, options](Client&) {
      return checked([&] { return estimate(context.json, *options); });
    };
  });
}

void add_search(CLI::App& plan, CommandContext& context) {
  auto* command = plan.add_subcommand(
      "search", "The best meshes and plans for a number of ranks; exit code 1 where none fits");
  auto options = std::make_shared<SearchOptions>();
  add_model_option(*command, options->plan);
  command->add_option("--ranks", options->ranks, "Ranks in all")
      ->required()
      ->check(CLI::PositiveNumber);
  add_work_options(*command, options->plan);
  add_machine_options(*command, options->plan);
  command->add_option("--max-tp", options->max_tp, "Largest tp; default: the model's heads")
      ->check(CLI::PositiveNumber);
  command->add_option("--styles", options->styles_file,
                      "A YAML file with plan.styles, tried on tp besides the model's default ones");
  command->add_option("--top", options->top, "Plans to show")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--rejected", options->rejected, "Meshes that do not fit to show")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->footer(
      "Example: meshloom plan search --model llama3_8b --ranks 64 --cluster h100 --memory 80GB "
      "--global-batch 512");
  command->callback([&context, options] {
    context.action = [&context, options](Client&) {
      return checked([&] { return search(context.json, *options); });
    };
  });
}

}  // namespace

void add_plan_commands(CLI::App& app, CommandContext& context) {
  auto* plan = app.add_subcommand(
      "plan", "Meshes and plans for a model: show, estimate, search, attention; needs no daemon");
  plan->require_subcommand(1);
  add_show(*plan, context);
  add_estimate(*plan, context);
  add_search(*plan, context);
  add_plan_attention(*plan, context);
}

}  // namespace meshloom::cli
