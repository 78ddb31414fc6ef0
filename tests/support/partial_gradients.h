// SPDX-License-Identifier: Apache-2.0
// The gradients of a parallel model made whole, as a run does after backward.
#pragma once

#include <vector>

#include "daemon/parallel/parallelize_model.h"
#include "daemon/parallel/tensor_parallel/partial_gradients.h"

namespace meshloom::testing {

/// Every rank of `tensor`, the group of the model's mesh, calls it.
inline void sum_partial_gradients(ExecutionContext& context, comm::ProcessGroup& tensor,
                                  const parallel::ParallelModel& model) {
  std::vector<Tensor> of_model;
  for (const nn::NamedParameter& p : model.model().named_parameters())
    of_model.push_back(p.parameter->value);
  parallel::PartialGradients(context, tensor, model.named_local_parameters(), of_model).sum();
}

}  // namespace meshloom::testing
