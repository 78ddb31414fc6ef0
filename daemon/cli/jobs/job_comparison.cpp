// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/jobs/job_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "daemon/base/message_printer.h"
#include "daemon/cli/jobs/job_changes.h"
#include "daemon/cli/output/output.h"

namespace meshloom::cli {
namespace {

using Json = nlohmann::ordered_json;
using Flat = std::map<std::string, std::string>;

/// A loss that is NaN or infinite is null in the file.
void add_number(const nlohmann::json& entry, const char* key, std::int64_t step,
                std::map<std::int64_t, double>* values) {
  const auto found = entry.find(key);
  if (found != entry.end() && found->is_number()) (*values)[step] = found->get<double>();
}

/// Lists are one value.
void flatten(const Json& value, const std::string& path, std::vector<std::string>* order,
             Flat* flat) {
  if (!value.is_object()) {
    if (flat->emplace(path, value.is_string() ? value.get<std::string>() : value.dump()).second)
      order->push_back(path);
    return;
  }
  for (const auto& [key, item] : value.items())
    flatten(item, path.empty() ? key : path + "." + key, order, flat);
}

using Losses = std::map<std::int64_t, double>;
using LossesOf = std::function<const Losses&(const JobHistory&)>;
using SetLosses = std::map<std::string, Losses>;
using CommonSetLosses = std::map<std::string, std::vector<CommonLosses>>;

/// Returns the losses at the steps that all jobs have done.
std::vector<CommonLosses> all_common(const std::vector<JobHistory>& jobs, const LossesOf& losses) {
  std::vector<CommonLosses> all;
  for (const auto& [step, loss] : losses(jobs.front())) {
    CommonLosses at{step, {}};
    for (const JobHistory& job : jobs) {
      const auto found = losses(job).find(step);
      if (found != losses(job).end()) at.losses.push_back(found->second);
    }
    if (at.losses.size() == jobs.size()) all.push_back(std::move(at));
  }
  return all;
}

bool are_alike(const CommonLosses& at) {
  return std::all_of(at.losses.begin(), at.losses.end(),
                     [&](double loss) { return loss == at.losses.front(); });
}

/// Sets alike_up_to and differ.
void find_difference(const std::vector<JobHistory>& jobs, JobComparison* result) {
  for (const CommonLosses& at :
       all_common(jobs, [](const JobHistory& job) -> const Losses& { return job.losses; })) {
    if (!are_alike(at)) {
      result->differ = true;
      return;
    }
    result->alike_up_to = at.step;
  }
}

/// Returns common losses from step `first` on.
std::vector<CommonLosses> common(const std::vector<JobHistory>& jobs, std::int64_t first,
                                 std::size_t most, const LossesOf& losses) {
  std::vector<CommonLosses> all = all_common(jobs, losses);
  std::erase_if(all, [&](const CommonLosses& at) { return at.step < first; });
  if (all.size() <= most) return all;
  std::vector<CommonLosses> some;
  for (std::size_t i = 0; i < most; ++i)
    some.push_back(std::move(all[i * (all.size() - 1) / (most - 1)]));
  return some;
}

/// Returns common losses for the sets that all jobs have.
CommonSetLosses common_of_sets(const std::vector<JobHistory>& jobs, std::int64_t first,
                               std::size_t most, SetLosses JobHistory::*sets) {
  CommonSetLosses all;
  for (const auto& [set, unused] : jobs.front().*sets) {
    const bool everywhere = std::all_of(
        jobs.begin(), jobs.end(), [&](const JobHistory& job) { return (job.*sets).contains(set); });
    if (everywhere)
      all[set] = common(jobs, first, most, [&](const JobHistory& job) -> const Losses& {
        return (job.*sets).at(set);
      });
  }
  return all;
}

/// The job and all its metrics so far.
JobHistory read_history(Client& client, const std::string& job) {
  JobHistory history;
  history.job = get_job(client, job);
  v1::StreamMetricsRequest request;
  request.set_name(job);
  grpc::ClientContext context;
  client.introduce(context);
  const auto stream = client.jobs().StreamMetrics(&context, request);
  for (v1::StreamMetricsResponse line; stream->Read(&line);)
    add_metrics_line(line.line(), &history);
  const grpc::Status status = stream->Finish();
  if (!status.ok()) client.fail(status);
  return history;
}

}  // namespace

void add_metrics_line(const std::string& line, JobHistory* history) {
  const nlohmann::json entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!entry.is_object() || !entry.contains("step") || !entry["step"].is_number_integer()) return;
  const auto step = entry["step"].get<std::int64_t>();
  add_number(entry, "loss", step, &history->losses);
  add_number(entry, "validation_loss", step, &history->validation);
  add_number(entry, "bits_per_byte", step, &history->bits);
  add_number(entry, "validation_bits_per_byte", step, &history->validation_bits);
  const auto add_sets = [&](std::string_view prefix, SetLosses* sets) {
    for (const auto& [key, unused] : entry.items())
      if (key.starts_with(prefix))
        add_number(entry, key.c_str(), step, &(*sets)[key.substr(prefix.size())]);
  };
  add_sets("validation_loss_", &history->validation_sets);
  add_sets("validation_bits_per_byte_", &history->validation_set_bits);
  const auto rate = entry.find("tokens_per_second");
  if (rate != entry.end() && rate->is_number()) history->rates.push_back(rate->get<double>());
}

