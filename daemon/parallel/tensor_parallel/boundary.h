// SPDX-License-Identifier: Apache-2.0
// Boundary: brings the tensors that go into a module, or come out of it, into layouts.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/parallel/tensor_parallel/style.h"
#include "daemon/parallel/tensor_parallel/style_mesh.h"

namespace meshloom::parallel {

/// What happens to one tensor.
struct ArgumentRule {
  /// What a plain tensor is taken to be along the acting dims, whole along others; none: it stays
  /// plain.
  ArgumentLayout given = {};
  /// What it is brought into along the acting dims; none: it keeps its layout.
  ArgumentLayout desired = {};
  bool to_local = false;  ///< then it becomes plain
  /// Where a shard is gathered, its gradient comes back as summands .
  bool partial_grad = false;
  /// Features (the last dim) that the module shards: their number and how, by mesh dim; null
  /// entries for the ceil rule. Empty where the module does not shard them.
  std::int64_t features = 0;
  std::vector<planner::DimOrderPtr> feature_orders = {};
};

/// Keeps the specs it has worked out. Used by one thread.
class Boundary {
 public:
  /// `where` names style and module in errors.
  Boundary(const StyleMesh& mesh, std::vector<ArgumentRule> rules, std::string where)
      : mesh_(mesh), rules_(std::move(rules)), where_(std::move(where)) {}

  /// Applies rule i to tensor i; tensors beyond the rules and undefined ones are left alone.
  void apply(std::span<Tensor> tensors);
  bool empty() const;

 private:
  void apply(Tensor& x, const ArgumentRule& rule);
  Tensor with_given_layout(const Tensor& x, const ArgumentRule& rule) const;
  planner::SpecPtr target(const Tensor& x, const ArgumentRule& rule);
  planner::SpecPtr make_spec(const planner::Placements& placements, const Shape& shape,
                             const ArgumentRule& rule) const;

  StyleMesh mesh_;
  std::vector<ArgumentRule> rules_;
  std::string where_;
  struct Known {
    planner::SpecPtr from;
    const ArgumentRule* rule;
    planner::SpecPtr to;
  };
  std::vector<Known> known_;
};

}  // namespace meshloom::parallel
