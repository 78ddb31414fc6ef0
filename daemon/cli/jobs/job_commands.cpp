// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "daemon/cli/daemon_commands.h"
#include "daemon/cli/jobs/follow.h"
#include "daemon/cli/jobs/job_changes.h"
#include "daemon/cli/jobs/job_commands.h"
#include "daemon/cli/jobs/job_facts.h"
#include "daemon/cli/output/output.h"

namespace meshloom::cli {
namespace {

ExitCode list_jobs(Client& client, const CommandContext& context,
                   const std::vector<std::string>& labels) {
  v1::ListJobsRequest request;
  for (const std::string& label : labels) add_label(label, request.mutable_labels());
  request.set_all(context.all);
  const auto all = client.list(client.jobs(), &v1::JobService::Stub::ListJobs, request);
  if (context.json) {
    print_json(all);
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{{"job", "state", "step", "loss", "labels", "created"}};
  for (const auto& job : all.jobs())
    rows.push_back({short_name(job.name()), state_text(job.state(), context.colour()),
                    fmt::format("{}/{}", job.step(), job.steps()),
                    job.has_last_step() ? fmt::format("{:.4f}", job.last_step().loss()) : "-",
                    labels_text(job.spec().labels()), job.create_time()});
  if (context.all) {
    rows[0].push_back("owner");
    for (int i = 0; i < all.jobs_size(); ++i)
      rows[static_cast<std::size_t>(i) + 1].push_back(owner_text(all.jobs(i).owner()));
  }
  print_table(rows);
  return kOk;
}

struct ShowJobOptions {
  std::string job;
  bool verbose = false;
  bool notify = false;
};

ExitCode show_job(Client& client, const CommandContext& context, const ShowJobOptions& options) {
  const v1::Job job = get_job(client, options.job);
  if (context.json) {
    print_json(job);
  } else {
    print_facts(client, job);
    print_job(job, {context.colour(), options.verbose});
  }
  return kOk;
}

ExitCode watch_job(Client& client, const CommandContext& context, const ShowJobOptions& options) {
  return follow_job(client, options.job,
                    {context.json, {context.colour(), options.verbose}, options.notify});
}

ExitCode cancel_job(Client& client, bool json, const std::string& name) {
  v1::CancelJobRequest request;
  request.set_request_id(make_request_id());
  request.set_name(name);
  const v1::Job job = client.call(client.jobs(), &v1::JobService::Stub::CancelJob, request).job();
  if (json) {
    print_json(job);
  } else {
    fmt::print("{}: {}\n", short_name(job.name()), state_name(job.state()));
    if (job.pending_state() != v1::JOB_STATE_UNSPECIFIED)
      fmt::print(
          "{} has taken effect, but is not yet durable: the daemon's journal cannot be "
          "written at present and is tried again\n",
          state_name(job.pending_state()));
  }
  return kOk;
}

ExitCode release(Client& client, bool json, const std::string& name) {
  v1::ReleaseJobRequest request;
  request.set_request_id(make_request_id());
  request.set_name(name);
  return print_state(json,
                     client.call(client.jobs(), &v1::JobService::Stub::ReleaseJob, request).job());
}

ExitCode delete_job(Client& client, bool json, const std::string& name) {
  v1::DeleteJobRequest request;
  request.set_request_id(make_request_id());
  request.set_name(name);
  const auto response = client.call(client.jobs(), &v1::JobService::Stub::DeleteJob, request);
  if (json) {
    print_json(response);
  } else {
    fmt::print("{}: deleted\n", short_name(name));
  }
  return kOk;
}

/// Commands that show a job in full.
std::pair<CLI::App*, std::shared_ptr<ShowJobOptions>> add_shown(
    CLI::App& jobs, CommandContext& context, const char* name, const char* text,
    ExitCode (*action)(Client&, const CommandContext&, const ShowJobOptions&)) {
  auto* command = jobs.add_subcommand(name, text);
  auto options = std::make_shared<ShowJobOptions>();
  command->add_option("job", options->job, "The job")->required();
  command->add_flag("--verbose,-v", options->verbose,
                    "Also how the ranks hold each parameter, and what that costs on the wire");
  command->callback([&context, options, action] {
    context.action = [&context, options, action](Client& client) {
      return action(client, context, *options);
    };
  });
  return {command, options};
}

using NamedAction = ExitCode (*)(Client&, bool json, const std::string& name);

void add_named(CLI::App& jobs, CommandContext& context, const char* name, const char* text,
               NamedAction action) {
  auto* command = jobs.add_subcommand(name, text);
  auto job = std::make_shared<std::string>();
  command->add_option("job", *job, "The job")->required();
  command->callback([&context, job, action] {
    context.action = [&context, job, action](Client& client) {
      return action(client, context.json, *job);
    };
  });
}

}  // namespace

void add_job_commands(CLI::App& app, CommandContext& context) {
  auto* jobs = app.add_subcommand(
      "job", "Submit, follow, pause, resume, edit, move, label, cancel, release and delete jobs");
  jobs->require_subcommand(1);
  add_job_submission(*jobs, context);
  auto* list_command = jobs->add_subcommand("list", "All jobs, oldest first");
  auto labels = std::make_shared<std::vector<std::string>>();
  list_command
      ->add_option("--label", *labels, "Only jobs with this KEY=VALUE; several: with all of them")
      ->allow_extra_args(false);
  add_all_flag(*list_command, context);
  list_command->callback([&context, labels] {
    context.action = [&context, labels](Client& client) {
      return list_jobs(client, context, *labels);
    };
  });
  add_shown(*jobs, context, "show", "One job in full", &show_job);
  for (const char* name : {"watch", "follow"}) {
    const auto [command, options] =
        add_shown(*jobs, context, name,
                  "Follow a job until it ends; the exit code tells how (0, 1 or 4)", &watch_job);
    command->add_flag("--notify", options->notify,
                      "Ring the terminal's bell when the job has ended or is held");
  }
  add_named(*jobs, context, "cancel", "End a job at its next step boundary", &cancel_job);
  add_named(*jobs, context, "release",
            "Let a held job run again, such as one in whose attempts the daemon ended", &release);
  add_named(*jobs, context, "delete",
            "Remove a job that has ended, with its checkpoints and everything in its folder",
            &delete_job);
  add_job_changes(*jobs, context);
  add_job_comparison(*jobs, context);
  add_job_watching(*jobs, context);
}

}  // namespace meshloom::cli
