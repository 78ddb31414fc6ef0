// SPDX-License-Identifier: Apache-2.0
// The commands below `meshloom run` share this: a run with its token, and a verb of it.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "daemon/cli/command_context.h"
#include "daemon/cli/runs/operation_output.h"
#include "daemon/cli/runs/run_token.h"
#include "v1/run.pb.h"

namespace meshloom::cli {

/// Adds the positional `run`, and its token (add_needed_token).
void add_target(CLI::App& command, CommandContext& context, std::string& run);

v1::Run get_run(Client& client, const std::string& name);

/// Returns what every ordered verb begins with: the run's epoch, and its next number as the run is
/// now.
v1::VerbId next_verb(Client& client, const std::string& run);

/// Sends `data` as an upload that a verb of the run takes, where a request would be too large with
/// it, and returns its name; empty where it is not. Shows the progress unless `quiet`.
std::string upload_if_large(Client& client, bool quiet, const std::string& run,
                            const google::protobuf::Message& data);

template <typename Request, typename Response>
using RunMethod = grpc::Status (v1::RunService::Stub::*)(grpc::ClientContext*, const Request&,
                                                         Response*);

/// Sends a verb, with the run's next number unless it has one, and waits for its end.
template <typename Request, typename Response>
v1::Operation carry_out(Client& client, bool json, const std::string& run,
                        RunMethod<Request, Response> method, Request request) {
  const std::int64_t number = request.id().seq();
  *request.mutable_id() = next_verb(client, run);
  if (number > 0) request.mutable_id()->set_seq(number);
  const Response response = client.call(client.runs(), method, request);
  return wait_for_operation(client, json, response.operation().name());
}

/// Shows an operation that has ended.
ExitCode show_ended(bool json, const v1::Operation& operation);

/// Makes what `options` ask for the command's action.
template <typename Options>
void set_action(CLI::App& command, CommandContext& context, std::shared_ptr<Options> options,
                ExitCode (*action)(Client&, bool json, const Options&)) {
  command.callback([&context, options, action] {
    context.action = [&context, options, action](Client& client) {
      return action(client, context.json, *options);
    };
  });
}

/// Returns what stands below the help of a verb with the run's next number, behind `text`.
std::string verb_footer(const std::string& text);

}  // namespace meshloom::cli
