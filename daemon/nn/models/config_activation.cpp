// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/config_activation.h"

#include "kernels/base/error.h"

namespace meshloom::nn {

ActivationKind parse_activation(const JsonReader& json, const char* key, const char* fallback) {
  const std::string name = json.string(key, fallback);
  if (name == "gelu") return ActivationKind::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return ActivationKind::kGeluTanh;
  if (name == "silu" || name == "swish") return ActivationKind::kSilu;
  if (name == "relu") return ActivationKind::kRelu;
  json.refuse(
      key,
      fmt::format("is '{}'; gelu, gelu_new, gelu_pytorch_tanh, silu and relu are supported", name));
}

const char* activation_name(ActivationKind activation) {
  switch (activation) {
    case ActivationKind::kGelu: return "gelu";
    case ActivationKind::kGeluTanh: return "gelu_new";
    case ActivationKind::kSilu: return "silu";
    case ActivationKind::kRelu: return "relu";
  }
  throw InternalError("unknown activation");
}

}  // namespace meshloom::nn
