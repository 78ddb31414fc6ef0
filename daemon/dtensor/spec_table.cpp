// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/spec_table.h"

#include "daemon/dtensor/redistribute_specs.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {

planner::SpecPtr SpecTable::intern(const planner::SpecPtr& spec) {
  if (known_.contains(spec.get())) return spec;
  check(spec->mesh_ptr() == mesh_ || spec->mesh() == *mesh_,
        "layout {} is one on the mesh {}, but this engine's mesh is {}", *spec, spec->mesh(),
        *mesh_);
  const auto [place, is_new] = specs_.insert(spec);
  if (is_new) known_.emplace(spec.get(), spec);
  return *place;
}

planner::SpecPtr SpecTable::gradient_of(const planner::SpecPtr& spec) {
  if (!spec->has_partial()) return spec;
  const auto found = gradients_.find(spec.get());
  if (found != gradients_.end()) return found->second;
  planner::SpecPtr gradient = intern(without_partial(spec));
  // Only layouts of the table have an address that stays theirs.
  if (known_.contains(spec.get())) gradients_.emplace(spec.get(), gradient);
  return gradient;
}

planner::SpecPtr SpecTable::replicated(const Shape& shape) {
  return intern(std::make_shared<planner::DTensorSpec>(
      mesh_, planner::Placements(static_cast<std::size_t>(mesh_->ndim())), shape));
}

void SpecTable::forget_unused() {
  gradients_.clear();
  constexpr long kOwnHandles = 2;  // in specs_ and in known_
  std::erase_if(specs_, [this](const planner::SpecPtr& spec) {
    if (spec.use_count() > kOwnHandles) return false;
    known_.erase(spec.get());
    return true;
  });
}

}  // namespace meshloom::dtensor
