// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/sharded_op.h"

#include "daemon/dtensor/distributed_engine.h"
#include "daemon/tensor/autograd/backward.h"
#include "kernels/base/error.h"
#include "tests/conformance/local_run.h"
#include "tests/conformance/spec_tensors.h"

namespace meshloom::conformance {
namespace {

Tensor lay_out(const Tensor& global, planner::SpecPtr spec, bool requires_grad, RankContext& rank,
               LayoutEngine& engine) {
  Tensor local = scatter_global(global, *spec, rank);
  if (requires_grad) local.set_requires_grad(true);
  return with_layout(std::move(local), spec, engine);
}

void run_backward(const TensorFile& file, RankContext& rank, dtensor::DeviceMesh& mesh,
                  const std::vector<NamedTensor>& inputs, const std::vector<NamedTensor>& outputs,
                  CaseResults& results) {
  std::vector<Tensor> roots, grads;
  for (const NamedTensor& y : outputs) {
    const std::string name = "grad_out." + y.name;
    if (!file.has(name)) continue;
    LayoutEngine& engine = *y.value.layout()->engine;
    const Tensor grad = file.load(rank.context, name);
    check(grad.shape() == y.value.shape(), "{} has shape {}, but {} {}", name,
          to_string(grad.shape()), y.name, to_string(y.value.shape()));
    roots.push_back(y.value);
    grads.push_back(lay_out(grad, engine.gradient_of(y.value.layout()->spec), false, rank, engine));
  }
  mesh.reset_counters();
  autograd::backward(roots, grads);
  store_counters(mesh.counters(), "backward", results);
  for (const NamedTensor& x : inputs) {
    if (!x.value.requires_grad()) continue;
    const Tensor grad = x.value.grad();
    const planner::SpecPtr spec = gradient_spec(x.value);
    const Tensor local =
        grad ? grad.layout()->local
             : zeros(rank.context, x.value.layout()->local.shape(), DType::kFloat32);
    results.tensors["grad." + x.name] = gather_global(local, *spec, rank);
  }
}

}  // namespace

void run_sharded(const Case& c, const TensorFile& file, RankContext& rank, const BoundOp& bound,
                 const std::vector<CaseInput>& given, bool several, CaseResults& results) {
  dtensor::DeviceMesh mesh(rank.world, c.mesh);
  planner::PlanCache plans;
  dtensor::DistributedEngine engine({mesh, plans});
  const bool backward = runs_backward(file);

  std::vector<NamedTensor> inputs;
  std::vector<Operand> operands;
  for (const CaseInput& input : given) {
    if (input.is_number()) {
      operands.push_back({Tensor(), input.value});
      continue;
    }
    const Tensor global = file.load(rank.context, "in." + input.name);
    auto spec = std::make_shared<const planner::DTensorSpec>(
        mesh.layout(), planner::normalize_placements(input.placements, global.ndim()),
        global.shape());
    const bool needs_grad = backward && file.has("grad." + input.name);
    inputs.push_back({input.name, lay_out(global, spec, needs_grad, rank, engine)});
    operands.push_back({inputs.back().value, 0.0});
  }

  mesh.reset_counters();
  const std::vector<Tensor> values = bound(operands);
  store_counters(mesh.counters(), "forward", results);
  std::vector<NamedTensor> outputs;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Tensor& y = values[i];
    outputs.push_back({several ? fmt::format("y{}", i) : "y", y});
    const std::string& name = outputs.back().name;
    results.placements[name] = y.layout()->spec->placements();
    results.local_shapes[name] = y.layout()->local.shape();
    results.tensors["out." + name] = gather_global(y.layout()->local, *y.layout()->spec, rank);
  }
  if (backward) run_backward(file, rank, mesh, inputs, outputs, results);
}

}  // namespace meshloom::conformance
