// SPDX-License-Identifier: Apache-2.0
#include "tests/support/simulate_plan.h"

#include <algorithm>
#include <unordered_map>

#include "kernels/base/error.h"
#include "planner/redistribute/exchange.h"

namespace meshloom::test {
namespace {

using namespace planner;

using Values = std::vector<std::uint64_t>;

/// A local tensor, row-major.
struct Local {
  Shape shape;
  Values values;

  static Local zeros(const Shape& shape) {
    return {shape, Values(static_cast<std::size_t>(numel(shape)), 0)};
  }
};

std::uint64_t scramble(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

/// Calls visit(index per dim, position) for all indices of a shape, row-major.
template <typename Visit>
void for_each_index(const Shape& shape, const Visit& visit) {
  Dims at = shape;
  for (std::int64_t& i : at) i = 0;
  const std::int64_t count = numel(shape);
  for (std::int64_t position = 0; position < count; ++position) {
    visit(at, position);
    for (int d = shape.size() - 1; d >= 0 && ++at[d] == shape[d]; --d) at[d] = 0;
  }
}

std::int64_t position_of(const Shape& shape, const Dims& at, const Dims& first) {
  std::int64_t position = 0;
  for (int d = 0; d < shape.size(); ++d) position = position * shape[d] + first[d] + at[d];
  return position;
}

/// Of the element with this row-major index.
std::uint64_t value_of(std::int64_t index) {
  return scramble(static_cast<std::uint64_t>(index) + 0x1234567);
}

/// The share of `value` that the Partial holder at `coordinates` has: all but the first hold noise,
/// the first what is missing.
std::uint64_t share_of(const DTensorSpec& spec, const std::vector<int>& coordinates,
                       std::uint64_t value) {
  std::uint64_t holders = 1, own = 0;
  for (int m = 0; m < spec.mesh().ndim(); ++m) {
    if (!spec.placement(m).is_partial()) continue;
    const auto size = static_cast<std::uint64_t>(spec.mesh().dim_size(m));
    holders *= size;
    own = own * size + static_cast<std::uint64_t>(coordinates[static_cast<std::size_t>(m)]);
  }
  if (own > 0) return scramble(value + own);
  std::uint64_t missing = value;
  for (std::uint64_t other = 1; other < holders; ++other) missing -= scramble(value + other);
  return missing;
}

Local distribute(const DTensorSpec& spec, const std::vector<int>& coordinates) {
  const LocalPart part = spec.local_part(coordinates);
  Local local{part.shape(), {}};
  for (const std::int64_t index : global_indices(part, spec.shape()))
    local.values.push_back(share_of(spec, coordinates, value_of(index)));
  return local;
}

/// Copies what both parts hold, one element after the other; how much that was.
std::int64_t copy_common(const Local& source, const LocalPart& from, Local& target,
                         const LocalPart& to, const Shape& global) {
  std::unordered_map<std::int64_t, std::size_t> places;
  for (const std::int64_t index : global_indices(to, global)) places.emplace(index, places.size());
  std::int64_t copied = 0;
  std::size_t at = 0;
  for (const std::int64_t index : global_indices(from, global)) {
    if (const auto place = places.find(index); place != places.end()) {
      target.values[place->second] = source.values[at];
      ++copied;
    }
    ++at;
  }
  return copied;
}

[[noreturn]] void fail(const std::string& where, int rank, const std::string& what) {
  throw InternalError(fmt::format("simulate: {}: rank {} {}", where, rank, what));
}

/// What the sender says goes there, added where the receiver says it belongs.
void add_boxes(const Local& source, const Boxes& sent, Local& target, const Boxes& received) {
  check_internal(sent.size() == received.size(), "simulate: {} boxes are sent, {} received",
                 sent.size(), received.size());
  for (std::size_t b = 0; b < sent.size(); ++b) {
    check_internal(sent[b].size == received[b].size, "simulate: a box of {} is received as {}",
                   sent[b].size, received[b].size);
    for_each_index(sent[b].size, [&](const Dims& at, std::int64_t) {
      target.values[static_cast<std::size_t>(position_of(target.shape, at, received[b].to))] +=
          source.values[static_cast<std::size_t>(position_of(source.shape, at, sent[b].from))];
    });
  }
}

/// What member `own` holds after all messages of a step; `before` by member, null outside the mesh.
Local deliver(const std::vector<const RankExchange*>& members, std::size_t own,
              const std::vector<const Local*>& before) {
  const RankExchange& mine = *members[own];
  Local result = Local::zeros(mine.after[own]);
  if (before[own] != nullptr) add_boxes(*before[own], mine.kept, result, mine.kept);
  for (std::size_t m = 0; m < members.size(); ++m) {
    if (before[m] == nullptr) continue;
    const std::vector<Boxes>& sends = members[m]->sends;
    if (sends.empty() && mine.receives.empty()) continue;
    const Boxes& sent = sends.empty() ? mine.receives[m] : sends[own];
    add_boxes(*before[m], sent, result, mine.receives.empty() ? sent : mine.receives[m]);
  }
  return result;
}

/// All ranks of a mesh while one step runs: by the definition of its kind, element by element, and
/// by the messages of exchange.h, which must bring the same. Indices are mesh ranks.
class StepRun {
 public:
  StepRun(const RedistributeStep& step, const std::vector<Local>& before)
      : step_(step), mesh_(step.from->mesh()), before_(before) {
    for (int rank = 0; rank < mesh_.size(); ++rank) exchanges_.push_back(rank_exchange(step, rank));
  }

  Local run(int rank) const {
    const Local result = by_definition(rank);
    if (step_.kind == StepKind::kAllReduce || step_.kind == StepKind::kToPartial ||
        step_.kind == StepKind::kConvertPartial)
      return result;
    const Local delivered = by_messages(rank);
    if (delivered.shape != result.shape || delivered.values != result.values)
      fail(step_.to_string(), rank, "is sent other elements than it should hold");
    return result;
  }

 private:
  Local by_definition(int rank) const {
    const std::vector<int> group = mesh_.group_of(std::span<const int>(step_.mesh_dims), rank);
    switch (step_.kind) {
      case StepKind::kAllReduce: return sum(group);
      case StepKind::kReduceScatter: return reduce_scatter(group, rank);
      case StepKind::kAllGather: return all_gather(group, rank);
      case StepKind::kAllToAll: return collect(group, rank);
      case StepKind::kSlice: return collect({rank}, rank);
      case StepKind::kToPartial: return to_partial(rank);
      case StepKind::kConvertPartial: return before(rank);
      case StepKind::kSendRecv: break;
    }
    throw InternalError("simulate: send_recv is no step of one mesh");
  }

  Local by_messages(int rank) const {
    std::vector<const RankExchange*> members;
    std::vector<const Local*> held;
    std::size_t own = 0;
    for (const int member : group_members(step_, rank).from) {
      if (member == rank) own = members.size();
      members.push_back(&exchanges_[static_cast<std::size_t>(member)]);
      held.push_back(&before(member));
    }
    return deliver(members, own, held);
  }

  const Local& before(int rank) const { return before_[static_cast<std::size_t>(rank)]; }
  LocalPart part(const DTensorSpec& spec, int rank) const {
    return spec.local_part(mesh_.coordinates(rank));
  }
  Local empty(int rank) const {
    return Local::zeros(step_.to->local_shape(mesh_.coordinates(rank)));
  }
  std::int64_t copy(const Local& source, int source_rank, Local& target, int rank) const {
    return copy_common(source, part(*step_.from, source_rank), target, part(*step_.to, rank),
                       step_.from->shape());
  }

  Local sum(const std::vector<int>& group) const {
    Local result = before(group[0]);
    for (std::size_t i = 1; i < group.size(); ++i) {
      const Local& other = before(group[i]);
      if (other.shape != result.shape)
        fail(step_.to_string(), group[i],
             fmt::format("adds {} to {}", meshloom::to_string(other.shape),
                         meshloom::to_string(result.shape)));
      for (std::size_t v = 0; v < result.values.size(); ++v) result.values[v] += other.values[v];
    }
    return result;
  }

  bool sharded_by_order(const DTensorSpec& spec) const {
    return std::any_of(step_.mesh_dims.begin(), step_.mesh_dims.end(),
                       [&](int m) { return spec.dim_order(m) != nullptr; });
  }

  /// Shards lie in the sum one after the other, in group order.
  Local reduce_scatter(const std::vector<int>& group, int rank) const {
    const Local total = sum(group);
    Local result = empty(rank);
    if (sharded_by_order(*step_.to)) {
      copy(total, rank, result, rank);
      return result;
    }
    const int dim = step_.to->placement(step_.mesh_dims[0]).dim;
    Dims first = result.shape;
    for (std::int64_t& i : first) i = 0;
    for (std::size_t i = 0; group[i] != rank; ++i) first[dim] += empty(group[i]).shape[dim];
    for_each_index(result.shape, [&](const Dims& at, std::int64_t position) {
      result.values[static_cast<std::size_t>(position)] =
          total.values[static_cast<std::size_t>(position_of(total.shape, at, first))];
    });
    return result;
  }

  /// Shards are laid one after the other, in group order.
  Local all_gather(const std::vector<int>& group, int rank) const {
    if (sharded_by_order(*step_.from)) return collect(group, rank);
    Local result = empty(rank);
    const int dim = step_.from->placement(step_.mesh_dims[0]).dim;
    Dims first = result.shape;
    for (std::int64_t& i : first) i = 0;
    for (const int member : group) {
      const Local& shard = before(member);
      if (first[dim] + shard.shape[dim] > result.shape[dim]) break;
      for_each_index(shard.shape, [&](const Dims& at, std::int64_t position) {
        result.values[static_cast<std::size_t>(position_of(result.shape, at, first))] =
            shard.values[static_cast<std::size_t>(position)];
      });
      first[dim] += shard.shape[dim];
    }
    if (first[dim] != result.shape[dim])
      fail(step_.to_string(), rank, fmt::format("gathers {} of {}", first[dim], result.shape[dim]));
    return result;
  }

  /// All that the members hold of this rank's part; they hold nothing twice.
  Local collect(const std::vector<int>& members, int rank) const {
    Local result = empty(rank);
    std::int64_t count = 0;
    for (const int member : members) count += copy(before(member), member, result, rank);
    if (count != numel(result.shape))
      fail(step_.to_string(), rank,
           fmt::format("has {} of {} elements", count, numel(result.shape)));
    return result;
  }

  /// A replicated value stays with the first rank; a shard is filled up with zeros.
  Local to_partial(int rank) const {
    const std::vector<int> at = mesh_.coordinates(rank);
    const int m = step_.mesh_dims[0];
    Local result = empty(rank);
    if (step_.from->placement(m).is_shard() || at[static_cast<std::size_t>(m)] == 0)
      copy(before(rank), rank, result, rank);
    return result;
  }

  const RedistributeStep& step_;
  const MeshLayout& mesh_;
  const std::vector<Local>& before_;
  std::vector<RankExchange> exchanges_;
};

/// A step between meshes; `before` and the result by mesh rank.
std::vector<Local> send_and_receive(const RedistributeStep& step,
                                    const std::vector<Local>& before) {
  const StepMembers members = crossing_members(step);
  std::vector<RankExchange> exchanges;
  std::vector<const RankExchange*> all;
  std::vector<const Local*> held;
  for (int m = 0; m < members.size(); ++m) {
    exchanges.push_back(rank_exchange(step, members, m));
    const int rank = members.from[static_cast<std::size_t>(m)];
    held.push_back(rank < 0 ? nullptr : &before[static_cast<std::size_t>(rank)]);
  }
  for (const RankExchange& exchange : exchanges) all.push_back(&exchange);
  std::vector<Local> after(static_cast<std::size_t>(step.to->mesh().size()));
  for (std::size_t m = 0; m < all.size(); ++m)
    if (members.to[m] >= 0) after[static_cast<std::size_t>(members.to[m])] = deliver(all, m, held);
  return after;
}

/// Held values summed over the Partial mesh dims are the global ones, in the layout's order.
void check_layout(const DTensorSpec& spec, const std::vector<Local>& held,
                  const std::string& where) {
  std::vector<int> partial;
  for (int m = 0; m < spec.mesh().ndim(); ++m)
    if (spec.placement(m).is_partial()) partial.push_back(m);
  for (int rank = 0; rank < spec.mesh().size(); ++rank) {
    const LocalPart part = spec.local_part(spec.mesh().coordinates(rank));
    const std::vector<int> group = spec.mesh().group_of(std::span<const int>(partial), rank);
    for (const int holder : group)
      if (held[static_cast<std::size_t>(holder)].shape != part.shape())
        fail(where, holder,
             "holds " + meshloom::to_string(held[static_cast<std::size_t>(holder)].shape));
    std::size_t at = 0;
    for (const std::int64_t index : global_indices(part, spec.shape())) {
      std::uint64_t total = 0;
      for (const int holder : group) total += held[static_cast<std::size_t>(holder)].values[at];
      if (total != value_of(index))
        fail(where, rank, fmt::format("holds a wrong element {}", index));
      ++at;
    }
  }
}

}  // namespace

void simulate_plan(const RedistributePlan& plan) {
  std::vector<Local> held;
  for (int rank = 0; rank < plan.from->mesh().size(); ++rank)
    held.push_back(distribute(*plan.from, plan.from->mesh().coordinates(rank)));
  SpecPtr at = plan.from;
  for (const RedistributeStep& step : plan.steps) {
    check_internal(*step.from == *at, "simulate: step {} does not begin at {}", step.to_string(),
                   *at);
    std::vector<Local> after;
    if (step.kind == StepKind::kSendRecv) {
      after = send_and_receive(step, held);
    } else {
      const StepRun run(step, held);
      for (int rank = 0; rank < step.from->mesh().size(); ++rank) after.push_back(run.run(rank));
    }
    held = std::move(after);
    at = step.to;
    check_layout(*at, held, step.to_string());
  }
  check_layout(*plan.to, held, "the plan's end");
}

}  // namespace meshloom::test
