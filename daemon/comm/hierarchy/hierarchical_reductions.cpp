// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/hierarchy/hierarchical_reductions.h"

#include "daemon/comm/collectives/ordered_reduce.h"
#include "planner/shard.h"

namespace meshloom::comm {
namespace {

// Of what one rank reduces.
constexpr std::size_t kSliceBytes = 512 << 10;

HierarchyWay way_of(const HierarchicalContext& context, const Call& call) {
  if (call.algorithm == AllReduceAlgorithm::kOneShot) return HierarchyWay::kLeaders;
  if (call.algorithm == AllReduceAlgorithm::kTwoShot) return HierarchyWay::kStriped;
  return choose_way(context.choice(), call.signature.kind, call.bytes, context.layout());
}

/// Partial results of every host for one part, in host order: this rank's own, and room for those
/// of the others.
class HostPartials {
 public:
  HostPartials() = default;
  /// `own` stays where it is.
  HostPartials(const TensorView& own, const HostLayout& layout, ScratchPool& scratch)
      : own_(own),
        block_(scratch.take(own.bytes() * static_cast<std::size_t>(layout.hosts() - 1))) {
    std::byte* at = block_.data();
    for (int host = 0; host < layout.hosts(); ++host) {
      const bool mine = host == layout.own_host();
      inputs_.push_back(mine ? own.data : at);
      if (!mine) at += own.bytes();
    }
  }

  std::byte* of(int host) {
    return const_cast<std::byte*>(
        static_cast<const std::byte*>(inputs_[static_cast<std::size_t>(host)]));
  }
  std::size_t bytes() const { return own_.bytes(); }
  /// Writes what all hosts together have; `out` may be this rank's own partial result.
  void finish(Threads threads, const Signature& signature, int ranks, const TensorView& out) const {
    finish_reduction(threads, signature.dtype, signature.op, out.data, inputs_, out.numel(),
                     static_cast<std::size_t>(ranks));
  }

