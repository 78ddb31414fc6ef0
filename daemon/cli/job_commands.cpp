// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "daemon/base/message_printer.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/follow.h"
#include "daemon/cli/job_changes.h"
#include "daemon/cli/job_source.h"
#include "daemon/cli/number_checks.h"
#include "daemon/cli/output.h"
#include "daemon/cli/plan_report.h"

namespace meshloom::cli {
namespace {

/// What all ways to make a job have.
struct SubmitOptions {
  std::string source;  ///< the job file, or the job to go on from
  std::string plan_file;
  std::string name;
  std::string request_id;
  std::vector<std::string> labels;
  bool follow = false;
  bool validate_only = false;
};

struct ResumeOptions : SubmitOptions {
  std::string checkpoint;
  std::int64_t steps = 0;
  bool allow_changed_data = false;

  bool makes_another() const {
    return !checkpoint.empty() || steps > 0 || allow_changed_data || !plan_file.empty() ||
           !name.empty() || !labels.empty() || validate_only;
  }
};

v1::Job get_job(Client& client, const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  return client.call(client.jobs(), &v1::JobService::Stub::GetJob, request).job();
}

v1::SubmitJobResponse send_job(Client& client, const SubmitOptions& options, JobSource source) {
  if (!options.name.empty()) source.spec.set_name(options.name);
  if (!options.plan_file.empty()) source.use_plan(options.plan_file);
  v1::SubmitJobRequest request;
  request.set_request_id(options.request_id.empty() ? make_request_id() : options.request_id);
  request.set_validate_only(options.validate_only);
  for (const std::string& label : options.labels) add_label(label, source.spec.mutable_labels());
  *request.mutable_spec() = source.spec;
  try {
    const auto response = client.call(client.jobs(), &v1::JobService::Stub::SubmitJob, request);
    for (const std::string& warning : response.warnings())
      fmt::print(stderr, "{}warning: {}\n", source.place_of(warning.substr(0, warning.find(": "))),
                 warning);
    return response;
  } catch (const CliError& error) {
    const auto& violations = error.details().violations();
    const std::string place = violations.empty() ? "" : source.place_of(violations[0].field());
    throw CliError(error.code(), place + error.what(), error.details());
  }
}

ExitCode make_job(Client& client, bool json, const SubmitOptions& options, JobSource source) {
  const v1::SubmitJobResponse response = send_job(client, options, std::move(source));
  const v1::Job& job = response.job();
  if (options.validate_only) {
    if (json) {
      print_json(response);
    } else {
      v1::JobSpec resolved;
      resolved.set_name(job.spec().name());
      *resolved.mutable_run() = job.resolved();
      fmt::print("# {} is valid; with every default:\n{}", options.source, base::to_yaml(resolved));
      print_comment(response.estimate());
    }
    return kOk;
  }
  if (options.follow) {
    if (!json) fmt::print("submitted as {}\n", short_name(job.name()));
    return follow_job(client, job.name(), {json});
  }
  if (json) {
    print_json(job);
  } else {
    fmt::print("submitted as {}; to follow it: meshloom job watch {}\n", short_name(job.name()),
               short_name(job.name()));
  }
  return kOk;
}

/// A paused job goes on; of one that has ended a new job that is the old one but for where it
/// begins.
ExitCode resume(Client& client, bool json, const ResumeOptions& options) {
  const v1::Job job = get_job(client, options.source);
  if (job.state() == v1::JOB_STATE_PAUSED || job.state() == v1::JOB_STATE_PAUSING) {
    if (options.makes_another())
      throw CliError(kUsage,
                     fmt::format("job {} is paused and goes on as it is; `job edit` changes "
                                 "what is ahead of it",
                                 short_name(job.name())));
    const ExitCode code = resume_paused(client, json, job.name());
    return options.follow ? follow_job(client, job.name(), {json}) : code;
  }
  if (job.summary())
    throw CliError(kFailed,
                   fmt::format("job {0} ended long ago and is kept as a summary; submit {1}/"
                               "resolved.yaml with checkpoint: {{resume_from: checkpoints/{0}}}",
                               short_name(job.name()), job.output_dir()));
  JobSource source;
  source.spec = job.spec();
  source.spec.clear_name();
  v1::RunConfig& run = *source.spec.mutable_run();
  if (options.steps > 0) run.mutable_training()->set_steps(options.steps);
  if (options.allow_changed_data) run.mutable_data()->set_allow_changed(true);
  run.mutable_checkpoint()->set_resume_from(
      fmt::format("checkpoints/{}{}{}", short_name(job.name()),
                  options.checkpoint.empty() ? "" : "/", options.checkpoint));
  return make_job(client, json, options, std::move(source));
}

ExitCode list(Client& client, bool json, const std::vector<std::string>& labels) {
  v1::ListJobsRequest request;
  for (const std::string& label : labels) add_label(label, request.mutable_labels());
  const auto all = client.list(client.jobs(), &v1::JobService::Stub::ListJobs, request);
  if (json) {
    print_json(all);
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{{"job", "state", "step", "loss", "labels", "created"}};
  for (const auto& job : all.jobs())
    rows.push_back({short_name(job.name()), state_name(job.state()),
                    fmt::format("{}/{}", job.step(), job.steps()),
                    job.has_last_step() ? fmt::format("{:.4f}", job.last_step().loss()) : "-",
                    labels_text(job.spec().labels()), job.create_time()});
  print_table(rows);
  return kOk;
}

ExitCode show_job(Client& client, bool json, const std::string& name) {
  const v1::Job job = get_job(client, name);
  if (json) {
    print_json(job);
  } else {
    print_job(job);
  }
  return kOk;
}

ExitCode cancel(Client& client, bool json, const std::string& name) {
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
  const v1::Job job = client.call(client.jobs(), &v1::JobService::Stub::ReleaseJob, request).job();
  if (json) {
    print_json(job);
  } else {
    fmt::print("{}: {}\n", short_name(job.name()), state_name(job.state()));
  }
  return kOk;
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

void add_making_options(CLI::App& command, SubmitOptions& options) {
  command.add_option(
      "--plan", options.plan_file,
      "A YAML file with mesh and plan (configs/plans). Both are taken whole, instead "
      "of the job's; of the job's plan only dtype stays, where the file has none");
  command.add_flag("--follow", options.follow,
                   "Show its progress until it ends; Ctrl-C leaves it running");
  command.add_flag("--dry-run,--validate-only", options.validate_only,
                   "Only let the daemon check it, and show it with every default and what a step "
                   "takes");
  command.add_option("--label", options.labels, "KEY=VALUE; may be given several times")
      ->allow_extra_args(false);
  command.add_option("--request-id", options.request_id,
                     "Makes a repeat of this command harmless: the same id gives the same job");
}

void add_submit(CLI::App& jobs, CommandContext& context) {
  auto* command = jobs.add_subcommand("submit", "Queue the job that a YAML file declares");
  auto options = std::make_shared<SubmitOptions>();
  command
      ->add_option("file", options->source,
                   "The job file; its keys are the fields of proto/v1/config.proto")
      ->required();
  add_making_options(*command, *options);
  command->add_option("--name", options->name,
                      "Name of the job, instead of the file's or a made-up one");
  command->footer("Example: meshloom job submit configs/jobs/quickstart.yaml --follow");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return make_job(client, context.json, *options, JobSource::read(options->source));
    };
  });
}

void add_resume(CLI::App& jobs, CommandContext& context) {
  auto* command = jobs.add_subcommand(
      "resume",
      "Let a paused job go on; or queue a new job that goes on from a checkpoint of a job that has "
      "ended, on any mesh");
  auto options = std::make_shared<ResumeOptions>();
  command->add_option("job", options->source, "The job that is paused or has ended")->required();
  command->add_option("--checkpoint", options->checkpoint,
                      "Its checkpoint, such as step-200; default: the newest");
  command
      ->add_option("--steps", options->steps,
                   "Optimizer steps of the whole training, instead of the job's")
      ->check(positive());
  command->add_flag("--allow-changed-data", options->allow_changed_data,
                    "Go on although the data are not those of the checkpoint (DATA_CHANGED)");
  add_making_options(*command, *options);
  command->add_option("--name", options->name, "Name of the new job, instead of a made-up one");
  command->footer("Example: meshloom job resume job-1 --plan configs/plans/fsdp2.yaml --follow");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return resume(client, context.json, *options);
    };
  });
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
  add_submit(*jobs, context);
  add_resume(*jobs, context);
  auto* list_command = jobs->add_subcommand("list", "All jobs, oldest first");
  auto labels = std::make_shared<std::vector<std::string>>();
  list_command
      ->add_option("--label", *labels, "Only jobs with this KEY=VALUE; several: with all of them")
      ->allow_extra_args(false);
  list_command->callback([&context, labels] {
    context.action = [&context, labels](Client& client) {
      return list(client, context.json, *labels);
    };
  });
  add_named(*jobs, context, "show", "One job in full", &show_job);
  add_named(*jobs, context, "watch",
            "Follow a job until it ends; the exit code tells how (0, 1 or 4)",
            [](Client& client, bool json, const std::string& name) {
              return follow_job(client, name, {json});
            });
  add_named(*jobs, context, "cancel", "End a job at its next step boundary", &cancel);
  add_named(*jobs, context, "release",
            "Let a held job run again, such as one in whose attempts the daemon ended", &release);
  add_named(*jobs, context, "delete",
            "Remove a job that has ended, with its checkpoints and everything in its folder",
            &delete_job);
  add_job_changes(*jobs, context);
}

}  // namespace meshloom::cli
