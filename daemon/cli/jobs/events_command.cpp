// SPDX-License-Identifier: Apache-2.0
// events: what became of all jobs, a line of JSON each, for programs.
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/cli/interrupt.h"
#include "daemon/cli/jobs/job_commands.h"
#include "daemon/cli/output/records.h"
#include "daemon/cli/reading.h"
#include "daemon/command_line/number_checks.h"

namespace meshloom::cli {
namespace {

struct EventsOptions {
  std::int64_t after = 0;
  bool follow = false;
};

/// The line of the daemon's file, with the revision from which to go on before it.
void print_event(const v1::StreamEventsResponse& event) {
  nlohmann::ordered_json record = {{"revision", event.revision()}};
  const auto line = nlohmann::ordered_json::parse(event.line(), nullptr, false);
  if (line.is_object()) record.update(line);
  print_record(record);
}

ExitCode print_events(Client& client, const EventsOptions& options) {
  v1::StreamEventsRequest request;
  request.set_after_revision(options.after);
  request.set_follow(options.follow);
  const auto open = [&](grpc::ClientContext* context) {
    return client.events().StreamEvents(context, request);
  };
  const auto seen = [&](const v1::StreamEventsResponse& event) {
    print_event(event);
    request.set_after_revision(event.revision());
    return true;
  };
  Reading reading;
  const InterruptScope interrupt([&] { reading.cancel(); });
  using Event = v1::StreamEventsResponse;
  // A daemon that is not there at all is told, one that restarts is waited for.
  if (options.follow && client.health() == Client::Health::kUnreachable)
    client.fail(grpc::Status(grpc::StatusCode::UNAVAILABLE, "no connection"));
  const grpc::Status status = options.follow ? reading.read<Event>(client, open, seen)
                                             : reading.read_once<Event>(client, open, seen);
  if (interrupt.interrupted()) return kInterrupted;
  if (!status.ok()) client.fail(status);
  return kOk;
}

}  // namespace

void add_events_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "events", "What became of all jobs: their states, notes and conditions, as lines of JSON");
  auto options = std::make_shared<EventsOptions>();
  command->add_option("--after", options->after, "Only what came after this revision")
      ->check(command_line::not_negative());
  command->add_flag("--follow", options->follow,
                    "Go on until Ctrl-C, also over restarts of the daemon");
  command->footer("Example: meshloom events --follow");
  command->callback([&context, options] {
    context.action = [options](Client& client) { return print_events(client, *options); };
  });
}

}  // namespace meshloom::cli
