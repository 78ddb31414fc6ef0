// SPDX-License-Identifier: Apache-2.0
// job wait, job tensorboard and events: jobs are looked at from elsewhere, by people and programs.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/cli/interrupt.h"
#include "daemon/cli/jobs/job_commands.h"
#include "daemon/cli/jobs/job_tensorboard.h"
#include "daemon/cli/jobs/job_wait.h"
#include "daemon/cli/local_errors.h"
#include "daemon/command_line/number_checks.h"

namespace meshloom::cli {
namespace {

void add_wait(CLI::App& jobs, CommandContext& context) {
  auto* command = jobs.add_subcommand(
      "wait",
      "Wait for jobs, over restarts of the daemon; the exit code tells what became of them");
  struct Asked {
    WaitOptions options;
    std::string goal = "succeeded";
  };
  auto asked = std::make_shared<Asked>();
  command->add_option("jobs", asked->options.jobs, "The jobs")->required();
  command
      ->add_option("--for", asked->goal,
                   "succeeded; ended, however; step:N, that this step is done; loss:X, that a step "
                   "of training had this loss or less")
      ->check(CLI::Validator(
          [](std::string& text) {
            try {
              parse_wait_goal(text);
              return std::string();
            } catch (const CliError& error) {
              return std::string(error.what());
            }
          },
          ""))
      ->capture_default_str();
  command
      ->add_option("--timeout", asked->options.timeout_seconds,
                   "Seconds after which it waits no longer. Default: it waits on")
      ->check(command_line::positive());
  command->footer(
      "Example: meshloom job wait job-1 job-2 --for ended --timeout 3600\n"
      "Exit codes: 0 all jobs have come to it, 1 one has failed or ended without it, 4 one was "
      "cancelled, 124 time is up.");
  command->callback([&context, asked] {
    asked->options.goal = parse_wait_goal(asked->goal);
    context.action = [&context, asked](Client& client) {
      return wait_for_jobs(client, context.json, asked->options);
    };
  });
}

void add_tensorboard(CLI::App& jobs, CommandContext& context) {
  auto* command = jobs.add_subcommand(
      "tensorboard", "Write jobs as files for TensorBoard, from a daemon that may be elsewhere");
  auto options = std::make_shared<TensorboardOptions>();
  command->add_option("jobs", options->jobs, "The jobs")->required();
  command->add_option("--out", options->out, "Folder that gets a folder for each job")->required();
  command->add_flag("--follow", options->follow, "Until the jobs have ended");
  command->footer(
      "Example: meshloom job tensorboard job-1 job-2 --out runs\n"
      "Then: tensorboard --logdir runs. The daemon writes the same into each job's folder, unless "
      "its metrics.tensorboard is false: on its host, tensorboard --logdir STATE_DIR/jobs.");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return telling_errors([&] { return write_tensorboard(client, context.json, *options); });
    };
  });
}

}  // namespace

void add_job_watching(CLI::App& jobs, CommandContext& context) {
  add_wait(jobs, context);
  add_tensorboard(jobs, context);
}

}  // namespace meshloom::cli
