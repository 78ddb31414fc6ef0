// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/hierarchy/hierarchical_moves.h"

namespace meshloom::comm {
namespace {

constexpr std::size_t kAllGatherSlice = 512 << 10;
constexpr std::size_t kBroadcastSlice = 1 << 20;

}  // namespace

HierarchicalAllGather::HierarchicalAllGather(HierarchicalContext& context, const Call& call)
    : HierarchicalCollective(context, call,
                             {call.outputs, elements_in(kAllGatherSlice, call.signature.dtype)},
                             {.local = context.layout().rounds(), .exchanges = 1}),
      outputs_(call.outputs.begin(), call.outputs.end()),
      input_(call.inputs[0]) {}

CollectivePtr HierarchicalAllGather::slice(std::size_t index) {
  std::vector<Sequence::Start> steps{
      [this, index] { return Together::of(send_between_hosts(index), round(index, 0)); }};
  for (int r = 1; r < layout().rounds(); ++r)
    steps.emplace_back([this, index, r] { return round(index, r); });
  return std::make_unique<Sequence>(std::move(steps));
}

CollectivePtr HierarchicalAllGather::send_between_hosts(std::size_t index) {
  std::vector<Piece> receives, sends;
  const std::vector<int>& mine = layout().handled_here();
  for (std::size_t i = 1; i < mine.size(); ++i)
    receives.push_back(
        piece(slice_of(outputs_[static_cast<std::size_t>(mine[i])], index), mine[i]));
  for (const int host : layout().other_hosts())
    sends.push_back(piece(slice_of(input_, index), layout().carrier(host, layout().rank())));
  // Both sides know all sizes.
  const auto is_empty = [](const Piece& one) { return one.bytes == 0; };
  std::erase_if(receives, is_empty);
  std::erase_if(sends, is_empty);
  return exchange(index, 0, receives, sends);
}

CollectivePtr HierarchicalAllGather::round(std::size_t index, int round) {
  const auto r = static_cast<std::size_t>(round);
  std::vector<TensorView> outputs;
  for (const std::vector<int>& ranks : layout().handled())
    outputs.push_back(r < ranks.size()
                          ? slice_of(outputs_[static_cast<std::size_t>(ranks[r])], index)
                          : elements_of(input_, 0, 0));
  const TensorView input = round == 0 ? slice_of(input_, index)
                                      : outputs[static_cast<std::size_t>(layout().local_rank())];
  return local_step(
      index, round, CollectiveKind::kAllGather, outputs, {&input, 1}, -1, [this, r](int rank) {
        const std::vector<int>& ranks =
            layout().handled()[static_cast<std::size_t>(layout().local_rank(rank))];
        return r > 0 && r < ranks.size() ? std::vector<int>{ranks[r]} : std::vector<int>();
      });
}

int HierarchicalBroadcast::local_steps(const HierarchicalContext& context, const Call& call,
                                       HierarchyWay way) {
  const HostLayout& layout = context.layout();
  const bool has_root = layout.own_host() == layout.host_of(call.signature.root);
  return way == HierarchyWay::kStriped && !has_root ? 2 : 1;
}

HierarchicalBroadcast::HierarchicalBroadcast(HierarchicalContext& context, const Call& call)
    : HierarchicalBroadcast(
          context, call,
          choose_way(context.choice(), call.signature.kind, call.bytes, context.layout())) {}

HierarchicalBroadcast::HierarchicalBroadcast(HierarchicalContext& context, const Call& call,
                                             HierarchyWay way)
    : HierarchicalCollective(context, call,
                             {call.outputs, elements_in(kBroadcastSlice, call.signature.dtype) *
                                                stripes_of(way, context.layout())},
                             {.local = local_steps(context, call, way), .exchanges = 1}),
      data_(call.outputs[0]),
      way_(way),
      stripes_(stripes_of(way, context.layout())) {
  const int hosts = layout().hosts(), host = layout().own_host();
  if (way_ == HierarchyWay::kStriped ? !holds() : first_of(host) != layout().rank()) return;
  const BinomialTree tree = binomial_tree(hosts, host, root_host());
  if (tree.parent >= 0) parent_ = first_of(tree.parent);
  for (const int child : tree.children) children_.push_back(first_of(child));
}

CollectivePtr HierarchicalBroadcast::slice(std::size_t index) {
  return way_ == HierarchyWay::kLeaders ? leaders_slice(index) : striped_slice(index);
}

CollectivePtr HierarchicalBroadcast::send_on(std::size_t index, const TensorView& part) {
  std::vector<Piece> sends;
  for (const int child : children_) sends.push_back(piece(part, child));
  return exchange(index, 0, {}, sends);
}

CollectivePtr HierarchicalBroadcast::leaders_slice(std::size_t index) {
  const TensorView part = slice_of(data_, index);
  std::vector<Sequence::Start> steps;
  if (parent_ >= 0)
    steps.emplace_back([this, index, part] {
      return exchange(index, 0, {piece(part, parent_)}, {}, root_alone());
    });
  steps.emplace_back([this, index, part] {
    const int first = layout().local_rank(first_of(layout().own_host()));
    return Together::of(send_on(index, part),
                        local_step(index, 0, CollectiveKind::kBroadcast, {&part, 1}, {&part, 1},
                                   first, root_alone()));
  });
  return std::make_unique<Sequence>(std::move(steps));
}

CollectivePtr HierarchicalBroadcast::striped_slice(std::size_t index) {
  const std::vector<TensorView> parts = stripes_by_member(slice_of(data_, index), stripes_);
  const TensorView mine = parts[static_cast<std::size_t>(layout().local_rank())];
  std::vector<Sequence::Start> steps;
  if (layout().own_host() == root_host()) {
    steps.emplace_back([this, index] {
      const TensorView all = slice_of(data_, index);
      return local_step(index, 0, CollectiveKind::kBroadcast, {&all, 1}, {&all, 1},
                        layout().local_rank(signature().root));
    });
    steps.emplace_back([this, index, mine] { return send_on(index, mine); });
    return std::make_unique<Sequence>(std::move(steps));
  }
  // Ranks of a host meet before one of them waits for another host alone: one that is in another
  // collective than its parent may hear from nobody else.
  steps.emplace_back([this, index, mine] {
    std::vector<Piece> receives;
    if (parent_ >= 0) receives.push_back(piece(mine, parent_));
    return Together::of(local_step(index, 0, CollectiveKind::kBarrier, {}, {}),
                        exchange(index, 0, receives, {}, root_alone()));
  });
  steps.emplace_back([this, index, mine, parts] {
    const Behind waits_itself = [this](int rank) {
      return layout().local_rank(rank) < stripes_ ? std::vector<int>{signature().root}
                                                  : std::vector<int>();
    };
    return Together::of(send_on(index, mine), local_step(index, 1, CollectiveKind::kAllGather,
                                                         parts, {&mine, 1}, -1, waits_itself));
  });
  return std::make_unique<Sequence>(std::move(steps));
}

CollectivePtr HierarchicalBarrier::slice(std::size_t) {
  std::vector<Sequence::Start> steps{
      [this] { return local_step(0, 0, CollectiveKind::kBarrier, {}, {}); }};
  if (layout().leads())
    steps.emplace_back([this] {
      std::vector<Piece> leaders;
      for (const int host : layout().other_hosts())
        leaders.push_back({nullptr, 0, layout().leader(host)});
      return exchange(0, 0, leaders, leaders, whole_host());
    });
  steps.emplace_back([this] {
    return local_step(0, 1, CollectiveKind::kBarrier, {}, {}, -1, [this](int rank) {
      const bool leads = rank == layout().leader(layout().own_host());
      return leads ? layout().far_ranks() : std::vector<int>();
    });
  });
  return std::make_unique<Sequence>(std::move(steps));
}

HierarchicalExchange::HierarchicalExchange(HierarchicalContext& context, const Call& call)
    : HierarchicalCollective(context, call, {}, {.local = 1, .exchanges = 1}),
      outputs_(call.outputs.begin(), call.outputs.end()),
      inputs_(call.inputs.begin(), call.inputs.end()) {}

CollectivePtr HierarchicalExchange::slice(std::size_t) {
  const CollectiveKind kind = signature().kind;
  const int size = layout().size(), rank = layout().rank(), root = signature().root;
  const auto at = [](int peer) { return static_cast<std::size_t>(peer); };
  std::vector<Piece> receives, sends;
  for (int step = 1; step < size; ++step) {
    const int to = (rank + step) % size, from = (rank - step + size) % size;
    const bool all = kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kSendRecv;
    if (!layout().is_near(from)) {
      if (all || (kind == CollectiveKind::kGather && rank == root))
        receives.push_back(piece(outputs_[at(from)], from));
      if (kind == CollectiveKind::kScatter && from == root)
        receives.push_back(piece(outputs_[0], from));
    }
    if (!layout().is_near(to)) {
      if (all || (kind == CollectiveKind::kScatter && rank == root))
        sends.push_back(piece(inputs_[at(to)], to));
      if (kind == CollectiveKind::kGather && to == root) sends.push_back(piece(inputs_[0], to));
    }
  }
  return Together::of(exchange(0, 0, receives, sends), within_host());
}

CollectivePtr HierarchicalExchange::within_host() {
  const CollectiveKind kind = signature().kind;
  const int root = signature().root;
  if (root < 0) return local_step(0, 0, kind, of_own_members(outputs_), of_own_members(inputs_));
  // Ranks that are far from the root have nothing for each other but what they are in.
  if (!layout().is_near(root)) return local_step(0, 0, CollectiveKind::kBarrier, {}, {});
  const bool gathers = kind == CollectiveKind::kGather;
  return local_step(0, 0, kind, gathers ? of_own_members(outputs_) : outputs_,
                    gathers ? inputs_ : of_own_members(inputs_), layout().local_rank(root));
}

std::vector<TensorView> HierarchicalExchange::of_own_members(
    const std::vector<TensorView>& all) const {
  std::vector<TensorView> near;
  if (all.empty()) return near;
  for (const int member : layout().own_members())
    near.push_back(all[static_cast<std::size_t>(member)]);
  return near;
}

}  // namespace meshloom::comm
