// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/replicated_like.h"

#include "daemon/tensor/layout.h"

namespace meshloom::nn {

Tensor replicated_like(const Tensor& values, const Tensor& reference) {
  if (!reference.has_layout() || !values || values.has_layout()) return values;
  const TensorLayout& layout = *reference.layout();
  const planner::MeshPtr& mesh = layout.spec->mesh_ptr();
  const planner::Placements whole(static_cast<std::size_t>(mesh->ndim()));
  const auto spec = std::make_shared<const planner::DTensorSpec>(mesh, whole, values.shape());
  return with_layout(values, layout.engine->intern(spec), *layout.engine);
}

}  // namespace meshloom::nn
