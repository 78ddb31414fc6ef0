// SPDX-License-Identifier: Apache-2.0
// ArgumentRule: into which layouts a style brings one tensor that goes into a module or comes out.
#pragma once

#include <vector>

#include "planner/plan/style.h"
#include "planner/plan/style_dims.h"

namespace meshloom::planner {

/// A rule says what happens to one tensor.
struct ArgumentRule {
  /// A plain tensor is taken to have this layout along the acting dims, whole along others; none:
  /// it stays plain.
  ArgumentLayout given = {};
  /// The tensor is brought into this layout along the acting dims; none: it keeps its layout.
  ArgumentLayout desired = {};
  bool to_local = false;  ///< then it becomes plain
  /// If a shard is gathered, its gradient comes back as summands (gathered_gradient).
  bool partial_grad = false;
  /// Features (the last dim) that the module shards: their number and how, by mesh dim; null
  /// entries for the ceil rule. Empty if the module does not shard them.
  std::int64_t features = 0;
  std::vector<DimOrderPtr> feature_orders = {};
};

/// Returns the layout of a plain tensor whose local part has shape `local`; the rule says what it
/// is taken to be. Throws InvalidArgument for a dim that the tensor has not.
SpecPtr given_spec(const ArgumentRule& rule, const Shape& local, const StyleDims& dims);
/// Returns the layout that a tensor of layout `from` is brought into; `from` itself if nothing
/// changes. The rule desires one. Throws InvalidArgument for a dim that the tensor has not.
SpecPtr desired_spec(const ArgumentRule& rule, const SpecPtr& from, const StyleDims& dims);
/// Returns how the gradient of a tensor may be held that was brought from `from` into `to` by
/// gathering: Partial if a shard became whole, so that going back is one reduce_scatter. Null if
/// nothing was gathered.
SpecPtr gathered_gradient(const SpecPtr& from, const SpecPtr& to);

}  // namespace meshloom::planner
