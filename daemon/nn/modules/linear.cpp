// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/modules/linear.h"

namespace meshloom::nn {

Linear::Linear(ExecutionContext& context, std::int64_t in, std::int64_t out, DType dtype,
               const Options& options)
    : Module(context),
      weight_(register_parameter("weight",
                                 options.weight_is_in_out ? Shape{in, out} : Shape{out, in}, dtype,
                                 options.weight_init)),
      weight_is_in_out_(options.weight_is_in_out) {
  if (options.bias) bias_ = &register_parameter("bias", {out}, dtype, {Init::Kind::kZeros});
}

Tensor Linear::operator()(const Tensor& x, ops::Activation input_activation) const {
  return ops::linear(x, weight_.value, bias(),
                     {.weight_is_in_out = weight_is_in_out_, .input_activation = input_activation});
}

}  // namespace meshloom::nn
