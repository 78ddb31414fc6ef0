// SPDX-License-Identifier: Apache-2.0
// Jobs side by side: what their configs differ in, and what became of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/cli/job_history.h"

namespace meshloom::cli {

/// A field that not all jobs have alike, with its value in each; "-" where a job does not have it.
struct DifferentField {
  std::string field;  ///< "optimizer.lr"
  std::vector<std::string> values;
};

/// Losses of all jobs at one step.
struct CommonLosses {
  std::int64_t step = 0;
  std::vector<double> losses;
};

struct JobComparison {
  std::vector<DifferentField> fields;
  std::vector<CommonLosses> losses;      ///< of training, at most `most_steps`
  std::vector<CommonLosses> validation;  ///< the same
  /// The same of validation sets that all jobs have, by name.
  std::map<std::string, std::vector<CommonLosses>> validation_sets;
  /// Jobs whose configs the daemon no longer keeps: what they differ in is not known.
  std::vector<std::string> without_config;
};

/// Of resolved configs. Of the steps that all jobs have done, the first, the last and some evenly
/// between them.
JobComparison compare(const std::vector<JobHistory>& jobs, std::size_t most_steps);

}  // namespace meshloom::cli
