// SPDX-License-Identifier: Apache-2.0
#include "planner/sharding/strategy_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace meshloom::planner {
namespace {

bool comes_first(const StrategyChoice& a, const StrategyChoice& b) {
  return a.cost != b.cost ? a.cost < b.cost : a.changes < b.changes;
}

std::vector<int> mesh_dims_of(const std::vector<int>& strategies, int strategy) {
  std::vector<int> mesh_dims;
  for (std::size_t m = 0; m < strategies.size(); ++m)
    if (strategies[m] == strategy) mesh_dims.push_back(static_cast<int>(m));
  return mesh_dims;
}

/// Whether some part of the sharding is empty; several mesh dims count as one.
bool leaves_a_part_empty(const AxisSharding& sharding, const MeshLayout& mesh) {
  if (sharding.chunk == 0) return true;
  if (sharding.listed()) {
    for (int p = 0; p < sharding.parts; ++p)
      if (sharding.order->part_size(p) == 0) return true;
    return sharding.mesh_dims.size() > 1;
  }
  const std::int64_t stretch = sharding.size / sharding.groups;
  if (sharding.chunk * (sharding.parts - 1) >= stretch) return true;
  if (sharding.mesh_dims.size() == 1) return false;
  int parts = 1;
  for (const int m : sharding.mesh_dims) parts *= mesh.dim_size(m);
  return stretch % (sharding.inner_unit * parts) != 0;
}

bool is_prefix(const std::vector<int>& a, const std::vector<int>& b) {
  return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
}

}  // namespace

StrategySearch::StrategySearch(const OpCall& call, const OpRule& rule,
                               const RedistributeOptions& options)
    : call_(call), rule_(rule), options_(options) {
  static const Topology built_in;
  const Topology& topology = options.topology ? *options.topology : built_in;
  for (const SpecPtr& input : call.inputs) {
    double& bytes = local_bytes_.emplace_back(0.0);
    if (!input) continue;
    mesh_ = &input->mesh();
    bytes = static_cast<double>(numel(input->shape())) * options.element_size;
    for (int m = 0; m < mesh_->ndim(); ++m)
      if (input->placement(m).is_shard()) bytes /= mesh_->dim_size(m);
    for (int m = 0; input->has_dim_orders() && m < mesh_->ndim(); ++m)
      any_rows_ = any_rows_ || (input->dim_order(m) && input->dim_order(m)->by_row());
  }
  for (int m = 0; m < mesh_->ndim(); ++m) links_.push_back(mesh_link(*mesh_, m, topology));
  scored_.resize(links_.size());
  for (int m = 0; m < mesh_->ndim(); ++m) score(m);
  least_rest_.resize(links_.size() + 1);
  for (std::size_t m = links_.size(); m-- > 0;)
    least_rest_[m] = {.cost = least_rest_[m + 1].cost + scored_[m].front().cost,
                      .changes = least_rest_[m + 1].changes + scored_[m].front().changes};
}

const ShardAxis* StrategySearch::axis(int strategy) const {
  const std::size_t index = static_cast<std::size_t>(strategy) - 1;
  return strategy > 0 && index < rule_.axes.size() ? &rule_.axes[index] : nullptr;
}

const PartialStrategy* StrategySearch::partial(int strategy) const {
  const std::size_t first = rule_.axes.size() + 1;
  const auto index = static_cast<std::size_t>(strategy);
  return index >= first ? &rule_.partials[index - first] : nullptr;
}

Placement StrategySearch::input_placement(int strategy, std::size_t input) const {
  if (const ShardAxis* a = axis(strategy))
    return a->inputs[input].present() ? Placement::shard(a->inputs[input].dim) : Placement();
  if (const PartialStrategy* p = partial(strategy)) return p->inputs[input];
  return Placement::replicate();
}

Placement StrategySearch::output_placement(int strategy, std::size_t output) const {
  if (const ShardAxis* a = axis(strategy))
    return a->outputs[output].present() ? Placement::shard(a->outputs[output].dim) : a->reduced;
  if (const PartialStrategy* p = partial(strategy)) return p->outputs[output];
  return Placement::replicate();
}

/// What it costs to reduce outputs that a strategy makes Partial where inputs were not.
double StrategySearch::pending_cost(int mesh_dim, int strategy) const {
  double cost = 0.0;
  for (std::size_t j = 0; j < rule_.outputs.size(); ++j) {
    const Placement placement = output_placement(strategy, j);
    if (!placement.is_partial()) continue;
    const double bytes = static_cast<double>(numel(rule_.outputs[j])) * options_.element_size;
    cost += transition_cost(placement, Placement::shard(0), bytes,
                            links_[static_cast<std::size_t>(mesh_dim)], options_.cost_model);
  }
  return cost;
}

