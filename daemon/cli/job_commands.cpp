// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "daemon/base/config.h"
#include "daemon/base/message_printer.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/follow.h"
#include "daemon/cli/output.h"
#include "daemon/cli/plan_options.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

struct SubmitOptions {
  std::string file;
  std::string plan_file;
  std::string name;
  std::string request_id;
  bool follow = false;
  bool validate_only = false;
};

base::JobFile load(const std::string& file) {
  try {
    return base::load_job_file(file);
  } catch (const Error& error) {
    throw CliError(kUsage, error.what());
  }
}

/// Where the file sets the field that the daemon refuses, or the nearest field above it.
std::string place_of(const base::JobFile& file, const std::string& path,
                     const v1::ErrorDetails& details) {
  if (details.violations_size() == 0) return "";
  std::string field = details.violations(0).field();
  while (!field.empty()) {
    const auto line = file.lines.find(field);
    if (line != file.lines.end()) return fmt::format("{}:{}: ", path, line->second);
    const auto cut = field.find_last_of(".[");
    field = cut == std::string::npos ? "" : field.substr(0, cut);
  }
  return path + ": ";
}

/// The file's mesh instead of the job's; of the plan, what the file says.
void apply_plan(const v1::PlanFile& file, v1::JobSpec& spec) {
  if (file.has_mesh()) *spec.mutable_run()->mutable_mesh() = file.mesh();
  spec.mutable_run()->mutable_plan()->MergeFrom(file.plan());
}

v1::Job send_job(Client& client, const SubmitOptions& options) {
  base::JobFile file = load(options.file);
  if (!options.name.empty()) file.spec.set_name(options.name);
  if (!options.plan_file.empty()) apply_plan(read_plan_file(options.plan_file), file.spec);
  v1::SubmitJobRequest request;
  request.set_request_id(options.request_id.empty() ? make_request_id() : options.request_id);
  request.set_validate_only(options.validate_only);
  *request.mutable_spec() = file.spec;
  try {
    return client.call(client.jobs(), &v1::JobService::Stub::SubmitJob, request).job();
  } catch (const CliError& error) {
    throw CliError(error.code(), place_of(file, options.file, error.details()) + error.what(),
                   error.details());
  }
}

ExitCode submit(Client& client, bool json, const SubmitOptions& options) {
  const v1::Job job = send_job(client, options);
  if (options.validate_only) {
    if (json) {
      print_json(job);
    } else {
      v1::JobSpec resolved;
      resolved.set_name(job.spec().name());
      *resolved.mutable_run() = job.resolved();
      fmt::print("# {} is valid; with every default:\n{}", options.file, base::to_yaml(resolved));
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

ExitCode list(Client& client, bool json) {
  v1::ListJobsRequest request;
  v1::ListJobsResponse all;
  do {
    auto page = client.call(client.jobs(), &v1::JobService::Stub::ListJobs, request);
    request.set_page_token(page.next_page_token());
    for (auto& job : *page.mutable_jobs()) *all.add_jobs() = std::move(job);
  } while (!request.page_token().empty());
  if (json) {
    print_json(all);
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{{"job", "state", "step", "loss", "created"}};
  for (const auto& job : all.jobs())
    rows.push_back({short_name(job.name()), state_name(job.state()),
                    fmt::format("{}/{}", job.step(), job.steps()),
                    job.has_last_step() ? fmt::format("{:.4f}", job.last_step().loss()) : "-",
                    job.create_time()});
  print_table(rows);
  return kOk;
}

void show(const v1::Job& job, bool json) {
  if (json) {
    print_json(job);
  } else {
    print_job(job);
  }
}

ExitCode show_job(Client& client, bool json, const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  show(client.call(client.jobs(), &v1::JobService::Stub::GetJob, request).job(), json);
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
  }
  return kOk;
}

void add_submit(CLI::App& jobs, CommandContext& context) {
  auto* command = jobs.add_subcommand("submit", "Queue the job that a YAML file declares");
  auto options = std::make_shared<SubmitOptions>();
  command
      ->add_option("file", options->file,
                   "The job file; its keys are the fields of proto/v1/config.proto")
      ->required();
  command->add_option("--plan", options->plan_file,
                      "A YAML file with mesh and plan (configs/plans), instead of the job's");
  command->add_flag("--follow", options->follow,
                    "Show its progress until it ends; Ctrl-C leaves it running");
  command->add_option("--name", options->name,
                      "Name of the job, instead of the file's or a made-up one");
  command->add_flag("--validate-only", options->validate_only,
                    "Only let the daemon check it, and show it with every default");
  command->add_option("--request-id", options->request_id,
                      "Makes a repeat of this command harmless: the same id gives the same job");
  command->footer("Example: meshloom job submit configs/jobs/quickstart.yaml --follow");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return submit(client, context.json, *options);
    };
  });
}

using NamedAction = ExitCode (*)(Client&, bool json, const std::string& name);

void add_named(CLI::App& jobs, CommandContext& context, const char* name, const char* text,
               NamedAction action) {
  auto* command = jobs.add_subcommand(name, text);
  auto job = std::make_shared<std::string>();
  command->add_option("name", *job, "The job")->required();
  command->callback([&context, job, action] {
    context.action = [&context, job, action](Client& client) {
      return action(client, context.json, *job);
    };
  });
}

}  // namespace

void add_job_commands(CLI::App& app, CommandContext& context) {
  auto* jobs = app.add_subcommand("job", "Submit, follow and cancel jobs");
  jobs->require_subcommand(1);
  add_submit(*jobs, context);
  auto* list_command = jobs->add_subcommand("list", "All jobs, oldest first");
  list_command->callback([&context] {
    context.action = [&context](Client& client) { return list(client, context.json); };
  });
  add_named(*jobs, context, "show", "One job in full", &show_job);
  add_named(*jobs, context, "watch",
            "Follow a job until it ends; the exit code tells how (0, 1 or 4)",
            [](Client& client, bool json, const std::string& name) {
              return follow_job(client, name, {json});
            });
  add_named(*jobs, context, "cancel", "End a job at its next step boundary", &cancel);
}

}  // namespace meshloom::cli
