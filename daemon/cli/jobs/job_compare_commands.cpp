// SPDX-License-Identifier: Apache-2.0
// job compare and plot: what became of jobs, side by side.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/base/files.h"
#include "daemon/cli/jobs/job_commands.h"
#include "daemon/cli/jobs/job_comparison.h"
#include "daemon/cli/output/chart.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/output/terminal.h"

namespace meshloom::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CompareOptions {
  std::vector<std::string> jobs, labels;
  std::size_t steps = 12;
};

struct PlotOptions {
  std::vector<std::string> jobs, labels;
  std::string out;
  bool validation = false, bits = false;
  std::string set;  ///< of run.validation.sets; empty: run.data's validation data
  int rows = 20;
};

Json json_of(const std::vector<CommonLosses>& losses) {
  Json all = Json::array();
  for (const CommonLosses& at : losses) all.push_back({{"step", at.step}, {"losses", at.losses}});
  return all;
}

void print_comparison_json(const std::vector<JobHistory>& jobs, const JobComparison& comparison) {
  Json all;
  all["jobs"] = Json::array();
  for (const JobHistory& history : jobs)
    all["jobs"].push_back({{"name", history.job.name()},
                           {"state", state_name(history.job.state())},
                           {"step", history.job.step()},
                           {"steps", history.job.steps()},
                           {"tokens_per_second", median(history.rates)}});
  all["config"] = Json::array();
  for (const DifferentField& different : comparison.fields)
    all["config"].push_back({{"field", different.field}, {"values", different.values}});
  all["without_config"] = comparison.without_config;
  all["alike_up_to_step"] = comparison.alike_up_to;
  all["differ"] = comparison.differ;
  all["losses"] = json_of(comparison.losses);
  all["validation"] = json_of(comparison.validation);
  for (const auto& [set, losses] : comparison.validation_sets)
    all["validation_sets"][set] = json_of(losses);
  all["bits_per_byte"] = json_of(comparison.bits);
  all["validation_bits_per_byte"] = json_of(comparison.validation_bits);
  for (const auto& [set, losses] : comparison.validation_set_bits)
    all["validation_sets_bits_per_byte"][set] = json_of(losses);
  fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
}

void add_losses(const std::string& what, const std::vector<CommonLosses>& losses,
                std::vector<std::vector<std::string>>* rows) {
  for (const CommonLosses& at : losses) {
    rows->push_back({fmt::format("{} at step {}", what, at.step)});
    for (const double loss : at.losses) rows->back().push_back(fmt::format("{:.4f}", loss));
  }
}

