// SPDX-License-Identifier: Apache-2.0
// A comparison puts jobs side by side: what their metrics tell of their past, what their configs
// differ in, and what became of them.
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
  /// The same in bits by byte of text, where it is known.
  std::map<std::int64_t, double> bits, validation_bits;
  std::map<std::string, std::map<std::int64_t, double>> validation_set_bits;
  std::vector<double> rates;  ///< tokens per second of each step
};

/// Reads the jobs that are named, in that order, then those that have all of `labels`
/// ("KEY=VALUE"), oldest first; each once. Throws CliError (kUsage) if there are fewer than
/// `fewest`.
std::vector<JobHistory> read_histories(Client& client, const std::vector<std::string>& names,
                                       const std::vector<std::string>& labels, std::size_t fewest);

/// Adds a line of metrics.jsonl. Lines of other kinds are passed over.
void add_metrics_line(const std::string& line, JobHistory* history);

/// Returns the middle one; 0 of none.
double median(std::vector<double> values);

/// DifferentField is a field that not all jobs have alike, with its value in each; "-" where a job
/// does not have it.
struct DifferentField {
  std::string field;  ///< "optimizer.lr"
  std::vector<std::string> values;
};

/// CommonLosses are the losses of all jobs at one step.
struct CommonLosses {
  std::int64_t step = 0;
  std::vector<double> losses;
};

struct JobComparison {
  std::vector<DifferentField> fields;
  /// Up to this step all have the same losses of training, as jobs have that one of them goes on
  /// from; 0: they differ at the first. Losses are told from it on.
  std::int64_t alike_up_to = 0;
  bool differ = false;                   ///< at some step behind it that all have done
  std::vector<CommonLosses> losses;      ///< of training, at most `most_steps`
  std::vector<CommonLosses> validation;  ///< the same
  /// The same of validation sets that all jobs have, by name.
  std::map<std::string, std::vector<CommonLosses>> validation_sets;
  /// The same in bits by byte of text: what compares where tokens differ.
  std::vector<CommonLosses> bits, validation_bits;
  std::map<std::string, std::vector<CommonLosses>> validation_set_bits;
  /// Jobs whose configs the daemon no longer keeps: what they differ in is not known.
  std::vector<std::string> without_config;
};

/// Compares resolved configs, and losses at some of the steps that all jobs have done: from the one
/// on up to which they are alike, the first, the last and some evenly between them.
JobComparison compare(const std::vector<JobHistory>& jobs, std::size_t most_steps);

}  // namespace meshloom::cli
