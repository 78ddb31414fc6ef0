// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "daemon/base/message_printer.h"
#include "daemon/base/states.h"
#include "daemon/cli/daemon_commands.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/plans/plan_text.h"
#include "daemon/cli/runs/operation_output.h"
#include "daemon/cli/runs/run_commands.h"
#include "daemon/cli/runs/run_source.h"
#include "daemon/cli/runs/run_verb.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

struct CreateRunOptions {
  std::string file, name, request_id, token_file;
  std::vector<std::string> settings;
};

RunSource read_source(const CreateRunOptions& options) {
  RunSource source = RunSource::read(options.file);
  if (!source.left_out.empty())
    fmt::print(stderr,
               "note: {} is a job's file: a run takes its model, mesh, plan and optimizer; left "
               "out: {}\n",
               source.file, fmt::join(source.left_out, ", "));
  if (!options.name.empty()) source.spec.set_name(options.name);
  for (const std::string& text : options.settings) source.set(text);
  return source;
}

ExitCode create_run(Client& client, bool json, const CreateRunOptions& options) {
  v1::CreateRunRequest request;
  request.set_request_id(options.request_id.empty() ? make_request_id() : options.request_id);
  const RunSource source = read_source(options);
  *request.mutable_spec() = source.spec;
  std::optional<NewTokenFile> token_file;
  if (!options.token_file.empty()) token_file.emplace(options.token_file);
  v1::CreateRunResponse made;
  try {
    made = client.call(client.runs(), &v1::RunService::Stub::CreateRun, request);
  } catch (const CliError& error) {
    throw CliError(error.code(), source.place_of(error.details()) + error.what(), error.details());
  }
  for (const std::string& warning : made.warnings()) fmt::print(stderr, "warning: {}\n", warning);
  if (token_file) {
    token_file->write(made.token());
    made.clear_token();
  }
  if (json) {
    print_json(made);
  } else {
    print_line("run", short_name(made.run().name()));
    print_line("token", made.token().empty() ? "in " + options.token_file : made.token());
    print_line("waits", made.run().wait().reason());
  }
  return kOk;
}

