// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/sharded_op.h"

#include <algorithm>
#include <array>

#include "daemon/tensor/autograd/backward.h"
#include "kernels/base/error.h"
#include "tests/conformance/distribute.h"

namespace meshloom::conformance {
namespace {

constexpr std::array<std::string_view, 15> kElementwise = {
    "add",  "sub",   "mul", "div",  "neg",  "exp",  "log",    "tanh",
    "sqrt", "rsqrt", "pow", "relu", "gelu", "silu", "sigmoid"};

/// The one tensor of the op.
const CaseInput& only_tensor(const Case& c, const std::string& op,
                             const std::vector<CaseInput>& inputs) {
  const auto is_tensor = [](const CaseInput& input) { return !input.is_number(); };
  const bool elementwise =
      std::find(kElementwise.begin(), kElementwise.end(), op) != kElementwise.end();
  const auto found = std::find_if(inputs.begin(), inputs.end(), is_tensor);
  const bool fits = elementwise && std::count_if(inputs.begin(), inputs.end(), is_tensor) == 1 &&
                    std::none_of(found->placements.begin(), found->placements.end(),
                                 [](const planner::Placement& p) { return p.is_partial(); });
  if (!fits)
    throw Unimplemented(fmt::format(
        "op {} with these placements on a mesh of {} ranks is not built yet", op, c.mesh.size()));
  return *found;
}

}  // namespace

void run_sharded(const Case& c, const TensorFile& file, RankContext& rank, const std::string& op,
                 const BoundOp& bound, const std::vector<CaseInput>& inputs, CaseResults& results) {
  const CaseInput& tensor = only_tensor(c, op, inputs);
  const Shape global = file.shape("in." + tensor.name);
  const auto placements = planner::normalize_placements(tensor.placements, global.size());
  Tensor part = local_part(file.load(rank.context, "in." + tensor.name), rank, placements);
  const bool backward = file.has("grad_out.y") && file.has("grad." + tensor.name);
  if (backward) part.set_requires_grad(true);
  std::vector<Operand> operands;
  for (const CaseInput& input : inputs)
    operands.push_back(input.is_number() ? Operand{Tensor(), input.value} : Operand{part, 0.0});
  const Tensor y = bound(operands).front();
  results.comm = {{"forward", {}}, {"backward", {}}};
  results.placements["y"] = placements;
  results.local_shapes["y"] = y.shape();
  results.tensors["out.y"] = gather_parts(y, global, rank, placements);
  if (!backward) return;
  const Tensor outputs[] = {y};
  const Tensor grads[] = {local_part(file.load(rank.context, "grad_out.y"), rank, placements)};
  autograd::backward(outputs, grads);
  const Tensor grad = part.grad();
  results.tensors["grad." + tensor.name] = gather_parts(
      grad ? grad : zeros(rank.context, part.shape(), DType::kFloat32), global, rank, placements);
}

}  // namespace meshloom::conformance
