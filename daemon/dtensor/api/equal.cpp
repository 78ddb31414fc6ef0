// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/equal.h"

#include "daemon/dtensor/api/layout_of.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {

bool equal(const Tensor& a, const Tensor& b) {
  DistributedEngine& engine = engine_of(a, "equal");
  check(&engine == &engine_of(b, "equal"), "equal: tensors on the meshes {} and {}",
        a.layout()->spec->mesh(), b.layout()->spec->mesh());
  DeviceMesh& mesh = engine.context().mesh;
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return !mesh.member();
  const NoGradGuard no_grad(a.context());
  const planner::SpecPtr common = engine.gradient_of(a.layout()->spec);
  const auto values = [&](const Tensor& x) {
    return redistribute_local(x.layout()->local, {x.layout()->spec, common}, engine.context())
        .to_vector();
  };
  const std::vector<double> of_a = values(a), of_b = values(b);
  if (!mesh.member()) return true;
  const std::int64_t alike[] = {of_a == of_b ? 1 : 0};
  const Tensor all = from_values(a.context(), {1}, std::span<const std::int64_t>(alike));
  mesh.whole_group().all_reduce(all.view(), comm::ReduceOp::kMin)->wait_host();
  return all.item() == 1.0;
}

}  // namespace meshloom::dtensor
