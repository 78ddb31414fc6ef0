// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/redistribute.h"

#include "daemon/dtensor/across_meshes.h"
#include "daemon/dtensor/outside_mesh.h"
#include "daemon/dtensor/step_cache.h"
#include "daemon/dtensor/step_run.h"
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

/// From a layout on a mesh to one on the same or another mesh. Specs, meshes and plans live as long
/// as the graph.
struct Route {
  planner::SpecPtr from, to;
  DeviceMesh* from_mesh;
  DeviceMesh* to_mesh;
  planner::PlanCache* plans;

  bool crosses() const { return from_mesh != to_mesh; }
  Route back(const planner::SpecPtr& grad_of_to, const planner::SpecPtr& grad_of_from) const {
    return {grad_of_to, grad_of_from, to_mesh, from_mesh, plans};
  }
};

bool is_average(const planner::Placement& p) {
  return p.is_partial() && p.partial == planner::PartialOp::kAvg;
}

/// Whole numbers cannot be divided by the number of ranks.
void check_averages(DType dtype, const Route& route) {
  if (dtype_is_floating(dtype)) return;
  const planner::Placements &from = route.from->placements(), &to = route.to->placements();
  for (const planner::Placements* side : {&from, &to})
    for (std::size_t d = 0; d < side->size(); ++d)
      check(!is_average((*side)[d]) || (!route.crosses() && from[d] == to[d]),
            "redistribute: {} -> {} of {} values: a P(avg) of them has no exact value; expected a "
            "floating dtype",
            planner::to_string(*route.from), planner::to_string(*route.to), dtype_name(dtype));
}

/// Null where there is nothing to do.
std::shared_ptr<Recipes> recipes_of(const Route& route) {
  if (route.crosses())
    return std::make_shared<Recipes>(
        recipes_across(route.from, *route.from_mesh, route.to, *route.to_mesh, *route.plans));
  if (route.from == route.to || !route.from_mesh->member()) return nullptr;
  const planner::RedistributePlan& plan = route.plans->plan(route.from, route.to);
  if (plan.steps.empty()) return nullptr;
  return route.from_mesh->step_cache().recipes(plan, *route.from_mesh);
}

/// What the first of the steps takes on a rank that may be outside, and what it holds after all.
Tensor before_steps(const Tensor& local, const Route& route, const Recipes& recipes) {
  const bool outside = route.crosses() && !route.from_mesh->member() && !recipes.empty();
  return outside ? zeros(local.context(), recipes.front().in_shape, local.dtype()) : local;
}
Tensor after_steps(Tensor value, const Route& route) {
  const bool outside = route.crosses() && !route.to_mesh->member();
  return outside ? outside_local(value.context(), route.to->shape(), value.dtype())
                 : std::move(value);
}

Tensor values_along(const Tensor& local, const Route& route) {
  check_averages(local.dtype(), route);
  const std::shared_ptr<Recipes> recipes = recipes_of(route);
  if (!recipes) return local;
  const NoGradGuard no_grad(local.context());
  Tensor value = local.requires_grad() ? local.detach() : local;
  value = run_steps(*recipes, 0, before_steps(value, route, *recipes), false);
  return after_steps(std::move(value), route);
}

/// The way of the gradient.
struct Backward {
  Route route;
  std::optional<DType> communicated;
  DType result;
  Shape shape;  ///< of the local tensor

  void operator()(autograd::GradOutputs grads, autograd::GradSink& sink) const {
    if (!sink.wants(0)) return;
    const Tensor grad = communicated ? ops::converted(grads[0], *communicated) : grads[0];
    const Tensor value = ops::converted(values_along(grad, route), result);
    const bool outside = route.crosses() && !route.to_mesh->member();
    sink.emit(0, outside ? zeros(value.context(), shape, result) : value);
  }
};

bool same_layout(const planner::SpecPtr& a, const planner::SpecPtr& b) {
  return a == b || *a == *b;
}

void check_dtypes(const RedistributeDtypes& dtypes) {
  for (const std::optional<DType>& dtype : {dtypes.forward, dtypes.backward})
    check(!dtype || dtype_is_floating(*dtype),
          "redistribute: {} for a tensor that requires a gradient; expected a floating dtype",
          dtype ? dtype_name(*dtype) : "");
}

/// The local tensor that travels.
Tensor cast_first(const Tensor& local, const RedistributeDtypes& dtypes) {
  const DType dtype = dtypes.forward.value_or(local.dtype());
  return dtype == local.dtype() ? local : ops::converted(local.detach(), dtype);
}

/// `out`, which `local` became, with the gradient's way back.
Tensor with_way_back(const Tensor& local, Tensor out, const Route& back,
                     const RedistributeDtypes& dtypes) {
  if (out.impl() == local.impl()) {
    if (!back.crosses() && same_layout(back.from, back.to) && !dtypes.backward) return out;
    out = local.detach();
  }
  autograd::record_op("redistribute", {&local}, {&out},
                      Backward{back, dtypes.backward, local.dtype(), local.shape()});
  return out;
}