/// Bytes that a rank holds of an input at the least when it comes to this mesh dim: every other
/// mesh dim that can has sharded it further.
double StrategySearch::least_bytes(std::size_t input, int mesh_dim) const {
  double bytes = local_bytes_[input];
  for (int m = 0; m < mesh_->ndim(); ++m)
    if (m != mesh_dim && !call_.inputs[input]->placement(m).is_shard()) bytes /= mesh_->dim_size(m);
  return bytes;
}

/// Cost of all changes of an input: those that leave a rank less first, and the much over the inner
/// mesh dims, whose links are no slower.
double StrategySearch::input_cost(std::size_t input, const std::vector<int>& strategies) const {
  const DTensorSpec& spec = *call_.inputs[input];
  double bytes = local_bytes_[input], cost = 0.0;
  enum Phase { kSlice, kReduceScatter, kSameSize, kGather, kPhases };
  const auto phase_of = [](const Placement& from, const Placement& to) {
    if (to.is_shard())
      return from.is_replicate() ? kSlice : from.is_partial() ? kReduceScatter : kSameSize;
    return from.is_shard() ? kGather : kSameSize;
  };
  for (int phase = kSlice; phase < kPhases; ++phase)
    for (std::size_t n = 0; n < strategies.size(); ++n) {
      const std::size_t m = phase == kGather ? n : strategies.size() - 1 - n;
      const Placement& from = spec.placement(static_cast<int>(m));
      const Placement to = input_placement(strategies[m], input);
      if (phase_of(from, to) != phase || from == to) continue;
      cost += transition_cost(from, to, bytes, links_[m], options_.cost_model);
      if (phase == kSlice || phase == kReduceScatter) bytes /= links_[m].size;
      if (phase == kGather) bytes *= links_[m].size;
    }
  return cost;
}

void StrategySearch::score(int mesh_dim) {
  std::vector<Scored>& scored = scored_[static_cast<std::size_t>(mesh_dim)];
  const int strategies = 1 + static_cast<int>(rule_.axes.size() + rule_.partials.size());
  for (int s = 0; s < strategies; ++s) {
    Scored entry{.strategy = s};
    for (std::size_t i = 0; i < call_.inputs.size(); ++i) {
      if (call_.inputs[i] == nullptr) continue;
      const Placement& from = call_.inputs[i]->placement(mesh_dim);
      const Placement to = input_placement(s, i);
      if (from == to) continue;
      entry.cost +=
          transition_cost(from, to, least_bytes(i, mesh_dim),
                          links_[static_cast<std::size_t>(mesh_dim)], options_.cost_model);
      ++entry.changes;
    }
    if (std::isinf(entry.cost)) continue;
    if (entry.cost > 0.0) entry.pending = pending_cost(mesh_dim, s);
    entry.cost += entry.pending;
    scored.push_back(entry);
  }
  std::stable_sort(scored.begin(), scored.end(), [](const Scored& a, const Scored& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.changes < b.changes;
  });
}

std::vector<StrategyChoice> StrategySearch::best(std::size_t count) {
  count_ = count;
  kept_.clear();
  descend({});
  if (!kept_.empty() && kept_.front().cost == 0.0) kept_.resize(1);
  return kept_;
}

void StrategySearch::descend(const StrategyChoice& choice) {
  const std::size_t m = choice.strategies.size();
  if (m == links_.size()) return finish(choice);
  for (const Scored& entry : scored_[m]) {
    StrategyChoice next{choice.strategies, choice.cost + entry.cost, choice.pending + entry.pending,
                        choice.changes + entry.changes};
    if (cannot_enter(next, least_rest_[m + 1])) continue;
    next.strategies.push_back(entry.strategy);
    descend(next);
  }
}

/// Whether a choice, the rest at its least, comes after all that is kept.
bool StrategySearch::cannot_enter(const StrategyChoice& choice, const Scored& rest) const {
  if (kept_.empty()) return false;
  StrategyChoice least;
  least.cost = choice.cost + rest.cost;
  least.changes = choice.changes + rest.changes;
  if (kept_.front().cost == 0.0) return !comes_first(least, kept_.front());
  return kept_.size() == count_ && !comes_first(least, kept_.back());
}

/// No tensor dim may be sharded by two axes.
bool StrategySearch::keep_apart(const std::vector<int>& strategies) const {
  for (std::size_t m = 1; m < strategies.size(); ++m)
    for (std::size_t n = 0; n < m; ++n) {
      if (strategies[m] == strategies[n]) continue;
      const ShardAxis *a = axis(strategies[m]), *b = axis(strategies[n]);
      if (a == nullptr || b == nullptr) continue;
      for (std::size_t i = 0; i < a->inputs.size(); ++i)
        if (a->inputs[i].present() && a->inputs[i].dim == b->inputs[i].dim) return false;
      for (std::size_t j = 0; j < a->outputs.size(); ++j)
        if (a->outputs[j].present() && a->outputs[j].dim == b->outputs[j].dim) return false;
    }
  return true;
}

