// SPDX-License-Identifier: Apache-2.0
// job submit and resume: all ways to make a job.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "daemon/base/config.h"
#include "daemon/base/message_printer.h"
#include "daemon/cli/jobs/field_setting.h"
#include "daemon/cli/jobs/follow.h"
#include "daemon/cli/jobs/job_changes.h"
#include "daemon/cli/jobs/job_commands.h"
#include "daemon/cli/jobs/job_source.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/output/records.h"
#include "daemon/cli/plans/plan_report.h"
#include "daemon/command_line/number_checks.h"

namespace meshloom::cli {
namespace {

/// What all ways to make a job have.
struct MakeOptions {
  std::string source;  ///< the job file, or the job to go on from
  std::string plan_file;
  std::string name;
  std::string request_id;
  std::vector<std::string> labels;
  std::vector<std::string> settings;
  bool follow = false;
  bool notify = false;
  bool verbose = false;
  bool validate_only = false;
};

struct SubmitOptions : MakeOptions {
  std::vector<std::string> sweeps;
  bool example = false;
};

struct ResumeOptions : MakeOptions {
  std::string checkpoint;
  std::int64_t steps = 0;
  bool allow_changed_data = false;

  bool makes_another() const {
    return !checkpoint.empty() || steps > 0 || allow_changed_data || !plan_file.empty() ||
           !name.empty() || !labels.empty() || !settings.empty() || validate_only;
  }
};

/// What the command line says of a job, over what its file says.
void apply_options(const MakeOptions& options, JobSource* source) {
  if (!options.name.empty()) source->spec.set_name(options.name);
  if (!options.plan_file.empty()) source->use_plan(options.plan_file);
  for (const std::string& text : options.settings) source->set(parse_setting(text));
  for (const std::string& label : options.labels) add_label(label, source->spec.mutable_labels());
}

v1::SubmitJobResponse send_job(Client& client, const JobSource& source,
                               const std::string& request_id, bool validate_only) {
  v1::SubmitJobRequest request;
  request.set_request_id(request_id.empty() ? make_request_id() : request_id);
  request.set_validate_only(validate_only);
  *request.mutable_spec() = source.spec;
  try {
    return client.call(client.jobs(), &v1::JobService::Stub::SubmitJob, request);
  } catch (const CliError& error) {
    const auto& violations = error.details().violations();
    const std::string place = violations.empty() ? "" : source.place_of(violations[0].field());
    throw CliError(error.code(), place + error.what(), error.details());
  }
}

std::vector<std::string> warnings_of(const v1::SubmitJobResponse& response,
                                     const JobSource& source) {
  std::vector<std::string> lines;
  for (const std::string& warning : response.warnings())
    lines.push_back(fmt::format("{}warning: {}\n",
                                source.place_of(warning.substr(0, warning.find(": "))), warning));
  return lines;
}

FollowOptions follow_options(const CommandContext& context, const MakeOptions& options) {
  return {context.json, {context.colour(), options.verbose}, options.notify};
}

void print_dry_run(const v1::SubmitJobResponse& response, const std::string& source) {
  if (!response.job().name().empty()) {
    fmt::print("# {} was submitted with this request id as {}\n", source,
               short_name(response.job().name()));
    return;
  }
  v1::JobSpec resolved;
  resolved.set_name(response.job().spec().name());
  *resolved.mutable_run() = response.job().resolved();
  fmt::print("# {} is valid; with every default:\n{}", source, base::to_yaml(resolved));
  print_comment(response.estimate());
  if (const v1::DiskEstimate& disk = response.disk(); disk.needed_bytes() > 0)
    fmt::print("# disk: {} of {} at once{}, {} free\n", plural(disk.checkpoints(), "checkpoint"),
               bytes_text(disk.checkpoint_bytes()),
               disk.export_bytes() > 0 ? " and an export of " + bytes_text(disk.export_bytes())
                                       : std::string(),
               bytes_text(disk.free_bytes()));
}

ExitCode make_job(Client& client, const CommandContext& context, const MakeOptions& options,
                  const JobSource& source) {
  const auto response = send_job(client, source, options.request_id, options.validate_only);
  for (const std::string& line : warnings_of(response, source)) fmt::print(stderr, "{}", line);
  const v1::Job& job = response.job();
  if (options.validate_only) {
    if (context.json)
      print_json(response);
    else
      print_dry_run(response, options.source);
    return kOk;
  }
  if (options.follow) {
    if (!context.json) fmt::print("submitted as {}\n", short_name(job.name()));
    return follow_job(client, job.name(), follow_options(context, options));
  }
  if (context.json) {
    print_json(job);
  } else {
    fmt::print("submitted as {}; to follow it: meshloom job watch {}\n", short_name(job.name()),
               short_name(job.name()));
  }
  return kOk;
}

/// Every choice of one value for each field, the last field's values next to each other.
std::vector<std::vector<FieldSetting>> combinations(const std::vector<std::string>& sweeps) {
  std::vector<std::vector<FieldSetting>> all(1);
  for (const std::string& text : sweeps) {
    std::vector<std::vector<FieldSetting>> longer;
    for (const auto& chosen : all) {
      for (const FieldSetting& setting : parse_sweep(text)) {
        longer.push_back(chosen);
        longer.back().push_back(setting);
      }
    }
    all = std::move(longer);
    constexpr std::size_t kMostJobs = 1000;
    if (all.size() > kMostJobs)
      throw CliError(kUsage, fmt::format("--sweep: {} jobs, at most {} are queued at once",
                                         all.size(), kMostJobs));
  }
  return all;
}

/// One job of a sweep.
struct SweepJob {
  JobSource source;
  std::string request_id;
  std::string text;  ///< "optimizer.lr=1e-4, training.seed=2"
};

constexpr const char* kSweepLabel = "sweep";

/// The id of each job has its number behind it and must still be one.
std::string sweep_id(const std::string& given, std::size_t jobs) {
  if (given.empty()) return make_request_id();
  constexpr std::size_t kLongestId = 64;
  const std::size_t most = kLongestId - fmt::format("-{}", jobs).size();
  if (given.size() > most)
    throw CliError(kUsage, fmt::format("--request-id has {} characters, at most {} leave room for "
                                       "the numbers of the {} jobs of this sweep",
                                       given.size(), most, jobs));
  return given;
}

std::vector<SweepJob> sweep_jobs(const SubmitOptions& options, const JobSource& base) {
  const auto choices = combinations(options.sweeps);
  const std::string id = sweep_id(options.request_id, choices.size());
  const std::string& name = base.spec.name();
  const std::string label = name.empty() ? "sweep-" + id.substr(0, 8) : name;
  std::vector<SweepJob> jobs;
  for (const auto& chosen : choices) {
    SweepJob job{base, fmt::format("{}-{}", id, jobs.size() + 1), ""};
    if (!name.empty()) job.source.spec.set_name(fmt::format("{}-{}", name, jobs.size() + 1));
    for (const FieldSetting& setting : chosen) {
      job.source.set(setting);
      job.text += (job.text.empty() ? "" : ", ") + setting.text;
    }
    auto& labels = *job.source.spec.mutable_labels();
    if (labels.count(kSweepLabel) > 0)
      throw CliError(kUsage, fmt::format("the label {}={} is given, but with --sweep it names the "
                                         "sweep; choose another key",
                                         kSweepLabel, labels.at(kSweepLabel)));
    labels[kSweepLabel] = label;
    jobs.push_back(std::move(job));
  }
  return jobs;
}

/// What was checked or queued, which are the first of `jobs`.
void print_sweep(const CommandContext& context, const SubmitOptions& options,
                 const std::vector<SweepJob>& jobs, const v1::ListJobsResponse& made) {
  if (context.json && options.follow && !options.validate_only)
    return print_record(stream_record("jobs", made));
  if (context.json) return print_json(made);
  for (int i = 0; i < made.jobs_size(); ++i)
    fmt::print("{}: {}\n", options.validate_only ? "valid" : short_name(made.jobs(i).name()),
               jobs[static_cast<std::size_t>(i)].text);
  if (!options.validate_only)
    fmt::print("queued {} jobs; to compare them: meshloom job compare --label {}={}\n",
               made.jobs_size(), kSweepLabel, jobs.front().source.spec.labels().at(kSweepLabel));
}

/// Every job is checked before the first one is queued. Each warning is shown once.
v1::ListJobsResponse check_sweep(Client& client, const std::vector<SweepJob>& jobs) {
  v1::ListJobsResponse checked;
  std::set<std::string> shown;
  for (const SweepJob& job : jobs) {
    const auto response = send_job(client, job.source, job.request_id, true);
    for (const std::string& line : warnings_of(response, job.source))
      if (shown.insert(line).second) fmt::print(stderr, "{}", line);
    *checked.add_jobs() = response.job();
  }
  return checked;
}

/// Queues a job for every choice of values; none if a check of one fails. Of a submission that
/// fails all the same (the queue fills up, the daemon stops), what was queued before it is told.
ExitCode make_sweep(Client& client, const CommandContext& context, const SubmitOptions& options,
                    const JobSource& base) {
  const std::vector<SweepJob> jobs = sweep_jobs(options, base);
  v1::ListJobsResponse made = check_sweep(client, jobs);
  if (!options.validate_only) {
    made.clear_jobs();
    try {
      for (const SweepJob& job : jobs)
        *made.add_jobs() = send_job(client, job.source, job.request_id, false).job();
    } catch (const CliError&) {
      print_sweep(context, options, jobs, made);
      throw;
    }
  }
  if (!context.json || !options.follow || options.validate_only)
    print_sweep(context, options, jobs, made);
  ExitCode worst = kOk;
  if (options.follow && !options.validate_only) {
    for (const v1::Job& job : made.jobs()) {
      const ExitCode code = follow_job(client, job.name(), follow_options(context, options));
      if (code == kInterrupted) return code;
      if (worst == kOk) worst = code;
    }
  }
  return worst;
}

ExitCode submit(Client& client, const CommandContext& context, const SubmitOptions& options) {
  if (options.example) {
    if (context.json)
      print_json(base::parse_job_file(example_job(), "the example").spec);
    else
      fmt::print("{}", example_job());
    return kOk;
  }
  if (options.source.empty())
    throw CliError(kUsage,
                   "give a job file, or - for standard input; job submit --example shows one");
  JobSource source = JobSource::read(options.source);
  apply_options(options, &source);
  return options.sweeps.empty() ? make_job(client, context, options, source)
                                : make_sweep(client, context, options, source);
}

/// A paused job goes on; of one that has ended a new job that is the old one but for where it
/// begins.
ExitCode resume(Client& client, const CommandContext& context, const ResumeOptions& options) {
  const v1::Job job = get_job(client, options.source);
  if (job.state() == v1::JOB_STATE_PAUSED || job.state() == v1::JOB_STATE_PAUSING) {
    if (options.makes_another())
      throw CliError(kUsage,
                     fmt::format("job {} is paused and goes on as it is; `job edit` changes "
                                 "what is ahead of it",
                                 short_name(job.name())));
    const ExitCode code = resume_paused(client, context.json, job.name());
    return options.follow ? follow_job(client, job.name(), follow_options(context, options)) : code;
  }
  if (job.summary())
    throw CliError(kFailed,
                   fmt::format("job {0} ended long ago and is kept as a summary; submit {1}/"
                               "resolved.yaml with checkpoint: {{resume_from: checkpoints/{0}}}",
                               short_name(job.name()), job.output_dir()));
  JobSource source;
  source.spec = job.spec();
  source.spec.clear_name();
  source.spec.mutable_run()->mutable_checkpoint()->clear_resume_from();
  apply_options(options, &source);
  // Behind the settings, any of which may replace a whole message.
  v1::RunConfig& run = *source.spec.mutable_run();
  if (!run.checkpoint().resume_from().empty())
    throw CliError(kUsage, fmt::format("checkpoint.resume_from is given as {}, but job resume sets "
                                       "it; name a checkpoint of the job with --checkpoint",
                                       run.checkpoint().resume_from()));
  if (options.steps > 0) run.mutable_training()->set_steps(options.steps);
  if (options.allow_changed_data) run.mutable_data()->set_allow_changed(true);
  run.mutable_checkpoint()->set_resume_from(
      fmt::format("checkpoints/{}{}{}", short_name(job.name()),
                  options.checkpoint.empty() ? "" : "/", options.checkpoint));
  return make_job(client, context, options, source);
}

void add_making_options(CLI::App& command, MakeOptions& options) {
  command.add_option(
      "--plan", options.plan_file,
      "A YAML file with mesh and plan (configs/plans). Both are taken whole, instead "
      "of the job's; of the job's plan only dtype stays, where the file has none");
  command
      .add_option("--set", options.settings,
                  "FIELD=VALUE over what the job says, such as training.steps=50; may be given "
                  "several times. `meshloom fields` shows all fields")
      ->allow_extra_args(false);
  auto* follow = command.add_flag("--follow", options.follow,
                                  "Show its progress until it ends; Ctrl-C leaves it running");
  command.add_flag("--verbose,-v", options.verbose,
                   "With --follow: show in the end how the ranks held each parameter");
  command
      .add_flag("--notify", options.notify,
                "With --follow: ring the terminal's bell when the job has ended or is held")
      ->needs(follow);
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
  command->add_option("file", options->source,
                      "The job file, - for standard input; `meshloom fields` shows its keys");
  add_making_options(*command, *options);
  command->add_option("--name", options->name,
                      "Name of the job, instead of the file's or a made-up one");
  command
      ->add_option("--sweep", options->sweeps,
                   "FIELD=VALUE,VALUE...: queue a job for each value, all with one label (sweep); "
                   "given several times, for each choice of values. All are checked before the "
                   "first is queued; to queue what an interrupted sweep left out, repeat it with "
                   "the same --request-id")
      ->allow_extra_args(false);
  auto* example =
      command->add_flag("--example", options->example, "Print a job file to begin with");
  command->footer(
      "Examples:\n"
      "  meshloom job submit configs/jobs/byte_gpt_1m.yaml --follow\n"
      "  meshloom job submit job.yaml --set training.steps=50 --set data.path=text.txt\n"
      "  meshloom job submit job.yaml --name lr --sweep optimizer.lr=1e-4,3e-4,1e-3\n"
      "  meshloom job submit --example > job.yaml");
  // Not by excludes(), which would name this flag in the help of every other option.
  command->callback([&context, options, command, example] {
    for (const CLI::Option* other : command->get_options())
      if (options->example && other != example && other->count() > 0)
        throw CLI::ExcludesError("--example", other->get_name());
    context.action = [&context, options](Client& client) {
      return submit(client, context, *options);
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
      ->check(command_line::positive());
  command->add_flag("--allow-changed-data", options->allow_changed_data,
                    "Go on although the data are not those of the checkpoint (DATA_CHANGED)");
  add_making_options(*command, *options);
  command->add_option("--name", options->name, "Name of the new job, instead of a made-up one");
  command->footer("Example: meshloom job resume job-1 --plan configs/plans/fsdp2.yaml --follow");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return resume(client, context, *options);
    };
  });
}

}  // namespace

void add_job_submission(CLI::App& jobs, CommandContext& context) {
  add_submit(jobs, context);
  add_resume(jobs, context);
}

}  // namespace meshloom::cli
