// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/dtype_choice.h"

#include "daemon/base/field_error.h"
#include "kernels/backend.h"
#include "kernels/base/error.h"

namespace meshloom::train {

DType dtype_of(const v1::ParallelPlan& plan) {
  const auto dtype = dtype_from_name(plan.dtype());
  if (dtype == DType::kFloat16)
    base::field_not_offered(
        "run.plan.dtype",
        "float16 is not offered for training (no loss scaling); use bfloat16 or float32");
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16)
    base::refuse_field("run.plan.dtype", "must be float32, bfloat16 or auto, got \"{}\"",
                       plan.dtype());
  return *dtype;
}

DType export_dtype(const std::string& name) {
  const auto dtype = dtype_from_name(name);
  check(dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16,
        "export: dtype must be float32, bfloat16 or float16, got \"{}\"", name);
  return *dtype;
}

void resolve_dtype(v1::ParallelPlan* plan, const nn::ModelConfig& model) {
  if (dtype_is_auto(*plan))
    plan->set_dtype(dtype_name(kernels::backend_for(kCpuDevice).fast_dtype(model.hidden_size)));
  dtype_of(*plan);
}

bool dtype_is_auto(const v1::ParallelPlan& given) {
  return given.dtype().empty() || given.dtype() == "auto";
}

std::string dtype_note(const v1::RunConfig& resolved) {
  const std::string& dtype = resolved.plan().dtype();
  if (!resolved.checkpoint().resume_from().empty())
    return fmt::format("dtype auto is {}, as in the checkpoint that the job begins with", dtype);
  return fmt::format("dtype auto is {}: what CPU class {} trains a model of this width fastest in",
                     dtype, kernels::backend_for(kCpuDevice).describe().compute_class);
}

}  // namespace meshloom::train
