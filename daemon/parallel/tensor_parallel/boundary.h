// SPDX-License-Identifier: Apache-2.0
// Boundary: brings the tensors that go into a module, or come out of it, into layouts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "daemon/parallel/tensor_parallel/style_mesh.h"
#include "planner/plan/argument_rule.h"

namespace meshloom::parallel {

/// Keeps the specs it has worked out. Used by one thread.
class Boundary {
 public:
  /// `where` names style and module in errors.
  Boundary(const StyleMesh& mesh, std::vector<planner::ArgumentRule> rules, std::string where)
      : mesh_(mesh), rules_(std::move(rules)), where_(std::move(where)) {}

  /// Applies rule i to tensor i; tensors beyond the rules and undefined ones are left alone.
  void apply(std::span<Tensor> tensors);
  bool empty() const;

 private:
  planner::SpecPtr target(const Tensor& x, const planner::ArgumentRule& rule);

  StyleMesh mesh_;
  std::vector<planner::ArgumentRule> rules_;
  std::string where_;
  struct Known {
    planner::SpecPtr from;
    const planner::ArgumentRule* rule;
    planner::SpecPtr to;
  };
  std::vector<Known> known_;
};

}  // namespace meshloom::parallel
