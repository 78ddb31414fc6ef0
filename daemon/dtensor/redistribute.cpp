// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/redistribute.h"

#include "daemon/dtensor/step_cache.h"
#include "daemon/dtensor/step_run.h"
#include "daemon/dtensor/without_partial.h"
#include "daemon/tensor/autograd/function_node.h"
#include "daemon/tensor/ops/op_support.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

/// Steps from `first` on. `owned`: nobody else holds `value`.
Tensor run_steps(Recipes& recipes, std::size_t first, Tensor value, bool owned) {
  for (std::size_t i = first; i < recipes.size(); ++i) {
    StepRun run(recipes[i], value, owned);
    Tensor next = run.finish();
    owned = owned || next.impl() != value.impl();
    value = std::move(next);
  }
  return value;
}

/// The layouts that a redistribution with a gradient is about; specs and context live as long as
/// the graph.
struct Backward {
  planner::SpecPtr from, to;
  MeshContext context;
  std::optional<DType> communicated;
  DType result;

  void operator()(autograd::GradOutputs grads, autograd::GradSink& sink) const {
    if (!sink.wants(0)) return;
    const Tensor grad = communicated ? ops::converted(grads[0], *communicated) : grads[0];
    sink.emit(0, ops::converted(redistribute_values(grad, from, to, context), result));
  }
};

bool same_layout(const planner::SpecPtr& a, const planner::SpecPtr& b) {
  return a == b || *a == *b;
}

}  // namespace

Tensor redistribute_values(const Tensor& local, const planner::SpecPtr& from,
                           const planner::SpecPtr& to, const MeshContext& context) {
  if (from == to || !context.mesh.member()) return local;
  const planner::RedistributePlan& plan = context.plans.plan(from, to);
  if (plan.steps.empty()) return local;
  const NoGradGuard no_grad(local.context());
  const std::shared_ptr<Recipes> recipes = context.mesh.step_cache().recipes(plan, context.mesh);
  return run_steps(*recipes, 0, local.requires_grad() ? local.detach() : local, false);
}

Tensor redistribute_local(const Tensor& local, const planner::SpecPtr& from,
                          const planner::SpecPtr& to, const planner::SpecPtr& grad_of_to,
                          const planner::SpecPtr& grad_of_from, const MeshContext& context,
                          const RedistributeDtypes& dtypes) {
  const DType result = dtypes.forward.value_or(local.dtype());
  const bool record = autograd::should_record({&local});
  const Tensor cast = result == local.dtype() ? local : ops::converted(local.detach(), result);
  Tensor out = redistribute_values(cast, from, to, context);
  if (!record) return out;
  const bool alike = same_layout(grad_of_to, grad_of_from);
  if (out.impl() == local.impl()) {
    if (alike && !dtypes.backward) return out;
    out = local.detach();
  }
  autograd::record_op("redistribute", {&local}, {&out},
                      Backward{grad_of_to, grad_of_from, context, dtypes.backward, local.dtype()});
  return out;
}

// --- From mesh to mesh
// -----------------------------------------------------------------------------

namespace {

Tensor across_values(const Tensor& local, const planner::SpecPtr& from, DeviceMesh& from_mesh,
                     const planner::SpecPtr& to, DeviceMesh& to_mesh, planner::PlanCache& plans) {
  const NoGradGuard no_grad(local.context());
  Tensor value = local.requires_grad() ? local.detach() : local;
  for (const planner::RedistributeStep& step : plans.plan(from, to).steps) {
    const bool crosses = !(step.from->mesh() == step.to->mesh());
    DeviceMesh& mesh = step.to->mesh() == *to_mesh.layout() ? to_mesh : from_mesh;
    if (!crosses && !mesh.member()) continue;
    StepRecipe recipe =
        crosses ? make_crossing_recipe(step, from_mesh, to_mesh) : make_recipe(step, mesh);
    value = StepRun(recipe, value, false).finish();
  }
  return value;
}

}  // namespace

Tensor redistribute_across(const Tensor& local, const planner::SpecPtr& from, DeviceMesh& from_mesh,
                           const planner::SpecPtr& to, DeviceMesh& to_mesh,
                           planner::PlanCache& plans) {
  check(&from_mesh.parent() == &to_mesh.parent(),
        "redistribute: the meshes {} and {} are not of one group", to_string(*from_mesh.layout()),
        to_string(*to_mesh.layout()));
  const bool record = autograd::should_record({&local});
  Tensor out = across_values(local, from, from_mesh, to, to_mesh, plans);
  if (!record) return out;
  if (out.impl() == local.impl()) out = local.detach();
  const auto backward = [grad_of_from = without_partial(from), grad_of_to = without_partial(to),
                         &from_mesh, &to_mesh,
                         &plans](autograd::GradOutputs grads, autograd::GradSink& sink) {
    sink.emit(0, across_values(grads[0], grad_of_to, to_mesh, grad_of_from, from_mesh, plans));
  };
  autograd::record_op("redistribute", {&local}, {&out}, backward);
  return out;
}

// --- In flight
// --------------------------------------------------------------------------------

struct RedistributeWork::Impl {
  Tensor local, value;
  planner::SpecPtr from, to, grad_of_to, grad_of_from;
  MeshContext context;
  std::shared_ptr<Recipes> recipes;
  std::optional<StepRun> first;
};

RedistributeWork::RedistributeWork(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RedistributeWork::~RedistributeWork() = default;
RedistributeWork::RedistributeWork(RedistributeWork&&) noexcept = default;
RedistributeWork& RedistributeWork::operator=(RedistributeWork&&) noexcept = default;

bool RedistributeWork::poll() { return !impl_ || !impl_->first || impl_->first->poll(); }

Tensor RedistributeWork::wait() {
  if (!impl_) throw FailedPrecondition("redistribute: the result was taken already");
  const std::unique_ptr<Impl> impl = std::move(impl_);
  ExecutionContext& context = impl->local.context();
  const bool record = autograd::should_record({&impl->local});
  Tensor out = impl->value;
  if (impl->first) {
    const NoGradGuard no_grad(context);
    const Tensor next = impl->first->finish();
    out = run_steps(*impl->recipes, 1, next, next.impl() != impl->value.impl());
  }
  if (!record) return out;
  if (out.impl() == impl->local.impl()) out = impl->local.detach();
  autograd::record_op("redistribute", {&impl->local}, {&out},
                      Backward{impl->grad_of_to, impl->grad_of_from, impl->context, std::nullopt,
                               impl->local.dtype()});
  return out;
}

RedistributeWork redistribute_async(const Tensor& local, const planner::SpecPtr& from,
                                    const planner::SpecPtr& to, const planner::SpecPtr& grad_of_to,
                                    const planner::SpecPtr& grad_of_from,
                                    const MeshContext& context) {
  auto impl = std::make_unique<RedistributeWork::Impl>(RedistributeWork::Impl{
      local, local, from, to, grad_of_to, grad_of_from, context, nullptr, std::nullopt});
  if (from == to || !context.mesh.member()) return RedistributeWork(std::move(impl));
  const planner::RedistributePlan& plan = context.plans.plan(from, to);
  if (plan.steps.empty()) return RedistributeWork(std::move(impl));
  const NoGradGuard no_grad(local.context());
  impl->value = local.requires_grad() ? local.detach() : local;
  impl->recipes = context.mesh.step_cache().recipes(plan, context.mesh);
  impl->first.emplace(impl->recipes->front(), impl->value, false);
  return RedistributeWork(std::move(impl));
}

}  // namespace meshloom::dtensor
