// SPDX-License-Identifier: Apache-2.0
// Goodput is what the time of a job comes to that it has not lost.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "v1/metrics.pb.h"

namespace meshloom::base {

/// Adds to what was lost to `cause`, a field of v1::LostSeconds.
void add_lost(const std::string& cause, double seconds, v1::Goodput* goodput);
/// Causes and seconds, without causes of none, in the order of the fields.
std::vector<std::pair<std::string, double>> lost_seconds(const v1::Goodput& goodput);
/// All of the time together.
double total_seconds(const v1::Goodput& goodput);
/// The share of it that was productive; 0 of none.
double productive_share(const v1::Goodput& goodput);
/// "93.1 % of 120 s; lost: queue 3.2 s, start 2 s", the most first, what is less than a hundredth
/// of a second left out; empty of none.
std::string goodput_text(const v1::Goodput& goodput);

}  // namespace meshloom::base
