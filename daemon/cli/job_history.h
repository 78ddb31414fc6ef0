// SPDX-License-Identifier: Apache-2.0
// What a job's metrics tell of its past, step by step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/cli/client.h"

namespace meshloom::cli {

struct JobHistory {
  v1::Job job;
  std::map<std::int64_t, double> losses;      ///< of training, by step; without those not finite
  std::map<std::int64_t, double> validation;  ///< the same
  /// The same of each of run.validation.sets, by its name.
  std::map<std::string, std::map<std::int64_t, double>> validation_sets;
  std::vector<double> rates;  ///< tokens per second of each step
};

/// The job and all its metrics so far.
JobHistory read_history(Client& client, const std::string& job);

/// Of the jobs that are named, in that order, then of those that have all of `labels`
/// ("KEY=VALUE"), oldest first; each once. Throws CliError (kUsage) if there are fewer than
/// `fewest`.
std::vector<JobHistory> read_histories(Client& client, const std::vector<std::string>& names,
                                       const std::vector<std::string>& labels, std::size_t fewest);

/// A line of metrics.jsonl. Lines of other kinds are passed over.
void add_metrics_line(const std::string& line, JobHistory* history);

/// The middle one; 0 of none.
double median(std::vector<double> values);

}  // namespace meshloom::cli
