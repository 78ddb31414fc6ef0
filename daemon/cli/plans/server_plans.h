// SPDX-License-Identifier: Apache-2.0
// The daemon computes these plans, for its models and ranks.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/cli/client.h"
#include "v1/plan.pb.h"

namespace meshloom::cli {

/// Reads how a model is named: "models/NAME" is a model of the daemon, what has a slash a folder
/// and what ends with ".json" a config below its data dir, all else a preset.
v1::ModelSource server_model(const std::string& text);

v1::PlanDescription describe_plan(Client& client, const std::string& model,
                                  const v1::PlanQuery& query, std::int64_t rank);
v1::PlanEstimate estimate_plan(Client& client, const std::string& model,
                               const v1::PlanQuery& query);
v1::PlanSearch search_plans(Client& client, const std::string& model,
                            const v1::PlanSearchQuery& query);

}  // namespace meshloom::cli
