// SPDX-License-Identifier: Apache-2.0
// The schedule of context-parallel attention is shown as a table and as a picture.
#pragma once

#include <string>

#include "v1/plan.pb.h"

namespace meshloom::cli {

void print_attention_schedule(const v1::AttentionSchedule& schedule);
/// Returns an SVG document: a row per rank, in it its steps one after the other, as wide as they
/// are work.
std::string attention_schedule_svg(const v1::AttentionSchedule& schedule);

}  // namespace meshloom::cli
