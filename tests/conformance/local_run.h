// SPDX-License-Identifier: Apache-2.0
// What the kinds share: inputs from the file, and on one rank backward and results by name.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/case.h"

namespace meshloom::conformance {

/// Throws Unimplemented unless the mesh has one rank.
void require_one_rank(const Case&);

/// Whether the file asks for backward: it has any `grad_out.*`.
bool runs_backward(const TensorFile&);

/// `in.NAME`; a leaf that collects a gradient where the file has `grad.NAME` and any `grad_out.*`.
Tensor load_input(const TensorFile&, ExecutionContext&, const std::string& name);

/// Checks of the file that `load_input` and `finish_local` rely on: gradients only of floating
/// inputs among `inputs`, of their shape. Throws InvalidArgument naming the tensor.
void check_gradients(const TensorFile&, const std::vector<std::string>& inputs);

struct NamedTensor {
  std::string name;
  Tensor value;
};

/// Stores outputs, runs backward from the `grad_out.*` of the file, stores the gradients of inputs.
/// No communication took place. Throws InvalidArgument for a `grad_out` without output, or of
/// another shape or dtype.
void finish_local(const Case&, const TensorFile&, ExecutionContext&,
                  const std::vector<NamedTensor>& inputs, const std::vector<NamedTensor>& outputs,
                  CaseResults&);

}  // namespace meshloom::conformance
