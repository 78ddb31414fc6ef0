// SPDX-License-Identifier: Apache-2.0
// What there is to choose from, out of the tables by which a choice is read.
#pragma once

#include <string>
#include <vector>

namespace meshloom::train {

struct OfferedLoss {
  std::string name;
  std::vector<std::string> config_keys;
};
/// Losses of verbs (losses.h).
std::vector<OfferedLoss> offered_losses();

/// run.plan.dtype, but for auto.
const std::vector<std::string>& offered_dtypes();
/// run.export.dtype.
const std::vector<std::string>& offered_export_dtypes();

}  // namespace meshloom::train
