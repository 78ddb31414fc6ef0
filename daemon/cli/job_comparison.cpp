// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/job_comparison.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "daemon/base/message_printer.h"
#include "daemon/cli/output.h"

namespace meshloom::cli {
namespace {

using Json = nlohmann::ordered_json;
using Flat = std::map<std::string, std::string>;

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

/// Two fields for one difference would hide it: of data its digest tells.
bool is_shown(const std::string& field) { return field != "data.identity.files"; }

using Losses = std::map<std::int64_t, double>;

std::vector<CommonLosses> common(const std::vector<JobHistory>& jobs, std::size_t most,
                                 const std::function<const Losses&(const JobHistory&)>& losses) {
  std::vector<CommonLosses> all;
  for (const auto& [step, loss] : losses(jobs.front())) {
    CommonLosses at{step, {}};
    for (const JobHistory& job : jobs) {
      const auto found = losses(job).find(step);
      if (found != losses(job).end()) at.losses.push_back(found->second);
    }
    if (at.losses.size() == jobs.size()) all.push_back(std::move(at));
  }
  if (all.size() <= most) return all;
  std::vector<CommonLosses> some;
  for (std::size_t i = 0; i < most; ++i)
    some.push_back(std::move(all[i * (all.size() - 1) / (most - 1)]));
  return some;
}

}  // namespace

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
    if (!equal && is_shown(field) && result.without_config.empty())
      result.fields.push_back(std::move(different));
  }
  result.losses =
      common(jobs, most_steps, [](const JobHistory& job) -> const Losses& { return job.losses; });
  result.validation = common(jobs, most_steps,
                             [](const JobHistory& job) -> const Losses& { return job.validation; });
  for (const auto& [set, unused] : jobs.front().validation_sets) {
    const bool everywhere = std::all_of(jobs.begin(), jobs.end(), [&](const JobHistory& job) {
      return job.validation_sets.contains(set);
    });
    if (everywhere)
      result.validation_sets[set] = common(
          jobs, most_steps,
          [&](const JobHistory& job) -> const Losses& { return job.validation_sets.at(set); });
  }
  return result;
}

}  // namespace meshloom::cli
