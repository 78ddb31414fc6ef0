// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/simulate.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "planner/redistribute/exchange.h"

namespace meshloom::planner {
namespace {

using Values = std::vector<std::uint64_t>;

/// A local tensor, row-major.
struct Local {
  Shape shape;
  Values values;
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

std::int64_t position_of(const Shape& shape, const Dims& at) {
  std::int64_t position = 0;
  for (int d = 0; d < shape.size(); ++d) position = position * shape[d] + at[d];
  return position;
}

std::vector<std::int64_t> listed(const IndexRanges& ranges) {
  std::vector<std::int64_t> list;
  for (const ShardRange& range : ranges)
    for (std::int64_t i = range.begin; i < range.end; ++i) list.push_back(i);
  return list;
}

std::vector<std::vector<std::int64_t>> listed(const std::vector<IndexRanges>& ranges) {
  std::vector<std::vector<std::int64_t>> lists;
  for (const IndexRanges& list : ranges) lists.push_back(listed(list));
  return lists;
}

Dims look_up(const std::vector<std::vector<std::int64_t>>& lists, const Dims& at) {
  Dims result = at;
  for (int d = 0; d < at.size(); ++d)
    result[d] = lists[static_cast<std::size_t>(d)][static_cast<std::size_t>(at[d])];
  return result;
}

std::uint64_t value_of(const Shape& global, const Dims& at) {
  return scramble(static_cast<std::uint64_t>(position_of(global, at)) + 0x1234567);
}

/// The share of `value` that the Partial holder at `coordinates` has: all but the first hold noise,
/// the first what is missing.
std::uint64_t share_of(const DTensorSpec& spec, const std::vector<int>& coordinates,
                       std::uint64_t value) {
  std::vector<int> sizes, at;
  for (int m = 0; m < spec.mesh().ndim(); ++m)
    if (spec.placement(m).is_partial()) {
      sizes.push_back(spec.mesh().dim_size(m));
      at.push_back(coordinates[static_cast<std::size_t>(m)]);
    }
  std::uint64_t holders = 1, own = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    holders *= static_cast<std::uint64_t>(sizes[i]);
    own = own * static_cast<std::uint64_t>(sizes[i]) + static_cast<std::uint64_t>(at[i]);
  }
  if (own > 0) return scramble(value + own);
  std::uint64_t missing = value;
  for (std::uint64_t other = 1; other < holders; ++other) missing -= scramble(value + other);
  return missing;
}

Local distribute(const DTensorSpec& spec, const std::vector<int>& coordinates) {
  const LocalPart part = spec.local_part(coordinates);
  const auto lists = listed(part.ranges);
  Local local{part.shape, {}};
  for_each_index(part.shape, [&](const Dims& at, std::int64_t) {
    local.values.push_back(share_of(spec, coordinates, value_of(spec.shape(), look_up(lists, at))));
  });
  return local;
}

/// Copies a block of one local tensor to a block of another, both outer products of ranges.
void copy_block(const Local& source, const std::vector<IndexRanges>& from, Local& target,
                const std::vector<IndexRanges>& to, const Shape& shape) {
  const auto from_lists = listed(from), to_lists = listed(to);
  for_each_index(shape, [&](const Dims& at, std::int64_t) {
    target.values[static_cast<std::size_t>(position_of(target.shape, look_up(to_lists, at)))] =
        source.values[static_cast<std::size_t>(position_of(source.shape, look_up(from_lists, at)))];
  });
}

/// Copies what two parts have in common; how much that was.
std::int64_t copy_common(const Local& source, const LocalPart& from, Local& target,
                         const LocalPart& to) {
  const CommonRanges common = common_ranges(from, to);
  if (common.empty()) return 0;
  copy_block(source, common.in_a, target, common.in_b, common.shape);
  return numel(common.shape);
}

[[noreturn]] void fail(const std::string& where, int rank, const std::string& what) {
  throw InternalError(fmt::format("simulate: {}: rank {} {}", where, rank, what));
}

/// All ranks of a mesh while one step runs. Indices are mesh ranks.
class StepRun {
 public:
  StepRun(const RedistributeStep& step, const std::vector<Local>& before)
      : step_(step), mesh_(step.from->mesh()), before_(before) {}

  Local run(int rank) const {
    const std::vector<int> group = mesh_.group_of(std::span<const int>(step_.mesh_dims), rank);
    switch (step_.kind) {
      case StepKind::kAllReduce: return sum(group);
      case StepKind::kReduceScatter: return reduce_scatter(group, rank);
      case StepKind::kAllGather: return all_gather(group, rank);
      case StepKind::kAllToAll: return all_to_all(group, rank);
      case StepKind::kSlice: return take_common(rank);
      case StepKind::kToPartial: return to_partial(rank);
      case StepKind::kConvertPartial: return before_[static_cast<std::size_t>(rank)];
      case StepKind::kSendRecv: break;
    }
    throw InternalError("simulate: send_recv is no step of one mesh");
  }

