// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "daemon/cli/output/output.h"
#include "daemon/cli/runs/operation_output.h"
#include "daemon/cli/runs/operation_watch.h"
#include "daemon/cli/runs/run_commands.h"
#include "daemon/cli/runs/run_token.h"

namespace meshloom::cli {
namespace {

ExitCode list_operations(Client& client, bool json, const std::string& run) {
  v1::ListOperationsRequest request;
  request.set_run(run);
  const auto all =
      client.list(client.operations(), &v1::OperationService::Stub::ListOperations, request);
  if (json) {
    print_json(all);
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{{"operation", "verb", "state", "seconds", "result"}};
  for (const auto& operation : all.operations())
    rows.push_back({operation.name(), operation.verb(), state_name(operation.state()),
                    fmt::format("{:.3f}", operation.seconds()),
                    operation.has_error() ? operation.error().info().reason()
                                          : bytes_text(operation.result_bytes())});
  print_table(rows);
  return kOk;
}

ExitCode show_operation(Client& client, bool json, const std::string& name) {
  v1::GetOperationRequest request;
  request.set_name(name);
  v1::Operation operation =
      client.call(client.operations(), &v1::OperationService::Stub::GetOperation, request)
          .operation();
  complete_result(client, json, &operation);
  if (json) {
    print_json(operation);
  } else {
    print_operation(operation);
  }
  return kOk;
}

ExitCode watch(Client& client, bool json, const std::string& name) {
  return watch_operation(client, {.operation = name, .json = json});
}

ExitCode cancel_operation(Client& client, bool json, const std::string& name) {
  v1::CancelOperationRequest request;
  request.set_name(name);
  const v1::Operation operation =
      client.call(client.operations(), &v1::OperationService::Stub::CancelOperation, request)
          .operation();
  if (json) {
    print_json(operation);
  } else {
    fmt::print("{}: {}\n", operation.name(), state_name(operation.state()));
  }
  return kOk;
}

CLI::App& add_named(CLI::App& operations, CommandContext& context, const char* name,
                    const char* text, const char* argument, const char* argument_text,
                    ExitCode (*action)(Client&, bool json, const std::string& name)) {
  auto* command = operations.add_subcommand(name, text);
  auto value = std::make_shared<std::string>();
  command->add_option(argument, *value, argument_text)->required();
  command->callback([&context, value, action] {
    context.action = [&context, value, action](Client& client) {
      return action(client, context.json, *value);
    };
  });
  return *command;
}

}  // namespace

void add_operation_commands(CLI::App& app, CommandContext& context) {
  auto* operations = app.add_subcommand(
      "operation", "List, show, watch and cancel the verbs of runs that are driven step by step");
  operations->require_subcommand(1);
  add_optional_token(
      add_named(*operations, context, "list", "The operations of a run that are kept, oldest first",
                "run", "The run", &list_operations),
      context);
  add_optional_token(
      add_named(*operations, context, "show",
                "One operation with its result; the daemon may then forget it if --token is given",
                "operation", "operations/RUN/EPOCH/NUMBER, as operation list shows it",
                &show_operation),
      context);
  add_optional_token(
      add_named(*operations, context, "watch",
                "One operation until it ends; of a sample the tokens as they are drawn",
                "operation", "operations/RUN/EPOCH/NUMBER or .../sample-NUMBER", &watch),
      context);
  add_needed_token(
      add_named(*operations, context, "cancel",
                "Cancel an operation that has not begun, a sample, a forward or a "
                "forward_backward; a forward_backward that is cancelled poisons the gradients that "
                "it would have added to",
                "operation", "operations/RUN/EPOCH/NUMBER", &cancel_operation),
      context);
}

}  // namespace meshloom::cli
