// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/bert.h"
#include "daemon/nn/models/gpt2.h"
#include "daemon/nn/models/llama.h"
#include "daemon/nn/models/model.h"
#include "kernels/base/error.h"

namespace meshloom::nn {

std::unique_ptr<Model> make_model(ExecutionContext& context, const ModelConfig& config,
                                  DType dtype) {
  check(dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat64,
        "model: parameters cannot be {}; float32 and bfloat16 are offered", dtype_name(dtype));
  switch (config.architecture) {
    case Architecture::kGpt2: return std::make_unique<Gpt2>(context, config, dtype);
    case Architecture::kLlama: return std::make_unique<Llama>(context, config, dtype);
    case Architecture::kBert: return std::make_unique<Bert>(context, config, dtype);
  }
  throw InternalError("make_model: unknown architecture");
}

}  // namespace meshloom::nn
