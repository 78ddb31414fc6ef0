// SPDX-License-Identifier: Apache-2.0
// The legal one-step transitions between layouts: those of PyTorch's DTensor (a mesh dim at a time,
// and of the mesh dims that shard a tensor dim only the last may move), with Partial as DESIGN's
// decision 20 has it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/redistribute/search_space.h"

namespace meshloom::planner {

/// Throws InvalidArgument, its text holding "partial", if a mesh dim would change into a Partial
/// that it may not become: S and R become P(sum) alone, P(sum) and P(avg) change into each other.
void check_partial_changes(const DTensorSpec& from, const DTensorSpec& to);

/// AllowedShards has by mesh dim the tensor dims (a bit each) that it may shard on the way.
using AllowedShards = std::array<std::uint8_t, kMaxSearchDims>;

/// Returns the kind of step that takes one mesh dim from a hold to another; none if there is no
/// such step.
std::optional<StepKind> step_between(HoldCode from, HoldCode to);

/// Appends all one-step transitions from `state`. Into Partial only if the goal asks for it.
void append_one_step_moves(const SearchSpace&, const AllowedShards&, const LayoutState& state,
                           std::vector<Move>& moves);

}  // namespace meshloom::planner
