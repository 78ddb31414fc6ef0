// SPDX-License-Identifier: Apache-2.0
// The list of architectures.
#include <algorithm>
#include <array>

#include "daemon/nn/models/architectures/architecture.h"
#include "daemon/nn/models/default_styles.h"
#include "daemon/nn/models/model.h"
#include "kernels/base/error.h"

namespace meshloom::nn {

const ModelArchitecture& gpt2_architecture();
const ModelArchitecture& decoder_architecture();
const ModelArchitecture& gemma3_architecture();
const ModelArchitecture& bert_architecture();

std::span<const ModelArchitecture* const> architectures() {
  static const std::array all{&gpt2_architecture(), &decoder_architecture(), &gemma3_architecture(),
                              &bert_architecture()};
  return all;
}

const ModelArchitecture& architecture_of(Architecture id) {
  const auto all = architectures();
  const auto found = std::find_if(all.begin(), all.end(), [&](const ModelArchitecture* known) {
    return known->names().front().architecture == id;
  });
  check_internal(found != all.end(), "architecture {} is in no list", static_cast<int>(id));
  return **found;
}

planner::StylePlan default_styles(Architecture architecture, bool sequence_parallel) {
  StyleMaker plan(sequence_parallel);
  architecture_of(architecture).add_styles(plan);
  return plan.take();
}

std::unique_ptr<Model> make_model(ExecutionContext& context, const ModelConfig& config,
                                  DType dtype) {
  check(dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat64,
        "model: parameters cannot be {}; float32 and bfloat16 are offered", dtype_name(dtype));
  return architecture_of(config.architecture).make(context, config, dtype);
}

}  // namespace meshloom::nn
