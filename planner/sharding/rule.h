// SPDX-License-Identifier: Apache-2.0
// OpRule: what one mesh dim may do in an op.
//
// Three kinds of strategy, over one mesh dim each:
//   - replicate: every input and output R (always legal, always the first);
//   - an axis: the tensors that show it are sharded along it, other inputs are R and get a
//   Partial(sum)
//     gradient (each rank sees its share of the axis only), other outputs are `reduced`;
//   - partial: inputs and outputs as listed; inputs that are R get a Partial(sum) gradient.
// An N-D mesh runs one strategy per mesh dim; two mesh dims with the same axis shard it one after
// the other. That is the form of einsum, to which every op here comes down: an axis is an index.
#pragma once

#include <optional>
#include <vector>

#include "planner/sharding/axis_sharding.h"
#include "planner/sharding/op_call.h"

namespace meshloom::planner {

struct ShardAxis {
  std::int64_t size = 0;         ///< flat
  std::vector<AxisUse> inputs;   ///< one per input
  std::vector<AxisUse> outputs;  ///< one per output
  Placement reduced = Placement::partial_of(PartialOp::kSum);
  bool contiguous = false;                      ///< every part must be one range
  bool nonempty = false;                        ///< no part may be empty
  std::optional<MeshRole> role = std::nullopt;  ///< of a mesh dim that shards it
};

struct PartialStrategy {
  Placements inputs, outputs;
  std::optional<MeshRole> role = std::nullopt;
};

struct OpRule {
  std::vector<Shape> outputs;  ///< global shapes
  std::vector<ShardAxis> axes;
  std::vector<PartialStrategy> partials;
};

/// Returns the dim in which input (output) `index` shows dim `dim` of input `source` as it is,
/// element by element; -1 if it does not: there the op mixes the dim's elements, drops or regroups
/// them.
int same_dim_of_input(const OpRule& rule, std::size_t source, int dim, std::size_t index);
int same_dim_of_output(const OpRule& rule, std::size_t source, int dim, std::size_t index);

/// Throws InvalidArgument naming the op for shapes that it does not take.
OpRule make_rule(const OpCall& call);

}  // namespace meshloom::planner
