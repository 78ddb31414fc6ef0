// SPDX-License-Identifier: Apache-2.0
// plan show, estimate and search: computed here without a daemon, or there for its models and
// ranks.
#include <fmt/format.h>

#include <memory>

#include "daemon/base/files.h"
#include "daemon/base/message_printer.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/plans/model_config_reader.h"
#include "daemon/cli/plans/plan_commands.h"
#include "daemon/cli/plans/plan_options.h"
#include "daemon/cli/plans/plan_report.h"
#include "daemon/cli/plans/server_plans.h"
#include "daemon/command_line/number_checks.h"
#include "daemon/plan/plan_query.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

struct ShowOptions {
  PlanOptions plan;
  std::int64_t rank = 0;
};

struct SearchOptions {
  PlanOptions plan;
  std::optional<std::int64_t> ranks;
  std::optional<int> max_tp;
  std::string styles_file;
  std::string write_file;
  int top = 10;
  int rejected = 10;
};

/// The planner's refusals are usage errors here.
template <typename Answer>
auto checked(const Answer& answer) {
  try {
    return answer();
  } catch (const Error& error) {
    throw CliError(kUsage, error.what());
  }
}

ExitCode show_placements(Client& client, bool json, const ShowOptions& options) {
  const v1::PlanQuery query = make_query(options.plan);
  const v1::PlanDescription description =
      options.plan.server_side
          ? describe_plan(client, options.plan.model, query, options.rank)
          : checked([&] {
              return plan::describe_plan(options.plan.model, read_model_config(options.plan.model),
                                         query, options.rank);
            });
  if (json) {
    print_json(description);
  } else {
    print_description(description);
  }
  return kOk;
}

ExitCode estimate(Client& client, bool json, const PlanOptions& options) {
  const v1::PlanQuery query = make_query(options);
  const v1::PlanEstimate estimate =
      options.server_side
          ? estimate_plan(client, options.model, query)
          : checked([&] { return plan::estimate_plan(read_model_config(options.model), query); });
  if (json) {
    print_json(estimate);
  } else {
    print_estimate(options.model, estimate);
  }
  return kOk;
}

/// Mesh and plan of an estimate, as --plan and a job's run take them.
void write_plan(const std::string& path, const v1::PlanEstimate& estimate) {
  v1::PlanFile plan;
  *plan.mutable_mesh() = estimate.mesh();
  *plan.mutable_plan() = estimate.plan();
  base::ReplacementFile file(path, 0644);
  file.write(base::to_yaml(plan));
  file.commit();
}

ExitCode search(Client& client, bool json, const SearchOptions& options) {
  v1::PlanSearchQuery query;
  *query.mutable_query() = make_query(options.plan);
  if (!options.styles_file.empty())
    query.mutable_query()->mutable_plan()->MergeFrom(read_styles(options.styles_file));
  if (options.ranks) query.set_ranks(*options.ranks);
  if (options.max_tp) query.set_max_tensor_parallel(*options.max_tp);
  query.set_most_plans(options.top);
  query.set_most_rejected(options.rejected);
  if (!options.plan.server_side && !options.ranks)
    throw CliError(kUsage, "--ranks is required without --server-side");
  const v1::PlanSearch found =
      options.plan.server_side ? search_plans(client, options.plan.model, query) : checked([&] {
        return plan::search_plans(options.plan.model, read_model_config(options.plan.model), query);
      });
  if (json) {
    print_json(found);
  } else {
    print_search(found);
  }
  if (found.plans().empty()) return kFailed;
  if (!options.write_file.empty())
    checked([&] { return write_plan(options.write_file, found.plans(0)); });
  return found.meshes_that_fit() > 0 ? kOk : kFailed;
}

void add_show(CLI::App& plan, CommandContext& context) {
  auto* command = plan.add_subcommand(
      "show", "How a model lies on a mesh: placements, shapes on a rank, collectives of a step");
  auto options = std::make_shared<ShowOptions>();
  add_model_option(*command, options->plan);
  add_server_option(*command, options->plan);
  add_mesh_options(*command, options->plan);
  add_work_options(*command, options->plan);
  command->add_option("--rank", options->rank, "Whose shapes to show")->capture_default_str();
  command->footer("Example: meshloom plan show --model gpt2_124m --mesh fsdp=2,tp=3");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return show_placements(client, context.json, *options);
    };
  });
}

void add_estimate(CLI::App& plan, CommandContext& context) {
  auto* command =
      plan.add_subcommand("estimate", "Memory of a rank, bytes on the wire and seconds of a step");
  auto options = std::make_shared<PlanOptions>();
  add_model_option(*command, *options);
  add_server_option(*command, *options);
  add_mesh_options(*command, *options);
  add_work_options(*command, *options);
  add_machine_options(*command, *options);
  command->footer(
      "Example: meshloom plan estimate --model llama3_8b --mesh fsdp=8 --cluster h100 "
      "--activation-checkpoint selective");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return estimate(client, context.json, *options);
    };
  });
}

void add_search(CLI::App& plan, CommandContext& context) {
  auto* command = plan.add_subcommand(
      "search", "The best meshes and plans for a number of ranks; exit code 1 where none fits");
  auto options = std::make_shared<SearchOptions>();
  add_model_option(*command, options->plan);
  add_server_option(*command, options->plan);
  command
      ->add_option("--ranks", options->ranks,
                   "Ranks in all; with --server-side the daemon's by default")
      ->check(command_line::positive());
  add_work_options(*command, options->plan);
  add_machine_options(*command, options->plan);
  command->add_option("--max-tp", options->max_tp, "Largest tp; default: the model's heads")
      ->check(command_line::positive());
  command->add_option("--styles", options->styles_file,
                      "A YAML file with plan.styles, tried on tp besides the model's default ones");
  command->add_option("--write", options->write_file,
                      "A YAML file to write the best plan to, for --plan");
  command->add_option("--top", options->top, "Plans to show")
      ->check(command_line::positive())
      ->capture_default_str();
  command->add_option("--rejected", options->rejected, "Meshes that do not fit to show")
      ->check(command_line::not_negative())
      ->capture_default_str();
  command->footer(
      "Example: meshloom plan search --model llama3_8b --ranks 64 --cluster h100 --memory 80GB "
      "--global-batch 512");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return search(client, context.json, *options);
    };
  });
}

}  // namespace

void add_plan_commands(CLI::App& app, CommandContext& context) {
  auto* plan = app.add_subcommand(
      "plan",
      "Meshes and plans for a model: show, estimate, search, attention, which need no daemon; and "
      "the daemon's: create, list, get, delete");
  plan->require_subcommand(1);
  add_show(*plan, context);
  add_estimate(*plan, context);
  add_search(*plan, context);
  add_plan_attention(*plan, context);
  add_stored_plans(*plan, context);
}

}  // namespace meshloom::cli