std::vector<JobHistory> read_histories(Client& client, const std::vector<std::string>& names,
                                       const std::vector<std::string>& labels, std::size_t fewest) {
  std::vector<std::string> all;
  const auto add = [&](const std::string& name) {
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  };
  for (const std::string& name : names) add(short_name(name));
  if (!labels.empty()) {
    v1::ListJobsRequest request;
    for (const std::string& label : labels) add_label(label, request.mutable_labels());
    const auto found = client.list(client.jobs(), &v1::JobService::Stub::ListJobs, request);
    for (const v1::Job& job : found.jobs()) add(short_name(job.name()));
  }
  if (all.size() < fewest)
    throw CliError(kUsage, fmt::format("{} jobs are named, expected {} or more: give their names, "
                                       "or --label KEY=VALUE of them",
                                       all.size(), fewest));
  std::vector<JobHistory> histories;
  for (const std::string& name : all) histories.push_back(read_history(client, name));
  return histories;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

JobComparison compare(const std::vector<JobHistory>& jobs, std::size_t most_steps) {
  JobComparison result;
  std::vector<Flat> configs;
  std::vector<std::string> order;
  for (const JobHistory& history : jobs) {
    if (!history.job.has_resolved())
      result.without_config.push_back(short_name(history.job.name()));
    Flat flat;
    std::vector<std::string> own_order;
    flatten(base::to_json(history.job.resolved()), "", &own_order, &flat);
    // Fields that only later jobs have come behind those of earlier ones.
    for (const std::string& field : own_order) {
      bool known = false;
      for (const Flat& before : configs) known = known || before.contains(field);
      if (!known) order.push_back(field);
    }
    configs.push_back(std::move(flat));
  }
  for (const std::string& field : order) {
    DifferentField different{field, {}};
    bool equal = true;
    for (const Flat& config : configs) {
      const auto found = config.find(field);
      different.values.push_back(found == config.end() ? "-" : found->second);
      equal = equal && different.values.back() == different.values.front();
    }
    // Two fields for one difference would hide it: of data its digest tells.
    const bool shown = field != "data.identity.files";
    if (!equal && shown && result.without_config.empty())
      result.fields.push_back(std::move(different));
  }
  find_difference(jobs, &result);
  // Where nothing differs the steps that are alike are all there is to be told.
  const std::int64_t first = result.differ ? result.alike_up_to : 0;
  const auto common_of = [&](Losses JobHistory::*losses) {
    return common(jobs, first, most_steps,
                  [&](const JobHistory& job) -> const Losses& { return job.*losses; });
  };
  result.losses = common_of(&JobHistory::losses);
  result.validation = common_of(&JobHistory::validation);
  result.bits = common_of(&JobHistory::bits);
  result.validation_bits = common_of(&JobHistory::validation_bits);
  result.validation_sets = common_of_sets(jobs, first, most_steps, &JobHistory::validation_sets);
  result.validation_set_bits =
      common_of_sets(jobs, first, most_steps, &JobHistory::validation_set_bits);
  return result;
}

}  // namespace meshloom::cli