 private:
  TensorView own_;
  ScratchPool::Block block_;
  std::vector<const void*> inputs_;  ///< by host
};

}  // namespace

struct HierarchicalAllReduce::Slice {
  std::size_t index = 0;
  std::vector<TensorView> stripes;  ///< by place on the host; those without one are empty
  TensorView mine;                  ///< this rank's stripe of the data
  TensorView partial;  ///< what this host has of it: the same memory, or memory of its own
  ScratchPool::Block memory;
  HostPartials partials;
};

HierarchicalAllReduce::HierarchicalAllReduce(HierarchicalContext& context, const Call& call)
    : HierarchicalAllReduce(context, call, way_of(context, call)) {}

HierarchicalAllReduce::HierarchicalAllReduce(HierarchicalContext& context, const Call& call,
                                             HierarchyWay way)
    : HierarchicalCollective(context, call,
                             {call.outputs, elements_in(kSliceBytes, call.signature.dtype) *
                                                stripes_of(way, context.layout())},
                             {.local = 2, .exchanges = 2}),
      data_(call.outputs[0]),
      partial_dtype_(partial_dtype(data_.dtype)),
      way_(way),
      stripes_(stripes_of(way, context.layout())) {}

CollectivePtr HierarchicalAllReduce::slice(std::size_t index) {
  auto slice = std::make_shared<Slice>();
  slice->index = index;
  const TensorView all = slice_of(data_, index);
  slice->stripes = stripes_by_member(all, stripes_);
  slice->mine = slice->partial = slice->stripes[static_cast<std::size_t>(layout().local_rank())];
  if (partial_dtype_ != data_.dtype) {
    const std::int64_t n = slice->mine.numel();
    slice->memory =
        context().scratch().take(static_cast<std::size_t>(n) * dtype_size(partial_dtype_));
    slice->partial = make_view(slice->memory.data(), partial_dtype_, {n});
  }
  std::vector<Sequence::Start> steps{[this, slice] {
    return local_step(slice->index, 0, CollectiveKind::kReduceScatter, {&slice->partial, 1},
                      slice->stripes);
  }};
  if (holds()) steps.emplace_back([this, slice] { return exchange_partials(*slice); });
  if (holds())
    steps.emplace_back([this, slice] {
      slice->partials.finish(context().threads(), signature(), layout().size(),
                             share_of(slice->mine, layout().own_host()));
      return exchange_results(*slice);
    });
  steps.emplace_back([this, slice] { return gather_in_host(*slice); });
  return std::make_unique<Sequence>(std::move(steps));
}

TensorView HierarchicalAllReduce::share_of(const TensorView& stripe, int host) const {
  if (way_ == HierarchyWay::kLeaders) return stripe;
  const planner::ShardRange range = planner::shard_range(stripe.numel(), layout().hosts(), host);
  return elements_of(stripe, range.begin, range.size());
}

CollectivePtr HierarchicalAllReduce::exchange_partials(Slice& slice) {
  slice.partials =
      HostPartials(share_of(slice.partial, layout().own_host()), layout(), context().scratch());
  std::vector<Piece> receives, sends;
  for (const int host : layout().other_hosts()) {
    const TensorView theirs = share_of(slice.partial, host);
    if (theirs.numel() > 0) sends.push_back(piece(theirs, holder(host)));
    if (slice.partials.bytes() > 0)
      receives.push_back({slice.partials.of(host), slice.partials.bytes(), holder(host)});
  }
  return exchange(slice.index, 0, receives, sends, whole_host());
}

CollectivePtr HierarchicalAllReduce::exchange_results(const Slice& slice) {
  if (way_ == HierarchyWay::kLeaders) return nullptr;
  const TensorView own = share_of(slice.mine, layout().own_host());
  std::vector<Piece> receives, sends;
  for (const int host : layout().other_hosts()) {
    const TensorView theirs = share_of(slice.mine, host);
    if (own.numel() > 0) sends.push_back(piece(own, holder(host)));
    if (theirs.numel() > 0) receives.push_back(piece(theirs, holder(host)));
  }
  return exchange(slice.index, 1, receives, sends, [this](int) {
    std::vector<int> others;
    for (const int host : layout().other_hosts()) others.push_back(holder(host));
    return others;
  });
}

CollectivePtr HierarchicalAllReduce::gather_in_host(const Slice& slice) {
  return local_step(slice.index, 1, CollectiveKind::kAllGather, slice.stripes, {&slice.mine, 1}, -1,
                    [this](int rank) {
                      const bool waits_itself = layout().local_rank(rank) < stripes_;
                      return waits_itself ? layout().far_ranks() : std::vector<int>();
                    });
}

struct HierarchicalReduceScatter::Slice {
  std::size_t index = 0;
  std::vector<TensorView> partials;  ///< of this host, by round; empty where this rank has no part
  ScratchPool::Block memory;
  HostPartials all;
};

HierarchicalReduceScatter::HierarchicalReduceScatter(HierarchicalContext& context, const Call& call)
    : HierarchicalCollective(context, call,
                             {call.inputs, elements_in(kSliceBytes, call.signature.dtype)},
                             {.local = context.layout().rounds(), .exchanges = 1}),
      inputs_(call.inputs.begin(), call.inputs.end()),
      output_(call.outputs[0]),
      partial_dtype_(partial_dtype(output_.dtype)) {}

CollectivePtr HierarchicalReduceScatter::slice(std::size_t index) {
  auto slice = std::make_shared<Slice>();
  slice->index = index;
  const std::size_t item = dtype_size(partial_dtype_);
  std::size_t bytes = 0;
  const std::vector<int>& handled = layout().handled_here();
  for (const int rank : handled)
    bytes += static_cast<std::size_t>(part(rank, index).numel()) * item;
  slice->memory = context().scratch().take(bytes);
  std::byte* at = slice->memory.data();
  for (int r = 0; r < layout().rounds(); ++r) {
    const bool mine = static_cast<std::size_t>(r) < handled.size();
    const std::int64_t n = mine ? part(handled[static_cast<std::size_t>(r)], index).numel() : 0;
    slice->partials.push_back(make_view(at, partial_dtype_, {n}));
    at += static_cast<std::size_t>(n) * item;
  }
  std::vector<Sequence::Start> steps;
  for (int r = 0; r < layout().rounds(); ++r)
    steps.emplace_back([this, slice, r] { return round(*slice, r); });
  steps.emplace_back([this, slice] { return exchange_partials(*slice); });
  steps.emplace_back([this, slice] {
    slice->all.finish(context().threads(), signature(), layout().size(),
                      slice_of(output_, slice->index));
    return nullptr;
  });
  return std::make_unique<Sequence>(std::move(steps));
}

CollectivePtr HierarchicalReduceScatter::round(const Slice& slice, int round) {
  const auto r = static_cast<std::size_t>(round);
  std::vector<TensorView> inputs;
  for (const std::vector<int>& ranks : layout().handled())
    inputs.push_back(r < ranks.size() ? part(ranks[r], slice.index) : elements_of(output_, 0, 0));
  return local_step(slice.index, round, CollectiveKind::kReduceScatter, {&slice.partials[r], 1},
                    inputs);
}

CollectivePtr HierarchicalReduceScatter::exchange_partials(Slice& slice) {
  slice.all = HostPartials(slice.partials[0], layout(), context().scratch());
  std::vector<Piece> receives, sends;
  if (slice.all.bytes() > 0)
    for (const int host : layout().other_hosts())
      receives.push_back(
          {slice.all.of(host), slice.all.bytes(), layout().carrier(host, layout().rank())});
  for (std::size_t r = 1; r < layout().handled_here().size(); ++r) {
    const TensorView& partial = slice.partials[r];
    if (partial.numel() > 0) sends.push_back(piece(partial, layout().handled_here()[r]));
  }
  return exchange(slice.index, 0, receives, sends, whole_host());
}

}  // namespace meshloom::comm