 private:
  const Local& before(int rank) const { return before_[static_cast<std::size_t>(rank)]; }
  Local empty(int rank) const {
    const Shape shape = step_.to->local_shape(mesh_.coordinates(rank));
    return {shape, Values(static_cast<std::size_t>(numel(shape)), 0)};
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

  bool cut_by_order(const DTensorSpec& spec) const {
    return std::any_of(step_.mesh_dims.begin(), step_.mesh_dims.end(),
                       [&](int m) { return spec.dim_order(m) != nullptr; });
  }

  LocalPart part(const DTensorSpec& spec, int rank) const {
    return spec.local_part(mesh_.coordinates(rank));
  }

  /// Shards lie in the sum one after the other, in group order.
  Local reduce_scatter(const std::vector<int>& group, int rank) const {
    const Local total = sum(group);
    Local result = empty(rank);
    if (cut_by_order(*step_.to)) {
      copy_common(total, part(*step_.from, rank), result, part(*step_.to, rank));
      return result;
    }
    const int dim = step_.to->placement(step_.mesh_dims[0]).dim;
    std::int64_t begin = 0;
    for (std::size_t i = 0; group[i] != rank; ++i) begin += empty(group[i]).shape[dim];
    for_each_index(result.shape, [&](Dims at, std::int64_t position) {
      at[dim] += begin;
      result.values[static_cast<std::size_t>(position)] =
          total.values[static_cast<std::size_t>(position_of(total.shape, at))];
    });
    return result;
  }

  /// Shards are laid one after the other, in group order.
  Local all_gather(const std::vector<int>& group, int rank) const {
    Local result = empty(rank);
    const int dim = step_.from->placement(step_.mesh_dims[0]).dim;
    std::int64_t begin = 0;
    if (cut_by_order(*step_.from)) {
      for (const int member : group)
        copy_common(before(member), part(*step_.from, member), result, part(*step_.to, rank));
      return result;
    }
    for (const int member : group) {
      const Local& shard = before(member);
      for_each_index(shard.shape, [&](Dims at, std::int64_t position) {
        at[dim] += begin;
        result.values[static_cast<std::size_t>(position_of(result.shape, at))] =
            shard.values[static_cast<std::size_t>(position)];
      });
      begin += shard.shape[dim];
    }
    if (begin != result.shape[dim])
      fail(step_.to_string(), rank, fmt::format("gathers {} of {}", begin, result.shape[dim]));
    return result;
  }

  Local all_to_all(const std::vector<int>& group, int rank) const {
    Local result = empty(rank);
    std::int64_t received = 0;
    for (const ExchangePart& part : all_to_all_parts(step_, rank).receives) {
      const int peer = group[static_cast<std::size_t>(part.peer)];
      const auto own = std::find(group.begin(), group.end(), rank) - group.begin();
      for (const ExchangePart& sent : all_to_all_parts(step_, peer).sends)
        if (sent.peer == own) copy_block(before(peer), sent.local, result, part.local, part.shape);
      received += numel(part.shape);
    }
    check_received(received, result, rank);
    return result;
  }

  Local take_common(int rank) const {
    Local result = empty(rank);
    const std::int64_t taken =
        copy_common(before(rank), part(*step_.from, rank), result, part(*step_.to, rank));
    if (step_.kind == StepKind::kSlice) check_received(taken, result, rank);
    return result;
  }

  /// A replicated value stays with the first rank; a shard is filled up with zeros.
  Local to_partial(int rank) const {
    const std::vector<int> at = mesh_.coordinates(rank);
    const int m = step_.mesh_dims[0];
    if (step_.from->placement(m).is_replicate() && at[static_cast<std::size_t>(m)] > 0)
      return empty(rank);
    return take_common(rank);
  }

  void check_received(std::int64_t count, const Local& result, int rank) const {
    if (count != numel(result.shape))
      fail(step_.to_string(), rank,
           fmt::format("has {} of {} elements", count, numel(result.shape)));
  }

  const RedistributeStep& step_;
  const MeshLayout& mesh_;
  const std::vector<Local>& before_;
};

std::vector<Local> send_and_receive(const RedistributeStep& step,
                                    const std::vector<Local>& before) {
  const MeshLayout &source = step.from->mesh(), &target = step.to->mesh();
  std::vector<Local> after;
  for (int rank = 0; rank < target.size(); ++rank) {
    const Shape shape = step.to->local_shape(target.coordinates(rank));
    Local& result =
        after.emplace_back(Local{shape, Values(static_cast<std::size_t>(numel(shape)), 0)});
    std::int64_t received = 0;
    for (const ExchangePart& part : send_recv_parts(step, target.world_rank(rank)).receives) {
      for (const ExchangePart& sent : send_recv_parts(step, part.peer).sends)
        if (sent.peer == target.world_rank(rank))
          copy_block(before[static_cast<std::size_t>(*source.find_world_rank(part.peer))],
                     sent.local, result, part.local, part.shape);
      received += numel(part.shape);
    }
    if (received != numel(shape))
      fail(step.to_string(), rank, fmt::format("has {} of {} elements", received, numel(shape)));
  }
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
    const auto lists = listed(part.ranges);
    const std::vector<int> group = spec.mesh().group_of(std::span<const int>(partial), rank);
    for_each_index(part.shape, [&](const Dims& at, std::int64_t position) {
      std::uint64_t total = 0;
      for (const int holder : group) {
        const Local& local = held[static_cast<std::size_t>(holder)];
        if (local.shape != part.shape)
          fail(where, holder, "holds " + meshloom::to_string(local.shape));
        total += local.values[static_cast<std::size_t>(position)];
      }
      const Dims global = look_up(lists, at);
      if (total != value_of(spec.shape(), global))
        fail(where, rank, "holds a wrong element " + meshloom::to_string(global));
    });
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
                   to_string(*at));
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

}  // namespace meshloom::planner
