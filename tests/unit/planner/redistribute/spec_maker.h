// SPDX-License-Identifier: Apache-2.0
// Layouts for the tests of redistribution, written out or drawn at random.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "planner/dtensor_spec.h"

namespace meshloom::planner {

MeshPtr make_mesh(const std::vector<int>& sizes);
/// Makes placements from texts like "S(0)".
Placements make_placements(const std::vector<std::string>& texts);
SpecPtr make_spec(const MeshPtr& mesh, const std::vector<std::string>& texts, const Shape& shape,
                  const ShardOrder& order = {}, const std::vector<DimOrderPtr>& dim_orders = {});

struct SpecDraw {
  bool partial = true;
  bool orders = true;  ///< shard orders other than left to right
  bool dim_orders = false;
  bool by_row = false;  ///< dim orders that differ per row of another dim too
};

/// Any layout of `shape` on `mesh`.
SpecPtr draw_spec(std::mt19937& random, const MeshPtr& mesh, const Shape& shape,
                  const SpecDraw& draw);
/// One that `from` may be redistributed to.
SpecPtr draw_target(std::mt19937& random, const DTensorSpec& from, const SpecDraw& draw);

/// Up to `most_dims` mesh dims of sizes 1 to 3.
MeshPtr draw_mesh(std::mt19937& random, int most_dims);
/// One to three dims, sizes 0 to 7: mostly uneven, often smaller than the mesh.
Shape draw_shape(std::mt19937& random);

}  // namespace meshloom::planner
