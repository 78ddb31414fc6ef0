// SPDX-License-Identifier: Apache-2.0
// Products with a bias whose ranks hold summands: the bias counts on one rank of each sum.
#include <algorithm>

#include "daemon/tensor/ops/distributed_ops.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/op_support.h"

namespace meshloom::ops {
namespace {

/// Zeros in place of x, which gets zeros as its gradient: the ranks' graphs stay alike.
Tensor silenced(const Tensor& x) {
  Tensor y = zeros(x.context(), x.shape(), x.dtype());
  if (autograd::should_record({&x}))
    autograd::record_op("zeros", {&x}, {&y},
                        [](autograd::GradOutputs dy, autograd::GradSink& sink) {
                          sink.emit(0, zeros(dy[0].context(), dy[0].shape(), dy[0].dtype()));
                        });
  return y;
}

/// The bias on the first rank along the mesh dims of the sum, zeros on the others.
Tensor bias_once(const LocalCall& call, std::size_t input) {
  const std::vector<int>& dims = call.decision.mesh_dims(planner::MeshRole::kBias);
  const bool first = std::all_of(dims.begin(), dims.end(), [&](int d) {
    return call.coordinates[static_cast<std::size_t>(d)] == 0;
  });
  return first ? call.inputs[input] : silenced(call.inputs[input]);
}

}  // namespace

std::vector<Tensor> linear_with_bias_once(const LocalCall& call) {
  return {
      linear(call.inputs[0], call.inputs[1], bias_once(call, 2), call.options.as<LinearOptions>())};
}

std::vector<Tensor> addmm_with_bias_once(const LocalCall& call) {
  return {addmm(bias_once(call, 0), call.inputs[1], call.inputs[2])};
}

}  // namespace meshloom::ops
