// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/local_run.h"

#include <algorithm>

#include "daemon/tensor/autograd/backward.h"
#include "kernels/base/error.h"

namespace meshloom::conformance {
namespace {

constexpr std::string_view kGradOut = "grad_out.";
constexpr std::string_view kGrad = "grad.";

}  // namespace

bool runs_backward(const TensorFile& file) {
  const std::vector<std::string> names = file.names();
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& n) { return n.starts_with(kGradOut); });
}

void require_one_rank(const Case& c) {
  if (c.mesh.size() != 1)
    throw Unimplemented(
        fmt::format("{} on a mesh of {} ranks is not built yet", c.kind, c.mesh.size()));
}

Tensor load_input(const TensorFile& file, ExecutionContext& context, const std::string& name) {
  Tensor t = file.load(context, "in." + name);
  if (runs_backward(file) && file.has(std::string(kGrad) + name)) t.set_requires_grad(true);
  return t;
}

void check_gradients(const TensorFile& file, const std::vector<std::string>& inputs) {
  for (const std::string& name : inputs) {
    const std::string grad = std::string(kGrad) + name;
    if (!file.has(grad)) continue;
    const DType dtype = file.dtype("in." + name);
    check(dtype_is_floating(dtype), "{}: input {} is {} and has no gradient", grad, name,
          dtype_name(dtype));
    check(file.shape(grad) == file.shape("in." + name), "{}: shape {}, but input {} has {}", grad,
          to_string(file.shape(grad)), name, to_string(file.shape("in." + name)));
  }
}

void finish_local(const Case& c, const TensorFile& file, ExecutionContext& context,
                  const std::vector<NamedTensor>& inputs, const std::vector<NamedTensor>& outputs,
                  CaseResults& results) {
  std::vector<Tensor> roots, grads;
  for (const NamedTensor& out : outputs) {
    results.tensors["out." + out.name] = out.value.detach();
    results.placements[out.name] = planner::Placements(static_cast<std::size_t>(c.mesh.ndim()));
    results.local_shapes[out.name] = out.value.shape();
    const std::string grad_name = std::string(kGradOut) + out.name;
    if (!file.has(grad_name)) continue;
    check(out.value.requires_grad(), "{}: no input of output {} needs a gradient", grad_name,
          out.name);
    roots.push_back(out.value);
    grads.push_back(file.load(context, grad_name));
  }
  for (const std::string& name : file.names()) {
    if (!name.starts_with(kGradOut)) continue;
    const bool known = std::any_of(outputs.begin(), outputs.end(), [&](const NamedTensor& out) {
      return name == std::string(kGradOut) + out.name;
    });
    check(known, "{}: there is no such output", name);
  }
  results.comm["forward"] = {};
  results.comm["backward"] = {};
  if (roots.empty()) return;
  autograd::backward(roots, grads);
  for (const NamedTensor& in : inputs) {
    if (!in.value.requires_grad()) continue;
    const Tensor grad = in.value.grad();
    results.tensors[std::string(kGrad) + in.name] =
        grad ? grad : zeros(context, in.value.shape(), in.value.dtype());
  }
}

}  // namespace meshloom::conformance
