// SPDX-License-Identifier: Apache-2.0
// A table of vectors, looked up by id.
#pragma once

#include "daemon/nn/module.h"
#include "daemon/tensor/ops/embedding.h"

namespace meshloom::nn {

class Embedding : public Module {
 public:
  /// The row of padding_idx (-1: none) starts at zero and gets no gradient from look-ups.
  Embedding(ExecutionContext& context, std::int64_t count, std::int64_t width, DType dtype,
            float std, std::int64_t padding_idx = -1)
      : Module(context),
        weight_(register_parameter("weight", {count, width}, dtype,
                                   {Init::Kind::kNormal, std, padding_idx})),
        padding_idx_(padding_idx) {}

  /// Looks up ids, int64 of any shape, and gives [ids.., width].
  Tensor operator()(const Tensor& ids) const {
    return call(ids,
                [&](const Tensor& in) { return ops::embedding(weight_.value, in, padding_idx_); });
  }
  const Tensor& weight() const { return weight_.value; }

  /// Tells how it shards by width; every rank looks up all ids.
  std::optional<FeatureSharding> column_sharding() const override {
    return FeatureSharding{.parameters = {{"weight", 1}}, .shards_output = true};
  }
  /// Tells how it shards by rows: every rank looks up the ids that it has, the others are zero.
  std::optional<FeatureSharding> row_sharding() const override {
    return FeatureSharding{.parameters = {{"weight", 0}}};
  }
  bool positionwise() const override { return true; }

 private:
  Parameter& weight_;
  std::int64_t padding_idx_;
};

}  // namespace meshloom::nn
