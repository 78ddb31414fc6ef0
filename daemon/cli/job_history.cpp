// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/job_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/cli/job_changes.h"
#include "daemon/cli/output.h"

namespace meshloom::cli {
namespace {

/// A loss that is NaN or infinite is null in the file.
void add_number(const nlohmann::json& entry, const char* key, std::int64_t step,
                std::map<std::int64_t, double>* values) {
  const auto found = entry.find(key);
  if (found != entry.end() && found->is_number()) (*values)[step] = found->get<double>();
}

}  // namespace

void add_metrics_line(const std::string& line, JobHistory* history) {
  const nlohmann::json entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!entry.is_object() || !entry.contains("step") || !entry["step"].is_number_integer()) return;
  const auto step = entry["step"].get<std::int64_t>();
  add_number(entry, "loss", step, &history->losses);
  add_number(entry, "validation_loss", step, &history->validation);
  constexpr std::string_view kOfSet = "validation_loss_";
  for (const auto& [key, unused] : entry.items())
    if (key.starts_with(kOfSet))
      add_number(entry, key.c_str(), step, &history->validation_sets[key.substr(kOfSet.size())]);
  const auto rate = entry.find("tokens_per_second");
  if (rate != entry.end() && rate->is_number()) history->rates.push_back(rate->get<double>());
}

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

}  // namespace meshloom::cli
