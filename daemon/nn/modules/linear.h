// SPDX-License-Identifier: Apache-2.0
// A linear layer: x W^T + b, or x W + b with the weight as GPT-2's files hold it.
#pragma once

#include <functional>
#include <string>

#include "daemon/nn/module.h"
#include "daemon/tensor/ops/matmul.h"

namespace meshloom::nn {

class Linear : public Module {
 public:
  struct Options {
    bool bias = true;
    bool weight_is_in_out = false;  ///< weight [in, out] instead of [out, in]
    Init weight_init{Init::Kind::kNormal};
    FeatureUnits in_units{}, out_units{};
  };
  Linear(ExecutionContext& context, std::int64_t in, std::int64_t out, DType dtype,
         const Options& options);

  /// Maps x [.., in] to [.., out]. The activation is applied to x first (ops::LinearOptions).
  Tensor operator()(const Tensor& x,
                    ops::Activation input_activation = ops::Activation::kNone) const;

  /// Makes the whole product, bias and activation included, between the module's hooks.
  using Product = std::function<Tensor(const Tensor& x, ops::Activation input_activation)>;
  /// Sets what computes the product from here on in the place of ops::linear (which `plain` still
  /// is): one that takes communication along.
  void set_product(Product product) { product_ = std::move(product); }
  Tensor plain(const Tensor& x, ops::Activation input_activation) const;

  bool weight_is_in_out() const { return weight_is_in_out_; }
  const Tensor& weight() const { return weight_.value; }
  /// Returns the bias; undefined without one.
  Tensor bias() const { return bias_ ? bias_->value : Tensor(); }

  /// Shards weight and bias by output features; x is whole.
  std::optional<FeatureSharding> column_sharding() const override;
  /// Shards the weight by input features, as x is; the bias is whole and counts once.
  std::optional<FeatureSharding> row_sharding() const override;
  bool positionwise() const override { return true; }

 private:
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  bool weight_is_in_out_;
  FeatureUnits in_units_, out_units_;
  Product product_;  ///< empty: plain
};

}  // namespace meshloom::nn