ExitCode compare_jobs(Client& client, bool json, const CompareOptions& options) {
  const auto jobs = read_histories(client, options.jobs, options.labels, 2);
  const JobComparison comparison = compare(jobs, options.steps);
  if (json) {
    print_comparison_json(jobs, comparison);
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{{""}, {"state"}, {"step"}, {"tokens/s, median"}};
  for (const JobHistory& history : jobs) {
    rows[0].push_back(short_name(history.job.name()));
    rows[1].push_back(state_name(history.job.state()));
    rows[2].push_back(fmt::format("{}/{}", history.job.step(), history.job.steps()));
    rows[3].push_back(fmt::format("{:.0f}", median(history.rates)));
  }
  for (const DifferentField& different : comparison.fields) {
    rows.push_back({different.field});
    rows.back().insert(rows.back().end(), different.values.begin(), different.values.end());
  }
  add_losses("loss", comparison.losses, &rows);
  add_losses("validation loss", comparison.validation, &rows);
  for (const auto& [set, losses] : comparison.validation_sets)
    add_losses("validation loss on " + set, losses, &rows);
  add_losses("bits/byte", comparison.bits, &rows);
  add_losses("validation bits/byte", comparison.validation_bits, &rows);
  for (const auto& [set, losses] : comparison.validation_set_bits)
    add_losses("validation bits/byte on " + set, losses, &rows);
  print_table(rows);
  for (const std::string& name : comparison.without_config)
    fmt::print("the config of {} is no longer kept, so that differences are not shown\n", name);
  if (comparison.losses.empty())
    fmt::print("no step was done by all of them\n");
  else if (comparison.alike_up_to > 1)
    fmt::print("the losses are the same up to step {}{}\n", comparison.alike_up_to,
               comparison.differ ? ", and differ behind it" : ", the last that all have done");
  return kOk;
}

void write_chart(const std::string& file, const std::string& svg) {
  const std::string kind = std::filesystem::path(file).extension().string();
  if (kind != ".svg")
    throw CliError(kUsage, fmt::format("--out {}: \"{}\" is not offered, expected a name that ends "
                                       "with .svg",
                                       file, kind));
  base::ReplacementFile out(file, 0644);
  out.write(svg);
  out.commit();
  fmt::print("{}\n", file);
}

/// Empty for a set that the job does not have.
std::map<std::int64_t, double> curve_of(const JobHistory& history, const PlotOptions& options) {
  if (options.set.empty()) {
    if (options.bits) return options.validation ? history.validation_bits : history.bits;
    return options.validation ? history.validation : history.losses;
  }
  const auto& sets = options.bits ? history.validation_set_bits : history.validation_sets;
  const auto found = sets.find(options.set);
  return found == sets.end() ? std::map<std::int64_t, double>() : found->second;
}

ExitCode plot_jobs(const CommandContext& context, Client& client, const PlotOptions& options) {
  const auto jobs = read_histories(client, options.jobs, options.labels, 1);
  const std::string unit = options.bits ? "bits/byte" : "loss";
  const std::string what = !options.set.empty() ? "validation " + unit + " on " + options.set
                           : options.validation ? "validation " + unit
                                                : unit;
  std::vector<Curve> curves;
  std::string names;
  for (const JobHistory& history : jobs) {
    const std::string name = short_name(history.job.name());
    curves.push_back({name, curve_of(history, options)});
    names += (names.empty() ? "" : ", ") + name;
  }
  if (context.json) {
    Json all = Json::array();
    for (const Curve& curve : curves) {
      Json points = Json::array();
      for (const auto& [step, value] : curve.points) points.push_back({step, value});
      all.push_back({{"job", curve.name}, {"of", what}, {"points", points}});
    }
    fmt::print("{}\n", Json{{"curves", all}}.dump());
    return kOk;
  }
  const ChartOptions chart = {terminal_columns(STDOUT_FILENO), options.rows, context.colour()};
  const std::string text = options.out.empty()
                               ? braille_chart(curves, chart)
                               : svg_chart(curves, fmt::format("{} of {}", what, names));
  if (text.empty()) throw CliError(kFailed, fmt::format("{} have no {} yet", names, what));
  if (options.out.empty())
    fmt::print("{} by step\n{}", what, text);
  else
    write_chart(options.out, text);
  return kOk;
}

template <typename Options>
std::shared_ptr<Options> add_jobs_options(CLI::App& command) {
  auto options = std::make_shared<Options>();
  command.add_option("jobs", options->jobs, "The jobs");
  command.add_option("--label", options->labels, "All jobs with this KEY=VALUE, such as a sweep's")
      ->allow_extra_args(false);
  return options;
}

}  // namespace

void add_job_comparison(CLI::App& jobs, CommandContext& context) {
  auto* compare_command = jobs.add_subcommand(
      "compare", "Jobs side by side: where their configs differ, losses at common steps, tokens/s");
  const auto compared = add_jobs_options<CompareOptions>(*compare_command);
  compare_command->add_option("--steps", compared->steps, "Steps to show at most")
      ->check(CLI::Range(2, 10'000))
      ->capture_default_str();
  compare_command->footer(
      "Examples:\n  meshloom job compare job-1 job-2\n"
      "  meshloom job compare --label sweep=lr");
  compare_command->callback([&context, compared] {
    context.action = [&context, compared](Client& client) {
      return compare_jobs(client, context.json, *compared);
    };
  });

  auto* plot_command = jobs.add_subcommand("plot", "The loss of jobs over their steps as a chart");
  const auto plotted = add_jobs_options<PlotOptions>(*plot_command);
  plot_command->add_option("--out", plotted->out, "A file to write instead: NAME.svg");
  plot_command->add_flag("--validation", plotted->validation, "Validation losses");
  plot_command->add_flag("--bits-per-byte", plotted->bits,
                         "Losses in bits by byte of text, which compare across tokenizers");
  plot_command->add_option("--validation-set", plotted->set,
                           "Validation losses on this one of run.validation.sets");
  plot_command->add_option("--rows", plotted->rows, "Lines of the chart")
      ->check(CLI::Range(4, 200))
      ->capture_default_str();
  plot_command->footer(
      "Examples:\n  meshloom job plot job-1 job-2\n"
      "  meshloom job plot --label sweep=lr --out lr.svg");
  plot_command->callback([&context, plotted] {
    context.action = [&context, plotted](Client& client) {
      return plot_jobs(context, client, *plotted);
    };
  });
}

}  // namespace meshloom::cli
