// SPDX-License-Identifier: Apache-2.0
// DecisionCache: what a rank does for an op whose inputs have given layouts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon/dtensor/redistribute_specs.h"
#include "daemon/tensor/local_call.h"

namespace meshloom::dtensor {

/// Layouts are those of the engine's table.
struct Decided {
  planner::OpId op;
  planner::OpAttributes attributes;
  /// Each input goes from the layout that it comes with to the one that the local op takes it in,
  /// and its gradient back from how the op leaves the gradient to how that of a tensor in `from` is
  /// held, unless the tensor says otherwise. All null for one that is left out.
  std::vector<RedistributeSpecs> uses;
  planner::ShardingDecision decision;
  planner::OpAttributes local_attributes;
  /// Some output is Partial: its parts are communicated before it can be used.
  bool partial_outputs = false;
  const DistributedOp* implementation = nullptr;  ///< null: the op on local tensors is enough
  /// The inputs that are redistributed, with messages and without.
  std::vector<int> moved, sharded;
  std::vector<planner::LocalPart> parts;  ///< of the inputs, after redistribution
  std::unique_ptr<Decided> next;          ///< of the same hash
};

/// DecisionCache finds decisions by op, layouts (their addresses) and attributes. Used by one
/// thread; entries stay where they are.
class DecisionCache {
 public:
  /// Specs are layouts of the inputs; null if left out.
  using Specs = std::span<const planner::DTensorSpec* const>;

  /// Returns null if there is none.
  const Decided* find(planner::OpId op, Specs specs, const planner::OpAttributes& attributes) const;
  const Decided& insert(std::unique_ptr<Decided> decided);
  std::size_t size() const { return size_; }
  void clear() {
    entries_.clear();
    size_ = 0;
  }

 private:
  std::unordered_map<std::uint64_t, std::unique_ptr<Decided>> entries_;
  std::size_t size_ = 0;
};

}  // namespace meshloom::dtensor