ExitCode list_runs(Client& client, const CommandContext& context) {
  v1::ListRunsRequest request;
  request.set_all(context.all);
  const auto all = client.list(client.runs(), &v1::RunService::Stub::ListRuns, request);
  if (context.json) {
    print_json(all);
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{
      {"run", "state", "client", "epoch", "step", "next", "states", "created"}};
  for (const auto& run : all.runs())
    rows.push_back({short_name(run.name()), state_name(run.state()), run.client(),
                    std::to_string(run.epoch()), std::to_string(run.step()),
                    std::to_string(run.next_seq()), std::to_string(run.saved_count()),
                    run.create_time()});
  if (context.all) {
    rows[0].push_back("owner");
    for (int i = 0; i < all.runs_size(); ++i)
      rows[static_cast<std::size_t>(i) + 1].push_back(owner_text(all.runs(i).owner()));
  }
  print_table(rows);
  return kOk;
}

std::string state_text(const v1::SavedState& state) {
  std::string text = fmt::format("{}, step {}, next number {}, {}", state.name(), state.step(),
                                 state.next_seq(), state.create_time());
  if (state.ttl_seconds() > 0)
    text +=
        fmt::format(", {} left", duration_text(static_cast<double>(state.expires_in_seconds())));
  if (state.has_damage()) text += ", damaged: " + state.damage().message();
  for (const auto& [key, value] : state.user_metadata()) text += fmt::format(", {}={}", key, value);
  return text;
}

/// Nothing of a run that has ended.
void print_lease(std::int64_t left_ms) {
  if (left_ms > 0)
    print_line("lease", duration_text(static_cast<double>(left_ms) / 1000) + " left");
}

ExitCode show_run(Client& client, bool json, const std::string& name) {
  const v1::Run run = get_run(client, name);
  if (json) {
    print_json(run);
    return kOk;
  }
  print_line("run", short_name(run.name()));
  print_line("state", state_name(run.state()));
  print_line("waits", run.wait().reason());
  print_line("cause", run.cause().message());
  print_line("client", run.client());
  print_line("epoch", std::to_string(run.epoch()));
  print_line("step", std::to_string(run.step()));
  print_line("next", fmt::format("number {}", run.next_seq()));
  print_lease(run.lease_left_ms());
  for (const auto& note : run.notes()) print_line("note", note);
  if (run.has_resolved()) {
    print_line("mesh", mesh_text(run.resolved().mesh()));
    print_line("plan", plan_text(run.resolved().plan()));
    print_line("device", device_text(run.resolved()));
  }
  if (run.saved_count() > run.saved_size())
    print_line("saved",
               fmt::format("{} states, the newest of them here; all: meshloom run states {}",
                           run.saved_count(), short_name(run.name())));
  for (const auto& state : run.saved()) print_line("saved", state_text(state));
  for (const auto& weights : run.weights())
    print_line("weights", fmt::format("{}, step {}, {}", weights.name(), weights.step(),
                                      state_name(weights.storage())));
  print_line("created", run.create_time());
  print_line("finished", run.end_time());
  return kOk;
}

ExitCode list_states(Client& client, bool json, const std::string& name) {
  v1::ListStatesRequest request;
  request.set_run(name);
  const auto all = client.list(client.runs(), &v1::RunService::Stub::ListStates, request);
  if (json) {
    print_json(all);
    return kOk;
  }
  for (const auto& state : all.states()) fmt::print("{}\n", state_text(state));
  return kOk;
}

struct CloseRunOptions {
  std::string run;
  bool force = false;
};

ExitCode close(Client& client, bool json, const CloseRunOptions& options) {
  v1::CloseRunRequest request;
  request.set_name(options.run);
  request.set_force(options.force);
  const v1::Run run = client.call(client.runs(), &v1::RunService::Stub::CloseRun, request).run();
  if (json)
    print_json(run);
  else if (base::is_final(run.state()))
    fmt::print("{}: closed; {} saved states stay\n", short_name(run.name()), run.saved_count());
  else
    fmt::print("{}: it is being saved, then it is closed\n", short_name(run.name()));
  return kOk;
}

ExitCode delete_run(Client& client, bool json, const std::string& name) {
  v1::DeleteRunRequest request;
  request.set_name(name);
  const auto response = client.call(client.runs(), &v1::RunService::Stub::DeleteRun, request);
  if (json)
    print_json(response);
  else
    fmt::print("{}: deleted\n", short_name(name));
  return kOk;
}

ExitCode heartbeat(Client& client, bool json, const std::string& name) {
  v1::HeartbeatRequest request;
  request.set_name(name);
  const v1::HeartbeatResponse response =
      client.call(client.runs(), &v1::RunService::Stub::Heartbeat, request);
  if (json) {
    print_json(response);
    return kOk;
  }
  print_line("state", state_name(response.state()));
  print_line("epoch", std::to_string(response.epoch()));
  print_lease(response.lease_left_ms());
  return kOk;
}

void add_create_run(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand(
      "create", "Make the run that a YAML file declares; prints its name and its token");
  auto options = std::make_shared<CreateRunOptions>();
  command
      ->add_option("file", options->file,
                   "Its keys are the fields of RunSpec in proto/v1/run.proto; of a job's file what "
                   "a run has in common with it; - for standard input")
      ->required();
  command
      ->add_option("--set", options->settings,
                   "FIELD=VALUE over the file, such as optimizer.lr=1e-4 or lease_seconds=60; may "
                   "be given several times")
      ->allow_extra_args(false);
  command->add_option("--name", options->name, "Name of the run, instead of the file's");
  command->add_option("--request-id", options->request_id,
                      "Makes a repeat of this command harmless: the same id gives the same run "
                      "with a new token");
  command->add_option("--token-file", options->token_file,
                      "Write the token to this new file, which only its owner may read, instead of "
                      "printing it");
  command->footer(
      "The token is needed for every verb and kept nowhere: commands take it from --token-file, "
      "MESHLOOM_RUN_TOKEN or --token.\n"
      "Examples:\n"
      "  meshloom run create run.yaml --token-file run.token\n"
      "  meshloom run create configs/jobs/byte_gpt_1m.yaml --set optimizer.lr=1e-3");
  set_action(*command, context, options, &create_run);
}

void add_close(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand(
      "close", "End a run: what waits is cancelled, the ranks are given back, saved states stay");
  auto options = std::make_shared<CloseRunOptions>();
  command->add_option("run", options->run, "The run")->required();
  auto* force = command->add_flag(
      "--force", options->force,
      "Without the run's token, for the client name that made it (--client): its state is saved "
      "as where a lease ends");
  add_needed_token(*command, context, force);
  command->footer("Example: meshloom run close my-run --force");
  set_action(*command, context, options, &close);
}

void add_delete_run(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand(
      "delete",
      "Remove a run that has ended for good, with its saved states and weights; needs no token, "
      "but the name of the client that made it (--client)");
  auto run = std::make_shared<std::string>();
  command->add_option("run", *run, "The run")->required();
  set_action(*command, context, run, &delete_run);
}

void add_heartbeat(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand(
      "heartbeat",
      "Renew a run's lease, without which it is saved, closed and gives the ranks back");
  auto run = std::make_shared<std::string>();
  add_target(*command, context, *run);
  command->footer(
      "Every verb renews it, too.\nExample: meshloom run heartbeat my-run --token-file run.token");
  set_action(*command, context, run, &heartbeat);
}

}  // namespace

void add_run_commands(CLI::App& app, CommandContext& context) {
  auto* runs = app.add_subcommand(
      "run", "Make, train, sample, save, list, close and delete runs that are driven step by step");
  runs->require_subcommand(1);
  add_create_run(*runs, context);
  auto* list_command = runs->add_subcommand("list", "All runs, oldest first");
  add_all_flag(*list_command, context);
  list_command->callback([&context] {
    context.action = [&context](Client& client) { return list_runs(client, context); };
  });
  auto* show_command = runs->add_subcommand("show", "One run in full, with its saved states");
  auto name = std::make_shared<std::string>();
  show_command->add_option("run", *name, "The run")->required();
  add_optional_token(*show_command, context);
  set_action(*show_command, context, name, &show_run);
  auto* states_command =
      runs->add_subcommand("states", "All saved states of a run, oldest first, with metadata");
  states_command->add_option("run", *name, "The run")->required();
  set_action(*states_command, context, name, &list_states);
  add_heartbeat(*runs, context);
  add_close(*runs, context);
  add_delete_run(*runs, context);
  add_run_training(*runs, context);
  add_run_sample(*runs, context);
  add_run_states(*runs, context);
  add_run_parameters(*runs, context);
}

}  // namespace meshloom::cli