void StrategySearch::finish(StrategyChoice choice) {
  if (!keep_apart(choice.strategies)) return;
  choice.cost = choice.pending;
  for (std::size_t i = 0; i < call_.inputs.size(); ++i)
    if (call_.inputs[i] != nullptr) choice.cost += input_cost(i, choice.strategies);
  for (std::size_t m = 0; m < choice.strategies.size(); ++m) {
    const int strategy = choice.strategies[m];
    if (axis(strategy) == nullptr) continue;
    const std::vector<int> mesh_dims = mesh_dims_of(choice.strategies, strategy);
    if (mesh_dims.front() != static_cast<int>(m)) continue;
    const SolvedAxis& solved = solved_axis(strategy - 1, mesh_dims);
    if (!solved.legal) return;
    choice.cost += solved.cost;
  }
  if (any_rows_ && rows_meet(choice)) return;
  if (kept_.size() == count_ && !comes_first(choice, kept_.back())) return;
  kept_.insert(std::upper_bound(kept_.begin(), kept_.end(), choice, comes_first), choice);
  if (kept_.size() > count_) kept_.pop_back();
}

DimSharding StrategySearch::sharding_of_input(const ShardAxis& axis, const AxisSharding& sharding,
                                              std::size_t input) const {
  const AxisUse& use = axis.inputs[input];
  if (!use.shows_axis()) {
    // A dim that keeps the sharding of an input, if that has these mesh dims in this order.
    const DTensorSpec& kept = *call_.inputs[static_cast<std::size_t>(use.keeps_input)];
    if (kept.sharding_dims(use.dim) != sharding.mesh_dims) return {};
    return {true, kept.dim_order(sharding.mesh_dims.front())};
  }
  const int row_dim = sharding.by_row() ? same_dim_of_input(rule_, sharding.source_input,
                                                            sharding.order->row_dim(), input)
                                        : -1;
  return sharding_of_dim(sharding, *mesh_, use, call_.inputs[input]->shape()[use.dim], row_dim);
}

DimSharding StrategySearch::sharding_of_output(const ShardAxis& axis, const AxisSharding& sharding,
                                               std::size_t output) const {
  const AxisUse& use = axis.outputs[output];
  const int row_dim = sharding.by_row() ? same_dim_of_output(rule_, sharding.source_input,
                                                             sharding.order->row_dim(), output)
                                        : -1;
  return sharding_of_dim(sharding, *mesh_, use, rule_.outputs[output][use.dim], row_dim);
}

/// No tensor dim may be sharded by rows of a dim that is sharded by rows itself.
bool StrategySearch::rows_meet(const StrategyChoice& choice) {
  std::vector<std::pair<const ShardAxis*, const AxisSharding*>> by_row;
  for (std::size_t m = 0; m < choice.strategies.size(); ++m) {
    const ShardAxis* chosen = axis(choice.strategies[m]);
    if (chosen == nullptr) continue;
    const AxisSharding& sharding = this->sharding(choice, choice.strategies[m] - 1);
    if (sharding.by_row() && sharding.mesh_dims.front() == static_cast<int>(m))
      by_row.emplace_back(chosen, &sharding);
  }
  if (by_row.size() < 2) return false;
  const auto meet = [&](const auto& uses_of, const auto& sharding_of, std::size_t tensor) {
    for (const auto& [rows_axis, rows_sharding] : by_row) {
      if (!uses_of(*rows_axis)[tensor].present()) continue;
      const DimOrderPtr order = sharding_of(*rows_axis, *rows_sharding, tensor).order;
      const int row_dim = order ? order->row_dim() : -1;
      for (const auto& [axis, sharding] : by_row)
        if (axis != rows_axis && row_dim >= 0 && uses_of(*axis)[tensor].dim == row_dim) return true;
    }
    return false;
  };
  for (std::size_t i = 0; i < call_.inputs.size(); ++i)
    if (call_.inputs[i] != nullptr &&
        meet(
            [](const ShardAxis& a) -> const auto& { return a.inputs; },
            [&](const ShardAxis& a, const AxisSharding& c, std::size_t t) {
              return sharding_of_input(a, c, t);
            },
            i))
      return true;
  for (std::size_t j = 0; j < rule_.outputs.size(); ++j)
    if (meet(
            [](const ShardAxis& a) -> const auto& { return a.outputs; },
            [&](const ShardAxis& a, const AxisSharding& c, std::size_t t) {
              return sharding_of_output(a, c, t);
            },
            j))
      return true;
  return false;
}

const AxisSharding& StrategySearch::sharding(const StrategyChoice& choice, int index) {
  return solved_axis(index, mesh_dims_of(choice.strategies, index + 1)).sharding;
}

