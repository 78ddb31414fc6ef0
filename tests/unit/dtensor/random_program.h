// SPDX-License-Identifier: Apache-2.0
// Random programs of tensor ops, to be run on one rank and on many.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "daemon/tensor/tensor.h"

namespace meshloom::dtensor {

/// An input of a program. Values are held as double whatever the dtype.
struct Leaf {
  Shape shape;
  std::vector<double> values;
  DType dtype = DType::kFloat64;
  bool requires_grad = false;

  Tensor make(ExecutionContext& context) const;
};

/// A leaf or a result of a step, each numbered from 0 in order of making.
struct Ref {
  enum class Kind { kNone, kLeaf, kResult } kind = Kind::kNone;
  std::size_t index = 0;
};

struct Step {
  std::string text;
  std::vector<Ref> inputs;  ///< kNone: an undefined tensor
  std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)> run;
};

struct Program {
  std::vector<Leaf> leaves;
  std::vector<Step> steps;
  std::vector<std::size_t> outputs;  ///< results that backward starts from
  std::vector<std::vector<double>> output_grads;
  /// Some step computes in float32.
  bool single_precision = false;
  /// Some step exchanges once per chunk of its rows: ranks with fewer rows do it less often.
  bool chunked = false;
  /// Some step asks for another layout.
  bool redistributes = false;

  /// The results of all steps on leaves that the caller made.
  std::vector<Tensor> run(const std::vector<Tensor>& made) const;
  std::string to_string() const;
};

/// One to four steps over small uneven shapes; the same for the same state of `rng`.
Program random_program(std::mt19937_64& rng);

}  // namespace meshloom::dtensor
