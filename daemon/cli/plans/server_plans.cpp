// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/plans/server_plans.h"
#include "daemon/cli/daemon_commands.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/base/message_printer.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/plans/plan_commands.h"
#include "daemon/cli/plans/plan_options.h"
#include "daemon/cli/plans/plan_report.h"
#include "daemon/cli/plans/plan_text.h"

namespace meshloom::cli {
namespace {

constexpr std::chrono::minutes kSearchDeadline{5};

struct CreatePlanOptions : PlanOptions {
  bool validate_only = false;
  bool shared = false;
};

void print_plan(const v1::Plan& plan) {
  print_line("plan", short_name(plan.name()));
  print_line("mesh", mesh_text(plan.mesh()));
  print_line("says", plan_text(plan.plan()));
  print_line("for", base::to_json(plan.model()).dump());
  for (const std::string& user : plan.users()) print_line("used by", user);
  print_line("made by", plan.client());
  print_line("created", plan.create_time());
}

ExitCode create_plan(Client& client, bool json, const CreatePlanOptions& options) {
  v1::CreatePlanRequest request;
  request.set_request_id(make_request_id());
  *request.mutable_model() = server_model(options.model);
  *request.mutable_query() = make_query(options);
  request.set_validate_only(options.validate_only);
  request.set_shared(options.shared);
  const auto response = client.call(client.plans(), &v1::PlanService::Stub::CreatePlan, request);
  if (json) {
    print_json(response);
    return kOk;
  }
  print_plan(response.plan());
  print_estimate(options.model, response.estimate());
  return kOk;
}

ExitCode list_plans(Client& client, const CommandContext& context) {
  v1::ListPlansRequest request;
  request.set_all(context.all);
  const auto all = client.list(client.plans(), &v1::PlanService::Stub::ListPlans, request);
  if (context.json) {
    print_json(all);
    return kOk;
  }
  constexpr std::size_t kShown = 12;  // digits, which tell plans apart
  std::vector<std::vector<std::string>> rows{{"plan", "mesh", "says", "created"}};
  for (const auto& plan : all.plans())
    rows.push_back({short_name(plan.name()).substr(0, kShown), mesh_text(plan.mesh()),
                    plan_text(plan.plan()), plan.create_time()});
  if (context.all) {
    rows[0].push_back("owner");
    for (int i = 0; i < all.plans_size(); ++i)
      rows[static_cast<std::size_t>(i) + 1].push_back(owner_text(all.plans(i).owner()));
  }
  print_table(rows);
  return kOk;
}

ExitCode get(Client& client, bool json, const std::string& name) {
  v1::GetPlanRequest request;
  request.set_name(name);
  const auto plan = client.call(client.plans(), &v1::PlanService::Stub::GetPlan, request).plan();
  if (json)
    print_json(plan);
  else
    print_plan(plan);
  return kOk;
}

ExitCode remove_plan(Client& client, bool json, const std::string& name) {
  v1::DeletePlanRequest request;
  request.set_request_id(make_request_id());
  request.set_name(name);
  const auto response = client.call(client.plans(), &v1::PlanService::Stub::DeletePlan, request);
  if (json)
    print_json(response);
  else
    fmt::print("{}: deleted\n", name);
  return kOk;
}

}  // namespace

v1::ModelSource server_model(const std::string& text) {
  v1::ModelSource source;
  if (text.starts_with("models/"))
    source.set_name(text);
  else if (text.ends_with(".json"))
    source.set_config(text);
  else if (text.find('/') != std::string::npos)
    source.set_hf_folder(text);
  else
    source.set_preset(text);
  return source;
}

v1::PlanDescription describe_plan(Client& client, const std::string& model,
                                  const v1::PlanQuery& query, std::int64_t rank) {
  v1::DescribePlanRequest request;
  *request.mutable_model() = server_model(model);
  *request.mutable_query() = query;
  request.set_rank(rank);
  return client.call(client.plans(), &v1::PlanService::Stub::DescribePlan, request).description();
}

v1::PlanEstimate estimate_plan(Client& client, const std::string& model,
                               const v1::PlanQuery& query) {
  v1::EstimatePlanRequest request;
  *request.mutable_model() = server_model(model);
  *request.mutable_query() = query;
  return client.call(client.plans(), &v1::PlanService::Stub::EstimatePlan, request).estimate();
}

v1::PlanSearch search_plans(Client& client, const std::string& model,
                            const v1::PlanSearchQuery& query) {
  v1::SearchPlansRequest request;
  *request.mutable_model() = server_model(model);
  *request.mutable_query() = query;
  return client
      .call(client.plans(), &v1::PlanService::Stub::SearchPlans, request,
            {.deadline = kSearchDeadline})
      .search();
}

void add_stored_plans(CLI::App& plan, CommandContext& context) {
  auto* create_command = plan.add_subcommand(
      "create", "Check a plan against a model and the daemon's ranks, and let the daemon keep it");
  auto options = std::make_shared<CreatePlanOptions>();
  add_model_option(*create_command, *options);
  add_mesh_options(*create_command, *options);
  add_work_options(*create_command, *options);
  add_machine_options(*create_command, *options);
  create_command->add_flag("--validate-only", options->validate_only, "Check it and keep none");
  create_command->add_flag("--shared", options->shared,
                           "Let everybody use it; you alone delete it");
  create_command->footer(
      "Example: meshloom plan create --model models/my-llama --mesh fsdp=2\n"
      "A job names it as run.plan.name, by its first 8 digits or more.");
  create_command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return create_plan(client, context.json, *options);
    };
  });
  auto* list_command = plan.add_subcommand("list", "All plans of the daemon");
  add_all_flag(*list_command, context);
  list_command->callback([&context] {
    context.action = [&context](Client& client) { return list_plans(client, context); };
  });
  const auto with_name = [&](const char* command, const char* help, auto action) {
    auto* added = plan.add_subcommand(command, help);
    auto name = std::make_shared<std::string>();
    added->add_option("plan", *name, "Its name, or the first 8 digits or more")->required();
    added->callback([&context, name, action] {
      context.action = [&context, name, action](Client& client) {
        return action(client, context.json, *name);
      };
    });
  };
  with_name("get", "One plan of the daemon in full", get);
  with_name("delete", "Delete a plan of the daemon that nothing uses", remove_plan);
}

}  // namespace meshloom::cli
