// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/modules/output_projection.h"

#include "daemon/tensor/ops/matmul.h"
#include "kernels/base/error.h"

namespace meshloom::nn {

OutputProjection::OutputProjection(ExecutionContext& context, std::int64_t in,
                                   std::int64_t vocabulary, DType dtype, const Options& options)
    : Module(context), weight_name_(options.weight_name), tied_(options.tied) {
  check_internal(options.weight.has_value() != (options.tied != nullptr),
                 "output projection: exactly one of weight and tied is expected");
  if (options.weight)
    weight_ = &register_parameter(weight_name_, {vocabulary, in}, dtype, *options.weight);
  if (options.bias) bias_ = &register_parameter("bias", {vocabulary}, dtype, {Init::Kind::kZeros});
}

Tensor OutputProjection::operator()(const Tensor& hidden) const {
  return call(hidden, [&](const Tensor& in) { return ops::linear(in, weight(), bias()); });
}

Tensor OutputProjection::unrounded(const Tensor& hidden) const {
  return call(hidden, [&](const Tensor& in) {
    return ops::linear(in, weight(), bias(), {.keep_sums = true});
  });
}

template <typename Loss>
void OutputProjection::call_for_loss(const Tensor& hidden, Loss&& loss) const {
  call(std::array{hidden}, [&](const std::array<Tensor, 1>& in) {
    loss(in[0]);
    return std::array<Tensor, 0>{};
  });
}

Tensor OutputProjection::loss(const Tensor& hidden, const Tensor& labels, float grad_scale) const {
  Tensor result;
  call_for_loss(hidden, [&](const Tensor& in) {
    result = ops::linear_cross_entropy(in, weight(), bias(), labels, {.grad_scale = grad_scale});
  });
  return result;
}

ops::WeightedLoss OutputProjection::weighted_loss(const Tensor& hidden, const Tensor& labels,
                                                  const Tensor& weights, float grad_scale) const {
  ops::WeightedLoss result;
  call_for_loss(hidden, [&](const Tensor& in) {
    result = ops::weighted_linear_cross_entropy(in, weight(), bias(), labels, weights,
                                                {.grad_scale = grad_scale});
  });
  return result;
}

Tensor OutputProjection::token_losses(const Tensor& hidden, const Tensor& labels) const {
  Tensor result;
  call_for_loss(hidden, [&](const Tensor& in) {
    result = ops::linear_token_losses(in, weight(), bias(), labels);
  });
  return result;
}

std::optional<FeatureSharding> OutputProjection::column_sharding() const {
  FeatureSharding sharding{.shards_output = true};
  if (weight_) sharding.parameters.push_back({weight_name_, 0});
  if (bias_) sharding.parameters.push_back({"bias", 0});
  return sharding;
}

}  // namespace meshloom::nn
