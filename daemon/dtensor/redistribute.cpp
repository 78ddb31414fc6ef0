// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/redistribute.h"

#include "daemon/dtensor/across_meshes.h"
#include "daemon/dtensor/outside_mesh.h"
#include "daemon/tensor/autograd/function_node.h"
#include "daemon/tensor/ops/op_support.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

/// Whole numbers cannot be divided by the number of ranks.
void check_averages(DType dtype, const RedistributeSpecs& specs, const RedistributeMeshes& meshes) {
  if (dtype_is_floating(dtype)) return;
  const planner::Placements &from = specs.from->placements(), &to = specs.to->placements();
  for (const planner::Placements* side : {&from, &to})
    for (std::size_t d = 0; d < side->size(); ++d) {
      const planner::Placement& p = (*side)[d];
      const bool average = p.is_partial() && p.partial == planner::PartialOp::kAvg;
      check(!average || (!meshes.differ() && from[d] == to[d]),
            "redistribute: {} -> {} of {} values: a P(avg) of them has no exact value; expected a "
            "floating dtype",
            planner::to_string(*specs.from), planner::to_string(*specs.to), dtype_name(dtype));
    }
}

/// The way of the gradient.
struct Backward {
  RedistributeSpecs specs;
  RedistributeMeshes meshes;
  std::optional<DType> communicated;
  DType result;
  Shape shape;  ///< of the local tensor

  void operator()(autograd::GradOutputs grads, autograd::GradSink& sink) const {
    if (!sink.wants(0)) return;
    const Tensor grad = communicated ? ops::converted(grads[0], *communicated) : grads[0];
    const Tensor value = ops::converted(redistribute_local(grad, specs, meshes), result);
    const bool outside = meshes.differ() && !meshes.to->member();
    sink.emit(0, outside ? zeros(value.context(), shape, result) : value);
  }
};

}  // namespace

RedistributeWork::RedistributeWork(const Tensor& local, RedistributeSpecs specs,
                                   const RedistributeMeshes& meshes,
                                   const RedistributeDtypes& dtypes)
    : local_(local),
      value_(local),
      specs_(std::move(specs)),
      meshes_(meshes),
      dtypes_(dtypes),
      records_(specs_.grad_of_to != nullptr && autograd::should_record({&local})) {
  if (records_)
    for (const std::optional<DType>& given : {dtypes.forward, dtypes.backward})
      check(!given || dtype_is_floating(*given),
            "redistribute: {} for a tensor that requires a gradient; expected a floating dtype",
            given ? dtype_name(*given) : "");
  const DType dtype = dtypes.forward.value_or(local.dtype());
  check_averages(dtype, specs_, meshes);
  if (dtype != local.dtype()) value_ = ops::converted(local.detach(), dtype);
  if (meshes.differ()) {
    recipes_ = std::make_shared<Recipes>(
        recipes_across(specs_.from, *meshes.from, specs_.to, *meshes.to, *meshes.plans));
  } else if (specs_.from != specs_.to && meshes.from->member()) {
    const planner::RedistributePlan& plan = meshes.plans->plan(specs_.from, specs_.to);
    if (!plan.steps.empty()) recipes_ = meshes.from->step_cache().recipes(plan, *meshes.from);
  }
  if (!recipes_) return;
  value_ = value_.detach();
  if (recipes_->empty()) return;
  const NoGradGuard no_grad(local.context());
  // A rank outside the first mesh takes part with a tensor of what the first step expects.
  if (meshes.differ() && !meshes.from->member())
    value_ = zeros(local.context(), recipes_->front().in_shape, dtype);
  first_.emplace(recipes_->front(), value_, false);
}

Tensor RedistributeWork::wait() {
  if (done_) throw FailedPrecondition("redistribute: the result was taken already");
  done_ = true;
  Tensor out = std::move(value_);
  if (first_) {
    const NoGradGuard no_grad(local_.context());
    bool owned = false;  // nobody else holds `out`
    for (std::size_t i = 0; i < recipes_->size(); ++i) {
      Tensor next = i == 0 ? first_->finish() : StepRun((*recipes_)[i], out, owned).finish();
      first_.reset();
      owned = owned || next.impl() != out.impl();
      out = std::move(next);
    }
  }
  if (meshes_.differ() && !meshes_.to->member())
    out = outside_local(out.context(), specs_.to->shape(), out.dtype());
  if (!records_) return out;
  if (out.impl() == local_.impl()) {
    const auto &back_from = specs_.grad_of_to, &back_to = specs_.grad_of_from;
    const bool alike = back_from == back_to || *back_from == *back_to;
    if (!meshes_.differ() && alike && !dtypes_.backward) return out;
    out = local_.detach();
  }
  autograd::record_op("redistribute", {&local_}, {&out},
                      Backward{{std::move(specs_.grad_of_to), std::move(specs_.grad_of_from)},
                               {*meshes_.to, *meshes_.from, *meshes_.plans},
                               dtypes_.backward,
                               local_.dtype(),
                               local_.shape()});
  return out;
}

}  // namespace meshloom::dtensor
