// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/any_module.h"

#include "daemon/nn/modules/embedding.h"
#include "daemon/nn/modules/mlp.h"
#include "daemon/nn/modules/norm.h"
#include "kernels/base/error.h"

namespace meshloom::conformance {
namespace {

template <typename M, typename... Arguments>
AnyModule hold(ExecutionContext& context, Arguments&&... arguments) {
  auto module = std::make_unique<M>(context, std::forward<Arguments>(arguments)...);
  auto forward = [m = module.get()](const Tensor& x) { return (*m)(x); };
  return {std::move(module), std::move(forward)};
}

nn::ActivationKind read_activation(const std::string& text) {
  if (text == "relu") return nn::ActivationKind::kRelu;
  if (text == "gelu") return nn::ActivationKind::kGelu;
  if (text == "gelu_tanh") return nn::ActivationKind::kGeluTanh;
  if (text == "silu") return nn::ActivationKind::kSilu;
  throw InvalidArgument(
      fmt::format("module.activation is '{}', expected relu, gelu, gelu_tanh or silu", text));
}

AnyModule make_mlp(ExecutionContext& context, ObjectReader& reader) {
  const std::vector<std::int64_t> dims = reader.integers("dims");
  check(dims.size() == 3, "module.dims must be [in, hidden, out], not {} numbers", dims.size());
  const nn::ActivationKind activation = read_activation(reader.string_or("activation", "relu"));
  return hold<nn::Mlp>(context, nn::Mlp::Sizes{dims[0], dims[1], dims[2]}, activation,
                       DType::kFloat32);
}

}  // namespace

AnyModule make_module(const Json& description, ExecutionContext& context) {
  ObjectReader reader(description, "module");
  const std::string type = reader.string("type");
  const DType dtype = DType::kFloat32;
  AnyModule made;
  if (type == "Linear") {
    nn::Linear::Options options;
    options.bias = reader.boolean_or("bias", true);
    made = hold<nn::Linear>(context, reader.integer("in_features"), reader.integer("out_features"),
                            dtype, options);
  } else if (type == "Embedding") {
    made = hold<nn::Embedding>(context, reader.integer("num_embeddings"),
                               reader.integer("embedding_dim"), dtype, 1.0f,
                               reader.integer_or("padding_idx", -1));
  } else if (type == "LayerNorm") {
    made = hold<nn::LayerNorm>(context, reader.integer("normalized_shape"), dtype,
                               reader.number_or("eps", 1e-5));
  } else if (type == "RMSNorm") {
    made = hold<nn::RmsNorm>(context, reader.integer("normalized_shape"), dtype,
                             reader.number_or("eps", 1e-6));
  } else if (type == "MLP") {
    made = make_mlp(context, reader);
  } else {
    throw InvalidArgument(fmt::format(
        "module.type is '{}', expected Linear, Embedding, LayerNorm, RMSNorm or MLP", type));
  }
  reader.finish();
  return made;
}

}  // namespace meshloom::conformance
