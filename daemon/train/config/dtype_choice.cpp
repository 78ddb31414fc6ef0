// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/dtype_choice.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "daemon/base/field_error.h"
#include "kernels/backend_table.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

bool is_offered(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const std::vector<std::string>& offered_dtypes() {
  static const std::vector<std::string> names{dtype_name(DType::kFloat32),
                                              dtype_name(DType::kBFloat16)};
  return names;
}

const std::vector<std::string>& offered_export_dtypes() {
  static const std::vector<std::string> names{
      dtype_name(DType::kFloat32), dtype_name(DType::kBFloat16), dtype_name(DType::kFloat16)};
  return names;
}

DType dtype_of(const v1::ParallelPlan& plan) {
  const auto dtype = dtype_from_name(plan.dtype());
  if (dtype == DType::kFloat16)
    base::field_not_offered(
        "run.plan.dtype",
        "float16 is not offered for training (no loss scaling); use bfloat16 or float32");
  if (!is_offered(offered_dtypes(), plan.dtype()))
    base::refuse_field("run.plan.dtype", "must be {} or auto, got \"{}\"",
                       fmt::join(offered_dtypes(), ", "), plan.dtype());
  return *dtype;
}

DType export_dtype(const std::string& name) {
  check(is_offered(offered_export_dtypes(), name), "export: dtype must be one of {}, got \"{}\"",
        fmt::join(offered_export_dtypes(), ", "), name);
  return *dtype_from_name(name);
}

void resolve_dtype(v1::RunConfig& config, const nn::ModelConfig& model,
                   const WorldDevices& devices) {
  v1::ParallelPlan& plan = *config.mutable_plan();
  if (dtype_is_auto(plan)) {
    kernels::Backend& backend = kernels::backend_for(device_of_rank_zero(config.device(), devices));
    plan.set_dtype(dtype_name(backend.fast_dtype(model.hidden_size)));
  }
  dtype_of(plan);
}

bool dtype_is_auto(const v1::ParallelPlan& given) {
  return given.dtype().empty() || given.dtype() == "auto";
}

std::string dtype_note(const v1::RunConfig& resolved, const WorldDevices& devices) {
  const std::string& dtype = resolved.plan().dtype();
  if (!resolved.checkpoint().resume_from().empty())
    return fmt::format("dtype auto is {}, as in the checkpoint that the job begins with", dtype);
  const Device device = device_of_rank_zero(resolved.device(), devices);
  return fmt::format("dtype auto is {}: what {} class {} trains a model of this width fastest in",
                     dtype, device == kCpuDevice ? "CPU" : kind_name(device.kind),
                     kernels::backend_for(device).describe().compute_class);
}

}  // namespace meshloom::train
