// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/style_dims.h"

#include <utility>

#include "kernels/base/error.h"

namespace meshloom::planner {

StyleDims::StyleDims(MeshPtr mesh) : mesh_(std::move(mesh)) {
  for (int d = 0; d < mesh_->ndim(); ++d) acting_.push_back(d);
}

StyleDims::StyleDims(MeshPtr mesh, const std::string& name) : mesh_(std::move(mesh)) {
  const auto dim = mesh_->find_dim(name);
  check(dim.has_value(), "styles are to act along mesh dim '{}', but the mesh is {}", name, *mesh_);
  acting_.push_back(*dim);
}

int StyleDims::parts() const {
  int parts = 1;
  for (const int d : acting_) parts *= mesh_->dim_size(d);
  return parts;
}

Placements StyleDims::on_mesh(const Placements& along, const Placements& elsewhere) const {
  Placements placements = elsewhere;
  if (placements.empty()) placements.resize(static_cast<std::size_t>(mesh_->ndim()));
  for (std::size_t i = 0; i < acting_.size(); ++i)
    placements[static_cast<std::size_t>(acting_[i])] = along[i];
  return placements;
}

}  // namespace meshloom::planner
