// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/modules/linear.h"

namespace meshloom::nn {

Linear::Linear(ExecutionContext& context, std::int64_t in, std::int64_t out, DType dtype,
               const Options& options)
    : Module(context),
      weight_(register_parameter("weight",
                                 options.weight_is_in_out ? Shape{in, out} : Shape{out, in}, dtype,
                                 options.weight_init)),
      weight_is_in_out_(options.weight_is_in_out),
      in_units_(options.in_units),
      out_units_(options.out_units) {
  if (options.bias) bias_ = &register_parameter("bias", {out}, dtype, {Init::Kind::kZeros});
}

Tensor Linear::operator()(const Tensor& x, ops::Activation input_activation) const {
  return call(x, [&](const Tensor& in) {
    return product_ ? product_(in, input_activation) : plain(in, input_activation);
  });
}

Tensor Linear::plain(const Tensor& x, ops::Activation input_activation) const {
  return ops::linear(x, weight_.value, bias(),
                     {.weight_is_in_out = weight_is_in_out_, .input_activation = input_activation});
}

std::optional<FeatureSharding> Linear::column_sharding() const {
  FeatureSharding sharding{.shards_output = true};
  sharding.parameters.push_back({"weight", weight_is_in_out_ ? 1 : 0, out_units_});
  if (bias_) sharding.parameters.push_back({"bias", 0, out_units_});
  return sharding;
}

std::optional<FeatureSharding> Linear::row_sharding() const {
  FeatureSharding sharding{.shards_input = true};
  sharding.parameters.push_back({"weight", weight_is_in_out_ ? 0 : 1, in_units_});
  if (bias_) sharding.parameters.push_back({"bias"});
  return sharding;
}

}  // namespace meshloom::nn
