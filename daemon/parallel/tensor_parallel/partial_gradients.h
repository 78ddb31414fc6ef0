// SPDX-License-Identifier: Apache-2.0
// PartialGradients: gradients of which every rank of tp holds a summand, summed over tp.
#pragma once

#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/nn/module.h"
#include "daemon/tensor/tensor.h"

namespace meshloom::parallel {

/// Which parameters those are, the plan says (TensorLayout::grad_spec): norms and biases of modules
/// that compute on a part of the tokens.
class PartialGradients {
 public:
  /// `parameters` are what a rank keeps (DataParallel::parameters), of_model the model's tensors in
  /// the same order; a tensor without a layout has no summands. Both the same on every rank of
  /// `tensor`. Context, group and parameters outlive this.
  PartialGradients(ExecutionContext& context, comm::ProcessGroup& tensor,
                   std::vector<nn::NamedParameter> parameters, std::vector<Tensor> of_model);

  /// Once a step, after data parallelism has summed the gradients; every rank of the group calls
  /// it. One all_reduce of all of them, none if there are none.
  void sum();

 private:
  ExecutionContext& context_;
  comm::ProcessGroup& tensor_;
  std::vector<nn::NamedParameter> parameters_;
  std::vector<Tensor> of_model_;  ///< by parameter
};

}  // namespace meshloom::parallel
