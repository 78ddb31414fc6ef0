// SPDX-License-Identifier: Apache-2.0
// A plan of parallel styles as a case spells it.
#pragma once

#include "planner/plan/style.h"
#include "tests/conformance/case.h"

namespace meshloom::conformance {

/// A map of name pattern to style, or list of styles: a name, or an object with "style" and its
/// options. A layout is one placement, a list of them, or null. Throws InvalidArgument naming what
/// is wrong.
planner::StylePlan read_style_plan(const Json& plan, const planner::MeshLayout& mesh);

}  // namespace meshloom::conformance
