// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/tensor_parallel/boundary.h"

#include <algorithm>

#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/redistribute_tensor.h"
#include "daemon/dtensor/api/to_local.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

using planner::Placements;
using planner::SpecPtr;

/// Shapes that come and go (a sequence that grows by generation) must not fill memory.
constexpr std::size_t kMostKnown = 64;

bool features_last(const planner::Placement& placement, int ndim) {
  return placement.is_shard() && placement.dim == ndim - 1;
}

/// How the gradient of a gathered tensor may be held, so that going back is one reduce_scatter:
/// Partial where a shard becomes whole. Null if none does.
SpecPtr summands_of(const SpecPtr& from, const SpecPtr& to) {
  planner::Placements placements = to->placements();
  bool any = false;
  for (std::size_t d = 0; d < placements.size(); ++d) {
    const bool gathered = from->placements()[d].is_shard() && placements[d].is_replicate();
    any = any || gathered;
    if (gathered)
      placements[d] = planner::Placement::partial_of(planner::PartialOp::kSum);
    else if (placements[d].is_partial())
      placements[d] = planner::Placement::replicate();
  }
  if (!any) return nullptr;
  return std::make_shared<const planner::DTensorSpec>(to->mesh_ptr(), std::move(placements),
                                                      to->shape(), to->shard_order());
}

}  // namespace

bool Boundary::empty() const {
  return std::all_of(rules_.begin(), rules_.end(), [](const ArgumentRule& rule) {
    return !rule.given && !rule.desired && !rule.to_local;
  });
}

void Boundary::apply(std::span<Tensor> tensors) {
  for (std::size_t i = 0; i < std::min(tensors.size(), rules_.size()); ++i)
    if (tensors[i]) apply(tensors[i], rules_[i]);
}

void Boundary::apply(Tensor& x, const ArgumentRule& rule) {
  if (!x.has_layout()) {
    if (!rule.given) return;
    x = with_given_layout(x, rule);
  }
  if (rule.desired) {
    const SpecPtr from = x.layout()->spec, to = target(x, rule);
    const bool summands = rule.partial_grad && !rule.to_local;
    if (from != to)
      x = dtensor::redistribute(x, to, {}, summands ? summands_of(from, to) : nullptr);
  }
  if (rule.to_local) x = dtensor::to_local(x);
}

SpecPtr Boundary::make_spec(const Placements& placements, const Shape& shape,
                            const ArgumentRule& rule) const {
  std::vector<planner::DimOrderPtr> orders;
  if (!rule.feature_orders.empty() && shape.size() > 0 && shape.back() == rule.features) {
    orders = rule.feature_orders;
    for (std::size_t d = 0; d < orders.size(); ++d)
      if (!features_last(placements[d], shape.size())) orders[d] = nullptr;
    if (std::all_of(orders.begin(), orders.end(), [](const auto& o) { return o == nullptr; }))
      orders.clear();
  }
  return mesh_.engine.intern(std::make_shared<const planner::DTensorSpec>(
      mesh_.layout(), placements, shape, planner::ShardOrder{}, std::move(orders)));
}

Tensor Boundary::with_given_layout(const Tensor& x, const ArgumentRule& rule) const {
  try {
    const Placements placements =
        mesh_.dims.on_mesh(planner::normalize_placements(*rule.given, x.ndim()));
    Shape shape = x.shape();
    for (const int d : mesh_.dims.acting()) {
      const planner::Placement& placement = placements[static_cast<std::size_t>(d)];
      if (placement.is_shard()) shape[placement.dim] *= mesh_.layout()->dim_size(d);
    }
    // A module knows how many features there are in all; of other dims a plain part tells nothing,
    // so that all ranks are taken to hold as much.
    const bool sharded = std::any_of(placements.begin(), placements.end(),
                                     [&](const auto& p) { return features_last(p, x.ndim()); });
    if (sharded && rule.features > 0) shape[x.ndim() - 1] = rule.features;
    return dtensor::from_local(x, mesh_.engine, make_spec(placements, shape, rule));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", where_, error.what()));
  }
}

SpecPtr Boundary::target(const Tensor& x, const ArgumentRule& rule) {
  const SpecPtr& from = x.layout()->spec;
  for (const Known& known : known_)
    if (known.from == from && known.rule == &rule) return known.to;
  SpecPtr to;
  try {
    const Placements desired = mesh_.dims.on_mesh(
        planner::normalize_placements(*rule.desired, x.ndim()), from->placements());
    // The same sharding in another order of elements is what the module works on as it is.
    to = desired == from->placements() ? from : make_spec(desired, x.shape(), rule);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", where_, error.what()));
  }
  if (known_.size() >= kMostKnown) known_.clear();
  known_.push_back({from, &rule, to});
  return to;
}

}  // namespace meshloom::parallel
