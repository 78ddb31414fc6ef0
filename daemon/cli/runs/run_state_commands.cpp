// SPDX-License-Identifier: Apache-2.0
// What a run keeps under names: saved states, and weights on disk or in memory.
#include <fmt/format.h>

#include <memory>

#include "daemon/cli/key_value.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/runs/run_commands.h"
#include "daemon/cli/runs/run_verb.h"
#include "daemon/cli/transfers/download_command.h"
#include "daemon/command_line/number_checks.h"

namespace meshloom::cli {
namespace {

struct SaveStateOptions {
  std::string run;
  std::string name;
  bool overwrite = false;
  std::int64_t ttl_seconds = 0;
  std::vector<std::string> metadata;  ///< KEY=VALUE
};

struct LoadStateOptions {
  std::string run;
  std::string state;
  bool without_optimizer = false;
};

struct SaveWeightsOptions {
  std::string run;
  std::string name, dtype;
  bool memory = false;
};

struct RemovalOptions {
  std::string name;
};

ExitCode save_state(Client& client, bool json, const SaveStateOptions& options) {
  v1::SaveStateRequest request;
  request.set_name(options.name);
  request.set_overwrite(options.overwrite);
  request.set_ttl_seconds(options.ttl_seconds);
  for (const std::string& item : options.metadata) {
    const auto [key, value] = split_key_value(item);
    (*request.mutable_user_metadata())[key] = value;
  }
  return show_ended(json, carry_out(client, json, options.run, &v1::RunService::Stub::SaveState,
                                    std::move(request)));
}

ExitCode load_state(Client& client, bool json, const LoadStateOptions& options) {
  v1::LoadStateRequest request;
  request.set_state(options.state);
  request.set_without_optimizer(options.without_optimizer);
  return show_ended(json, carry_out(client, json, options.run, &v1::RunService::Stub::LoadState,
                                    std::move(request)));
}

ExitCode save_weights(Client& client, bool json, const SaveWeightsOptions& options) {
  v1::SaveWeightsRequest request;
  request.set_name(options.name);
  request.set_dtype(options.dtype);
  if (options.memory) request.set_storage(v1::WEIGHTS_STORAGE_MEMORY);
  return show_ended(json, carry_out(client, json, options.run, &v1::RunService::Stub::SaveWeights,
                                    std::move(request)));
}

template <typename Request, typename Response>
ExitCode remove_named(Client& client, bool json, const RemovalOptions& options,
                      RunMethod<Request, Response> method) {
  Request request;
  request.set_name(options.name);
  const Response response = client.call(client.runs(), method, request);
  if (json)
    print_json(response);
  else
    fmt::print("{}: deleted\n", options.name);
  return kOk;
}

ExitCode delete_state(Client& client, bool json, const RemovalOptions& options) {
  return remove_named(client, json, options, &v1::RunService::Stub::DeleteState);
}

ExitCode delete_weights(Client& client, bool json, const RemovalOptions& options) {
  return remove_named(client, json, options, &v1::RunService::Stub::DeleteWeights);
}

void add_save_state(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand("save-state", "Save weights, moments and step under a name");
  auto options = std::make_shared<SaveStateOptions>();
  add_target(*command, context, options->run);
  command->add_option("name", options->name, "Of the state, such as step-100")->required();
  command->add_flag("--overwrite", options->overwrite, "Take the place of one with this name");
  command
      ->add_option("--ttl", options->ttl_seconds,
                   "Seconds that it is kept for while a daemon runs; 0: until it is deleted")
      ->check(command_line::not_negative());
  command->add_option("--metadata", options->metadata, "KEY=VALUE, kept along; several times");
  command->footer(verb_footer("Example: meshloom run save-state my-run step-100 --ttl 86400"));
  set_action(*command, context, options, &save_state);
}

void add_load_state(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand(
      "load-state", "Go back to a saved state, of this run or another; gradients are dropped");
  auto options = std::make_shared<LoadStateOptions>();
  add_target(*command, context, options->run);
  command->add_option("state", options->state, "runs/RUN/states/NAME, as run show shows it")
      ->required();
  command->add_flag("--without-optimizer", options->without_optimizer,
                    "Its weights alone: moments and step begin anew");
  command->footer(
      verb_footer("Example: meshloom run load-state my-run runs/my-run/states/step-100"));
  set_action(*command, context, options, &load_state);
}

void add_save_weights(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand(
      "save-weights", "Keep the weights: as a Hugging Face folder at rank 0, or in memory");
  auto options = std::make_shared<SaveWeightsOptions>();
  add_target(*command, context, options->run);
  command->add_option("name", options->name, "Of the folder, below the run's")->required();
  command->add_option("--dtype", options->dtype, "float32 (the default), bfloat16 or float16");
  command->add_flag("--memory", options->memory,
                    "In the memory of the ranks, to be sampled from after later steps");
  command->footer(verb_footer("Example: meshloom run save-weights my-run policy-3 --memory"));
  set_action(*command, context, options, &save_weights);
}

void add_removal(CLI::App& runs, CommandContext& context, const char* name, const char* text,
                 const char* form, const char* example,
                 ExitCode (*action)(Client&, bool json, const RemovalOptions&)) {
  auto* command = runs.add_subcommand(name, text);
  auto options = std::make_shared<RemovalOptions>();
  command->add_option("name", options->name, form)->required();
  add_needed_token(*command, context);
  command->footer(fmt::format("Example: meshloom run {} {}", name, example));
  set_action(*command, context, options, action);
}

}  // namespace

void add_run_states(CLI::App& runs, CommandContext& context) {
  add_save_state(runs, context);
  add_load_state(runs, context);
  add_removal(runs, context, "delete-state", "Remove a saved state, with its files",
              "runs/RUN/states/NAME", "runs/my-run/states/step-100", &delete_state);
  add_save_weights(runs, context);
  auto* download =
      runs.add_subcommand("download-weights", "Copy weights on disk into a new folder");
  add_download(*download, context, "runs/RUN/weights/NAME, as run show shows it");
  add_optional_token(*download, context);
  add_removal(runs, context, "delete-weights", "Let saved weights go, with their files",
              "runs/RUN/weights/NAME", "runs/my-run/weights/policy-3", &delete_weights);
}

}  // namespace meshloom::cli