const StrategySearch::SolvedAxis& StrategySearch::solved_axis(int index,
                                                              const std::vector<int>& mesh_dims) {
  const auto [at, fresh] = solved_.try_emplace({index, mesh_dims});
  SolvedAxis& result = at->second;
  if (!fresh) return result;
  const ShardAxis& axis = rule_.axes[static_cast<std::size_t>(index)];
  for (AxisSharding& sharding : candidates(axis, mesh_dims)) {
    if (axis.contiguous && !sharding.contiguous()) continue;
    if (axis.nonempty && leaves_a_part_empty(sharding, *mesh_)) continue;
    const std::optional<double> cost = cost_of_sharding(axis, sharding);
    if (!cost || (result.legal && *cost >= result.cost)) continue;
    result = {true, *cost, std::move(sharding)};
    if (*cost == 0.0) break;
  }
  return result;
}

std::vector<AxisSharding> StrategySearch::candidates(const ShardAxis& axis,
                                                     const std::vector<int>& mesh_dims) const {
  std::vector<AxisSharding> shardings;
  std::int64_t groups = 1, unit = 1;
  const auto note = [&](const AxisUse& use) {
    if (!use.present()) return;
    groups = std::lcm(groups, use.prefix);
    unit = std::lcm(unit, use.suffix);
  };
  for (const AxisUse& use : axis.outputs) note(use);
  for (std::size_t i = 0; i < axis.inputs.size(); ++i) {
    const AxisUse& use = axis.inputs[i];
    note(use);
    if (!use.shows_axis() || call_.inputs[i] == nullptr) continue;
    const std::vector<int>& own = call_.inputs[i]->sharding_dims(use.dim);
    // The input's own mesh dims of the dim come first, then the rest.
    std::vector<int> order;
    for (const int m : own)
      if (std::find(mesh_dims.begin(), mesh_dims.end(), m) != mesh_dims.end()) order.push_back(m);
    for (const int m : mesh_dims)
      if (std::find(own.begin(), own.end(), m) == own.end()) order.push_back(m);
    if (own.empty() || order.front() != own.front()) continue;
    shardings.push_back(read_sharding(*call_.inputs[i], use, axis.size, std::move(order), i));
  }
  if (axis.size % groups == 0)
    shardings.push_back(unit_sharding(*mesh_, axis.size, mesh_dims, groups, unit));
  return shardings;
}

std::optional<double> StrategySearch::cost_of_sharding(const ShardAxis& axis,
                                                       const AxisSharding& sharding) const {
  double cost = 0.0;
  for (std::size_t i = 0; i < axis.inputs.size(); ++i) {
    const AxisUse& use = axis.inputs[i];
    if (!use.present() || call_.inputs[i] == nullptr) continue;
    const DimSharding own = sharding_of_input(axis, sharding, i);
    if (!own.fits) return std::nullopt;
    if (!use.shows_axis()) continue;
    const double reshard_input = reshard(i, use, sharding, own.order);
    if (reshard_input > 0.0 && idles_ranks(*call_.inputs[i], use, sharding)) return std::nullopt;
    cost += reshard_input;
  }
  for (std::size_t j = 0; j < axis.outputs.size(); ++j) {
    if (axis.outputs[j].present() && !sharding_of_output(axis, sharding, j).fits)
      return std::nullopt;
  }
  return cost;
}

/// Whether a rank that holds something of the input would hold nothing in the new sharding.
bool StrategySearch::idles_ranks(const DTensorSpec& spec, const AxisUse& use,
                                 const AxisSharding& sharding) const {
  const std::vector<int>& own = spec.sharding_dims(use.dim);
  return leaves_a_part_empty(sharding, *mesh_) &&
         !leaves_a_part_empty(read_sharding(spec, use, sharding.size, own), *mesh_);
}

/// What the placements alone do not tell: an input that is sharded along the axis already, but
/// otherwise.
double StrategySearch::reshard(std::size_t input, const AxisUse& use, const AxisSharding& sharding,
                               const DimOrderPtr& order) const {
  const DTensorSpec& spec = *call_.inputs[input];
  const std::vector<int>& own = spec.sharding_dims(use.dim);
  const auto stays = [&](int m) { return std::find(own.begin(), own.end(), m) != own.end(); };
  if (std::none_of(sharding.mesh_dims.begin(), sharding.mesh_dims.end(), stays)) return 0.0;
  const bool nests = is_prefix(own, sharding.mesh_dims) || is_prefix(sharding.mesh_dims, own);
  if (nests && same_order(order, spec.dim_order(own.front()))) return 0.0;
  return reshard_cost(local_bytes_[input],
                      links_[static_cast<std::size_t>(sharding.mesh_dims.front())],
                      options_.cost_model);
}

}  // namespace meshloom::planner
