// SPDX-License-Identifier: Apache-2.0
// StyleMaker: what architectures write their default styles with.
#pragma once

#include <string>
#include <utility>

#include "planner/plan/style.h"

namespace meshloom::nn {

/// Makes the default styles of one model for a mesh of one dim. Patterns are names of modules.
class StyleMaker {
 public:
  explicit StyleMaker(bool sequence_parallel)
      : sequence_parallel_(sequence_parallel),
        stream_(
            {sequence_parallel ? planner::Placement::shard(1) : planner::Placement::replicate()}) {}

  /// Adds modules that are sharded by output features; the input is the residual stream's.
  void columns(const std::string& pattern) {
    add(pattern, {.kind = planner::StyleKind::kColwise,
                  .input_layouts = stream(),
                  .use_local_output = false});
  }
  /// Adds the output projection; logits are whole.
  void output(const std::string& pattern) {
    add(pattern, {.kind = planner::StyleKind::kColwise,
                  .input_layouts = stream(),
                  .output_layouts = whole(),
                  .use_local_output = false});
  }
  /// Adds modules that are sharded by input features, which come sharded; the output joins the
  /// residual stream.
  void rows(const std::string& pattern) {
    add(pattern, {.kind = planner::StyleKind::kRowwise,
                  .output_layouts = stream(),
                  .use_local_output = false});
  }
  /// Adds a table by rows, looked up with ids that every rank has.
  void vocabulary(const std::string& pattern) {
    add(pattern, {.kind = planner::StyleKind::kRowwise,
                  .input_layouts = whole(),
                  .output_layouts = stream(),
                  .use_local_output = false});
  }
  /// Adds a module whose parameters every rank has, run on each rank's part of the sequence.
  void positions(const std::string& pattern) {
    if (sequence_parallel_) add(pattern, {.kind = planner::StyleKind::kSequence});
  }
  /// Adds a module whose parts all take the whole sequence: gathered once.
  void gathered(const std::string& pattern) {
    if (!sequence_parallel_) return;
    add(pattern, {.kind = planner::StyleKind::kPrepareInput,
                  .input_layouts = stream(),
                  .desired_input_layouts = whole()});
  }
  /// Adds modules that are sharded by output features inside a module that was gathered.
  void inner_columns(const std::string& pattern) {
    add(pattern, {.kind = planner::StyleKind::kColwise, .use_local_output = false});
  }

  planner::StylePlan take() { return std::move(plan_); }

 private:
  void add(const std::string& pattern, planner::ParallelStyle style) {
    plan_.push_back({pattern, {std::move(style)}});
  }
  planner::ArgumentLayouts stream() const { return {stream_}; }
  planner::ArgumentLayouts whole() const {
    return {planner::Placements{planner::Placement::replicate()}};
  }

  bool sequence_parallel_;
  planner::Placements stream_;
  planner::StylePlan plan_;
};

}  // namespace meshloom::nn
