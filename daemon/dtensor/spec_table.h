// SPDX-License-Identifier: Apache-2.0
// SpecTable: one object per layout, so that equal layouts are found by pointer.
#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "planner/dtensor_spec.h"

namespace meshloom::dtensor {

/// Keeps every layout it was given until forget_unused. Used by one thread.
class SpecTable {
 public:
  explicit SpecTable(planner::MeshPtr mesh) : mesh_(std::move(mesh)) {}

  /// Returns the table's own object for an equal layout. Throws InvalidArgument for one on another
  /// mesh.
  planner::SpecPtr intern(const planner::SpecPtr& spec);
  /// Returns the spec with Partial replaced by Replicate.
  planner::SpecPtr gradient_of(const planner::SpecPtr& spec);
  /// Returns the shared handle of one of the table's layouts.
  planner::SpecPtr find(const planner::DTensorSpec* spec) const { return known_.at(spec); }
  /// Returns the layout with R on every mesh dim.
  planner::SpecPtr replicated(const Shape& shape);
  /// Lets go of layouts that nobody else holds; the others stay the same objects.
  void forget_unused();
  std::size_t size() const { return specs_.size(); }

 private:
  struct ByValue {
    std::size_t operator()(const planner::SpecPtr& s) const {
      return static_cast<std::size_t>(s->hash());
    }
    bool operator()(const planner::SpecPtr& a, const planner::SpecPtr& b) const {
      return a == b || *a == *b;
    }
  };

  planner::MeshPtr mesh_;
  std::unordered_set<planner::SpecPtr, ByValue, ByValue> specs_;
  std::unordered_map<const planner::DTensorSpec*, planner::SpecPtr> known_;
  std::unordered_map<const planner::DTensorSpec*, planner::SpecPtr> gradients_;
};

}  // namespace meshloom::dtensor