/// `make_back()` gives the gradient's route.
template <typename MakeBack>
Tensor redistribute_along(const Tensor& local, const Route& route, const MakeBack& make_back,
                          const RedistributeDtypes& dtypes) {
  const bool record = autograd::should_record({&local});
  if (record) check_dtypes(dtypes);
  Tensor out = values_along(cast_first(local, dtypes), route);
  return record ? with_way_back(local, std::move(out), make_back(), dtypes) : out;
}

Route on_mesh(const planner::SpecPtr& from, const planner::SpecPtr& to,
              const MeshContext& context) {
  return {from, to, &context.mesh, &context.mesh, &context.plans};
}

}  // namespace

Tensor redistribute_values(const Tensor& local, const planner::SpecPtr& from,
                           const planner::SpecPtr& to, const MeshContext& context) {
  if (from == to || !context.mesh.member()) return local;
  return values_along(local, on_mesh(from, to, context));
}

Tensor redistribute_local(const Tensor& local, const planner::SpecPtr& from,
                          const planner::SpecPtr& to, const planner::SpecPtr& grad_of_to,
                          const planner::SpecPtr& grad_of_from, const MeshContext& context,
                          const RedistributeDtypes& dtypes) {
  const auto back = [&] { return on_mesh(grad_of_to, grad_of_from, context); };
  return redistribute_along(local, on_mesh(from, to, context), back, dtypes);
}

Tensor redistribute_across(const Tensor& local, const planner::SpecPtr& from, DeviceMesh& from_mesh,
                           const planner::SpecPtr& to, DeviceMesh& to_mesh,
                           const planner::SpecPtr& grad_of_to, const planner::SpecPtr& grad_of_from,
                           planner::PlanCache& plans, const RedistributeDtypes& dtypes) {
  const Route route{from, to, &from_mesh, &to_mesh, &plans};
  const auto back = [&] { return route.back(grad_of_to, grad_of_from); };
  return redistribute_along(local, route, back, dtypes);
}

// --- In flight

struct RedistributeWork::Impl {
  Tensor local, value;
  Route route, back;
  RedistributeDtypes dtypes;
  bool record = false;
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
  Tensor out = impl->value;
  if (impl->first) {
    const NoGradGuard no_grad(impl->local.context());
    const Tensor next = impl->first->finish();
    out = run_steps(*impl->recipes, 1, next, next.impl() != impl->value.impl());
  }
  out = after_steps(std::move(out), impl->route);
  return impl->record ? with_way_back(impl->local, std::move(out), impl->back, impl->dtypes) : out;
}

namespace {

std::unique_ptr<RedistributeWork::Impl> start(const Tensor& local, const Route& route,
                                              const Route& back, const RedistributeDtypes& dtypes) {
  const bool record = autograd::should_record({&local});
  if (record) check_dtypes(dtypes);
  check_averages(dtypes.forward.value_or(local.dtype()), route);
  auto impl = std::make_unique<RedistributeWork::Impl>(RedistributeWork::Impl{
      local, cast_first(local, dtypes), route, back, dtypes, record, nullptr, std::nullopt});
  impl->recipes = recipes_of(route);
  if (!impl->recipes || impl->recipes->empty()) return impl;
  const NoGradGuard no_grad(local.context());
  if (impl->value.requires_grad()) impl->value = impl->value.detach();
  impl->value = before_steps(impl->value, route, *impl->recipes);
  impl->first.emplace(impl->recipes->front(), impl->value, false);
  return impl;
}

}  // namespace

RedistributeWork redistribute_async(const Tensor& local, const planner::SpecPtr& from,
                                    const planner::SpecPtr& to, const planner::SpecPtr& grad_of_to,
                                    const planner::SpecPtr& grad_of_from,
                                    const MeshContext& context, const RedistributeDtypes& dtypes) {
  return RedistributeWork(
      start(local, on_mesh(from, to, context), on_mesh(grad_of_to, grad_of_from, context), dtypes));
}

RedistributeWork redistribute_across_async(const Tensor& local, const planner::SpecPtr& from,
                                           DeviceMesh& from_mesh, const planner::SpecPtr& to,
                                           DeviceMesh& to_mesh, const planner::SpecPtr& grad_of_to,
                                           const planner::SpecPtr& grad_of_from,
                                           planner::PlanCache& plans,
                                           const RedistributeDtypes& dtypes) {
  const Route route{from, to, &from_mesh, &to_mesh, &plans};
  return RedistributeWork(start(local, route, route.back(grad_of_to, grad_of_from), dtypes));
}

}  // namespace meshloom::dtensor
