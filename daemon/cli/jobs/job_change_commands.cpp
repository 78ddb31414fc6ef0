// SPDX-License-Identifier: Apache-2.0
// job pause, move, edit, label, logs and metrics: what is done with jobs that there are.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/cli/interrupt.h"
#include "daemon/cli/jobs/field_setting.h"
#include "daemon/cli/jobs/job_changes.h"
#include "daemon/cli/jobs/job_commands.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/output/records.h"
#include "daemon/command_line/number_checks.h"

namespace meshloom::cli {
namespace {

ExitCode pause(Client& client, bool json, const std::string& name) {
  v1::PauseJobRequest request;
  request.set_request_id(make_request_id());
  request.set_name(name);
  return print_state(json,
                     client.call(client.jobs(), &v1::JobService::Stub::PauseJob, request).job());
}

ExitCode give(Client& client, bool json, const std::string& name, const std::string& owner) {
  v1::GiveJobRequest request;
  request.set_request_id(make_request_id());
  request.set_name(name);
  request.set_owner(owner);
  const auto given = client.call(client.access(), &v1::AccessService::Stub::GiveJob, request);
  if (json)
    print_json(given);
  else
    fmt::print("{} belongs to {}\n", short_name(name), owner_text(given.owner()));
  return kOk;
}

struct MoveOptions {
  std::string job, before, after;
  bool first = false;
};

ExitCode move(Client& client, bool json, const MoveOptions& options) {
  v1::MoveJobRequest request;
  request.set_request_id(make_request_id());
  request.set_name(options.job);
  if (options.first) request.set_first(true);
  if (!options.before.empty()) request.set_before(options.before);
  if (!options.after.empty()) request.set_after(options.after);
  return print_state(json,
                     client.call(client.jobs(), &v1::JobService::Stub::MoveJob, request).job());
}

struct EditOptions {
  std::string job;
  std::vector<std::string> settings;
};

ExitCode edit(Client& client, bool json, const EditOptions& options) {
  v1::EditJobRequest request;
  request.set_request_id(make_request_id());
  request.set_name(options.job);
  for (const std::string& text : options.settings) {
    const FieldSetting setting = parse_setting(text);
    apply_setting(setting, request.mutable_spec());
    request.add_fields(setting.field);
  }
  const v1::Job job = client.call(client.jobs(), &v1::JobService::Stub::EditJob, request).job();
  if (json)
    print_json(job);
  else
    fmt::print("{}: edited, for what is behind step {}\n", short_name(job.name()),
               job.edits().empty() ? 0 : job.edits().rbegin()->after_step());
  return kOk;
}

struct LabelOptions {
  std::string job;
  std::vector<std::string> labels;
};

ExitCode label(Client& client, bool json, const LabelOptions& options) {
  v1::LabelJobRequest request;
  request.set_request_id(make_request_id());
  request.set_name(options.job);
  for (const std::string& text : options.labels) {
    if (text.size() > 1 && text.back() == '-' && text.find('=') == std::string::npos)
      request.add_remove(text.substr(0, text.size() - 1));
    else
      add_label(text, request.mutable_set());
  }
  const v1::Job job = client.call(client.jobs(), &v1::JobService::Stub::LabelJob, request).job();
  if (json)
    print_json(job);
  else
    fmt::print("{}: {}\n", short_name(job.name()), labels_text(job.spec().labels()));
  return kOk;
}

struct LinesOptions {
  std::string job;
  std::int64_t after = 0;
  bool follow = false;
};

/// Lines as they come; with --json each with the revision from which to go on.
template <typename Request, typename Response, typename Open>
ExitCode print_lines(Client& client, bool json, const char* type, const LinesOptions& options,
                     const Open& open) {
  Request request;
  request.set_name(options.job);
  request.set_after_revision(options.after);
  request.set_follow(options.follow);
  grpc::ClientContext context;
  client.introduce(context);
  const auto stream = open(&context, request);
  const InterruptScope interrupt([&] { context.TryCancel(); });
  for (Response line; stream->Read(&line);) {
    if (json) {
      print_record(stream_record(type, line));
    } else {
      fmt::print("{}\n", line.line());
      std::fflush(stdout);
    }
  }
  const grpc::Status status = stream->Finish();
  if (interrupt.interrupted()) return kInterrupted;
  if (!status.ok()) client.fail(status);
  return kOk;
}

ExitCode logs(Client& client, bool json, const LinesOptions& options) {
  return print_lines<v1::StreamLogsRequest, v1::StreamLogsResponse>(
      client, json, "log", options, [&](auto* context, const auto& request) {
        return client.jobs().StreamLogs(context, request);
      });
}

ExitCode metrics(Client& client, bool json, const LinesOptions& options) {
  return print_lines<v1::StreamMetricsRequest, v1::StreamMetricsResponse>(
      client, json, "metrics", options, [&](auto* context, const auto& request) {
        return client.jobs().StreamMetrics(context, request);
      });
}

/// A command that leaves its options and its action with the context.
template <typename Options>
std::shared_ptr<Options> leave(CLI::App* command, CommandContext& context,
                               ExitCode (*action)(Client&, bool, const Options&)) {
  auto options = std::make_shared<Options>();
  command->add_option("job", options->job, "The job")->required();
  command->callback([&context, options, action] {
    context.action = [&context, options, action](Client& client) {
      return action(client, context.json, *options);
    };
  });
  return options;
}

void add_lines(CLI::App& jobs, CommandContext& context, const char* name, const char* text,
               ExitCode (*action)(Client&, bool, const LinesOptions&)) {
  auto* command = jobs.add_subcommand(name, text);
  const auto options = leave<LinesOptions>(command, context, action);
  command
      ->add_option("--after", options->after,
                   "Only what came after this revision, as --json shows it")
      ->check(command_line::not_negative());
  command->add_flag("--follow", options->follow, "Until the job has ended");
}

}  // namespace

void add_job_changes(CLI::App& jobs, CommandContext& context) {
  auto* pause_command = jobs.add_subcommand(
      "pause",
      "Save a job at its next step boundary and give its ranks to the next; `job resume` goes on");
  auto paused = std::make_shared<std::string>();
  pause_command->add_option("job", *paused, "The job")->required();
  pause_command->callback([&context, paused] {
    context.action = [&context, paused](Client& client) {
      return pause(client, context.json, *paused);
    };
  });

  auto* give_command = jobs.add_subcommand("give", "Of an admin: make a job another owner's");
  auto given = std::make_shared<std::pair<std::string, std::string>>();
  give_command->add_option("job", given->first, "The job")->required();
  give_command
      ->add_option("owner", given->second,
                   "Whose it is to be, as `meshloom whoami` names them; \"\": the admins")
      ->required();
  give_command->callback([&context, given] {
    context.action = [&context, given](Client& client) {
      return give(client, context.json, given->first, given->second);
    };
  });

  auto* move_command = jobs.add_subcommand("move", "Change when a job that waits is taken");
  const auto moved = leave<MoveOptions>(move_command, context, &move);
  auto* place = move_command->add_option_group("place", "Where it comes in the queue");
  place->add_flag("--first", moved->first, "Before all others");
  place->add_option("--before", moved->before, "Before this job");
  place->add_option("--after", moved->after, "Behind this job");
  place->require_option(1);

  auto* edit_command = jobs.add_subcommand(
      "edit",
      "Change what is still ahead of a job: steps, schedule, intervals, early stopping, which "
      "checkpoints are kept, limits");
  const auto edited = leave<EditOptions>(edit_command, context, &edit);
  edit_command
      ->add_option("settings", edited->settings,
                   "FIELD=VALUE, fields as in a job file; \"run.\" may be left out")
      ->required();
  edit_command->footer(
      "Example: meshloom job edit job-1 training.steps=200 checkpoint.interval=20\n"
      "training.early_stopping={} ends early stopping. A field that cannot change is refused with "
      "the list of those that can.");

  auto* label_command = jobs.add_subcommand("label", "Set labels of a job, or remove them");
  const auto labelled = leave<LabelOptions>(label_command, context, &label);
  label_command->add_option("labels", labelled->labels, "KEY=VALUE, or KEY- to remove one")
      ->required();
  label_command->footer("Example: meshloom job label job-1 team=speech draft-");

  add_lines(jobs, context, "logs", "What became of a job, line by line", &logs);
  add_lines(jobs, context, "metrics", "The metrics of a job, a JSON value a line", &metrics);
}

}  // namespace meshloom::cli
