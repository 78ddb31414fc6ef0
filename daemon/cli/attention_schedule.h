// SPDX-License-Identifier: Apache-2.0
// The schedule of context-parallel attention as a table and as a picture.
#pragma once

#include <string>
#include <vector>

#include "planner/attention/schedule_blocks.h"
#include "v1/plan.pb.h"

namespace meshloom::cli {

/// The blocks of every step, by rank and step.
using ScheduleBlocks = std::vector<std::vector<std::vector<planner::AttentionBlock>>>;

void print_attention_schedule(const v1::AttentionSchedule& schedule, const ScheduleBlocks& blocks);
/// An SVG document: a row per rank, in it its steps one after the other, as wide as they are work.
std::string attention_schedule_svg(const v1::AttentionSchedule& schedule,
                                   const ScheduleBlocks& blocks);

}  // namespace meshloom::cli
