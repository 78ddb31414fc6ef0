// SPDX-License-Identifier: Apache-2.0
// Estimates and searches are printed as tables.
#pragma once

#include <string>

#include "v1/plan.pb.h"

namespace meshloom::cli {

void print_traffic(const google::protobuf::RepeatedPtrField<v1::TrafficEstimate>& traffic);
void print_estimate(const std::string& model, const v1::PlanEstimate& estimate);
/// Prints an estimate as comments behind a config: memory, and time where it is known.
void print_comment(const v1::PlanEstimate& estimate);
void print_description(const v1::PlanDescription& description);
void print_search(const v1::PlanSearch& search);

}  // namespace meshloom::cli
