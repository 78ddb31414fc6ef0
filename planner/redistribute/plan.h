// SPDX-License-Identifier: Apache-2.0
// RedistributePlan: the steps that take a tensor from one layout to another.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "planner/dtensor_spec.h"

namespace meshloom::planner {

/// The kind says what a step does with the group over its mesh dims. Shards may be uneven or empty.
/// The steps with shards put every element where local_part has it: one shard after the other in
/// group order along the tensor dim, unless a dim order shards it (exchange.h tells then).
enum class StepKind : std::uint8_t {
  /// P -> R: sums in group order. Its dims are of one Partial op, but sum and avg may be mixed: the
  /// sum is divided by the product of the avg dims.
  kAllReduce,
  kReduceScatter,   ///< P -> S(d), the same sums; its dims become the last shardings of d
  kAllGather,       ///< S(d) -> R; its dims were the last shardings of d
  kAllToAll,        ///< S -> S on each of its dims, other tensor dims or another order of shardings
  kSlice,           ///< R -> S; local
  kToPartial,       ///< R -> P(sum), or S -> P(sum) into zeros; local
  kConvertPartial,  ///< P(sum) <-> P(avg); local
  kSendRecv,        ///< direct messages between any two layouts without Partial, also across meshes
};

/// Returns "all_reduce", "slice"
const char* step_name(StepKind);
/// Returns true for kinds that need no other rank.
bool is_local(StepKind);

/// RedistributeStep is one step. All ranks that differ only along `mesh_dims` do it together; more
/// than one mesh dim means that they are flattened (row-major in the listed order) into one group.
struct RedistributeStep {
  StepKind kind = StepKind::kSlice;
  std::vector<int> mesh_dims;
  SpecPtr from;  ///< the layout before this step
  SpecPtr to;    ///< and after it
  double cost = 0.0;
  std::int64_t bytes = 0;  ///< sent by the busiest rank

  std::string to_string() const;
};

struct RedistributePlan {
  SpecPtr from, to;
  std::vector<RedistributeStep> steps;  ///< empty: nothing to do
  double cost = 0.0;

  /// Returns the number of collectives, that is steps that are not local.
  int comm_count() const;
  /// Returns one line per step: "all_gather over 0: [S(0), R] -> [R, R] (3072 bytes)".
  std::string to_string() const;
};

using PlanPtr = std::shared_ptr<const RedistributePlan>;

}  // namespace meshloom::planner
