// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/exchange.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

std::vector<LocalPart> parts_of(const DTensorSpec& spec, const std::vector<int>& mesh_ranks) {
  std::vector<LocalPart> parts;
  for (const int rank : mesh_ranks)
    parts.push_back(rank < 0 ? LocalPart::none() : spec.local_part(spec.mesh().coordinates(rank)));
  return parts;
}

std::vector<Shape> shapes_of(const std::vector<LocalPart>& parts) {
  std::vector<Shape> shapes;
  for (const LocalPart& part : parts) shapes.push_back(part.shape());
  return shapes;
}

/// For every receiver which members send.
class Senders {
 public:
  Senders(const DTensorSpec& from, const std::vector<int>& mesh_ranks)
      : copies_of_(mesh_ranks.size(), -1) {
    std::map<std::vector<int>, int> known;
    for (std::size_t m = 0; m < mesh_ranks.size(); ++m) {
      if (mesh_ranks[m] < 0) continue;
      std::vector<int> key = from.mesh().coordinates(mesh_ranks[m]);
      for (std::size_t d = 0; d < key.size(); ++d)
        if (!from.placement(static_cast<int>(d)).is_shard()) key[d] = 0;
      const int copies = known.try_emplace(key, static_cast<int>(holders_.size())).first->second;
      if (copies == static_cast<int>(holders_.size())) holders_.emplace_back();
      holders_[static_cast<std::size_t>(copies)].push_back(static_cast<int>(m));
      copies_of_[m] = copies;
    }
  }

  bool sends(int sender, int receiver) const {
    const int copies = copies_of_[static_cast<std::size_t>(sender)];
    if (copies < 0) return false;
    if (copies == copies_of_[static_cast<std::size_t>(receiver)]) return sender == receiver;
    const std::vector<int>& holders = holders_[static_cast<std::size_t>(copies)];
    return holders[static_cast<std::size_t>(receiver) % holders.size()] == sender;
  }

 private:
  std::vector<int> copies_of_;             ///< by member: which holders it is one of
  std::vector<std::vector<int>> holders_;  ///< members that hold the same, ascending
};

/// Of one rank's share a Partial is the whole.
bool is_partial(const DTensorSpec& spec, int mesh_dim) {
  return spec.placement(mesh_dim).is_partial() && spec.mesh().dim_size(mesh_dim) > 1;
}

bool moves_partial(const RedistributeStep& step) {
  if (step.kind != StepKind::kSendRecv)
    return std::any_of(step.mesh_dims.begin(), step.mesh_dims.end(),
                       [&](int d) { return is_partial(*step.from, d) || is_partial(*step.to, d); });
  for (const DTensorSpec* spec : {step.from.get(), step.to.get()})
    for (int d = 0; d < spec->mesh().ndim(); ++d)
      if (is_partial(*spec, d)) return true;
  return false;
}

/// One member's exchange, from the parts of all.
class ExchangeMaker {
 public:
  ExchangeMaker(const RedistributeStep& step, const StepMembers& members, int own)
      : step_(step),
        members_(members),
        own_(own),
        before_(parts_of(*step.from, members.from)),
        after_(parts_of(*step.to, members.to)) {
    result_.before = shapes_of(before_);
    result_.after = shapes_of(after_);
  }

  RankExchange make() {
    switch (step_.kind) {
      case StepKind::kAllGather: {
        std::int64_t arriving = 0;
        for (const LocalPart& part : before_)
          arriving += count_elements(result_.receives.emplace_back(common_boxes(part, wanted())));
        check_complete(arriving);
        break;
      }
      case StepKind::kReduceScatter:
        for (const LocalPart& part : after_) result_.sends.push_back(common_boxes(mine(), part));
        check_complete(count_elements(result_.sends[static_cast<std::size_t>(own_)]));
        break;
      case StepKind::kAllToAll:
      case StepKind::kSendRecv: exchange(); break;
      case StepKind::kSlice:
        result_.kept = common_boxes(mine(), wanted());
        check_complete(count_elements(result_.kept));
        break;
      case StepKind::kToPartial: result_.kept = common_boxes(mine(), wanted()); break;
      case StepKind::kAllReduce:
      case StepKind::kConvertPartial: break;
    }
    return std::move(result_);
  }

 private:
  const LocalPart& mine() const { return before_[static_cast<std::size_t>(own_)]; }
  const LocalPart& wanted() const { return after_[static_cast<std::size_t>(own_)]; }

  void exchange() {
    if (moves_partial(step_))
      throw InternalError("redistribute: a Partial layout in an exchange: " + step_.to_string());
    const Senders senders(*step_.from, members_.from);
    std::int64_t arriving = 0;
    for (int m = 0; m < members_.size(); ++m) {
      const auto i = static_cast<std::size_t>(m);
      const bool other = m != own_;
      result_.sends.push_back(other && senders.sends(own_, m) ? common_boxes(mine(), after_[i])
                                                              : Boxes());
      result_.receives.push_back(
          other && senders.sends(m, own_) ? common_boxes(before_[i], wanted()) : Boxes());
      arriving += count_elements(result_.receives.back());
    }
    if (senders.sends(own_, own_)) result_.kept = common_boxes(mine(), wanted());
    check_complete(arriving + count_elements(result_.kept));
  }

  void check_complete(std::int64_t elements) const {
    if (elements != numel(wanted().shape()))
      throw InternalError(
          fmt::format("redistribute: the group of this step holds {} of {} elements "
                      "of its result: {}",
                      elements, numel(wanted().shape()), step_.to_string()));
  }

  const RedistributeStep& step_;
  const StepMembers& members_;
  int own_;
  std::vector<LocalPart> before_, after_;
  RankExchange result_;
};

}  // namespace

StepMembers group_members(const RedistributeStep& step, int mesh_rank) {
  if (is_local(step.kind)) return {{mesh_rank}, {mesh_rank}};
  const std::vector<int> group =
      step.from->mesh().group_of(std::span<const int>(step.mesh_dims), mesh_rank);
  return {group, group};
}

StepMembers crossing_members(const RedistributeStep& step) {
  std::map<int, std::pair<int, int>> by_world_rank;
  const auto at = [&](int world_rank) -> std::pair<int, int>& {
    return by_world_rank.try_emplace(world_rank, -1, -1).first->second;
  };
  const MeshLayout &source = step.from->mesh(), &target = step.to->mesh();
  for (int rank = 0; rank < source.size(); ++rank) at(source.world_rank(rank)).first = rank;
  for (int rank = 0; rank < target.size(); ++rank) at(target.world_rank(rank)).second = rank;
  StepMembers members;
  for (const auto& [world_rank, ranks] : by_world_rank) {
    members.from.push_back(ranks.first);
    members.to.push_back(ranks.second);
  }
  return members;
}

RankExchange rank_exchange(const RedistributeStep& step, const StepMembers& members, int own) {
  return ExchangeMaker(step, members, own).make();
}

RankExchange rank_exchange(const RedistributeStep& step, int mesh_rank) {
  const StepMembers members = group_members(step, mesh_rank);
  const auto own = std::find(members.from.begin(), members.from.end(), mesh_rank);
  return rank_exchange(step, members, static_cast<int>(own - members.from.begin()));
}

}  // namespace meshloom::planner
