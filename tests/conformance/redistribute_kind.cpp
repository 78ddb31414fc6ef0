// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/redistribute_kind.h"

#include <algorithm>

#include "daemon/dtensor/redistribute.h"
#include "daemon/dtensor/redistribute_specs.h"
#include "daemon/tensor/autograd/backward.h"
#include "kernels/base/error.h"
#include "tests/conformance/plan_kind.h"
#include "tests/conformance/spec_tensors.h"

namespace meshloom::conformance {
namespace {

struct RedistributeCase {
  planner::SpecPtr from, to;
  planner::RedistributeOptions options;
};

RedistributeCase read_case(const Case& c, const TensorFile& file, const planner::MeshPtr& mesh) {
  const Shape shape = file.shape("in.x");
  RedistributeCase read{read_layout(c, "from", mesh, shape), read_layout(c, "to", mesh, shape),
                        read_planner_options(c)};
  read.options.element_size = static_cast<int>(dtype_size(file.dtype("in.x")));
  return read;
}

void validate(const Case& c, const TensorFile& file) {
  read_case(c, file, std::make_shared<const planner::MeshLayout>(c.mesh));
  for (const char* name : {"grad_out.y", "grad.x"}) {
    if (!file.has(name)) continue;
    check(dtype_is_floating(file.dtype("in.x")), "{} is there, but in.x is {}", name,
          dtype_name(file.dtype("in.x")));
    check(file.shape(name) == file.shape("in.x"), "{} has shape {}, in.x {}", name,
          to_string(file.shape(name)), to_string(file.shape("in.x")));
  }
}

void run_backward(const TensorFile& file, RankContext& rank, dtensor::DeviceMesh& mesh,
                  const RedistributeCase& layouts, const Tensor& x, const Tensor& y,
                  CaseResults& results) {
  const planner::SpecPtr grad_of_y = dtensor::without_partial(layouts.to);
  const Tensor grads[] = {scatter_global(file.load(rank.context, "grad_out.y"), *grad_of_y, rank)};
  const Tensor outputs[] = {y};
  mesh.reset_counters();
  autograd::backward(outputs, grads);
  store_counters(mesh.counters(), "backward", results);
  results.tensors["grad.x"] =
      gather_global(x.grad(), *dtensor::without_partial(layouts.from), rank);
}

void run(const Case& c, const TensorFile& file, RankContext& rank, CaseResults& results) {
  dtensor::DeviceMesh mesh(rank.world, c.mesh);
  const RedistributeCase layouts = read_case(c, file, mesh.layout());
  planner::PlanCache plans(layouts.options);
  const dtensor::MeshContext context{mesh, plans};
  results.plan = plans.plan(layouts.from, layouts.to).to_string();
  Tensor x = scatter_global(file.load(rank.context, "in.x"), *layouts.from, rank);
  const bool backward = file.has("grad_out.y");
  if (backward) x.set_requires_grad(true);
  mesh.reset_counters();
  const Tensor y =
      dtensor::redistribute_local(x,
                                  {layouts.from, layouts.to, dtensor::without_partial(layouts.to),
                                   dtensor::without_partial(layouts.from)},
                                  context);
  store_counters(mesh.counters(), "forward", results);
  results.placements["y"] = layouts.to->placements();
  results.local_shapes["y"] = y.shape();
  results.tensors["out.y"] = gather_global(y, *layouts.to, rank);
  if (backward) run_backward(file, rank, mesh, layouts, x, y, results);
}

}  // namespace

const Kind& redistribute_kind() {
  static const Kind kind{
      "redistribute", {"from", "to", "from_order", "to_order", "planner"}, validate, run};
  return kind;
}

}  // namespace meshloom::conformance
