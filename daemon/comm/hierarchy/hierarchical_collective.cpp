// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/hierarchy/hierarchical_collective.h"

#include <algorithm>

#include "kernels/base/integer_math.h"
#include "planner/shard.h"

namespace meshloom::comm {
namespace {

// One moves inside the hosts while others travel between them.
constexpr std::size_t kSlicesInFlight = 4;

std::int64_t longest_of(std::span<const TensorView> parts) {
  std::int64_t longest = 0;
  for (const TensorView& part : parts) longest = std::max(longest, part.numel());
  return longest;
}

}  // namespace

HierarchicalCollective::HierarchicalCollective(HierarchicalContext& context, const Call& call,
                                               Slicing slicing, Steps steps)
    : context_(context),
      signature_(call.signature),
      bytes_sent_(call.bytes_sent),
      bytes_staged_(call.bytes_staged),
      slice_elements_(slicing.elements),
      // The first slice carries the signature, even if there is nothing to move.
      slices_(std::max<std::size_t>(
          static_cast<std::size_t>(divide_up(longest_of(slicing.parts), slicing.elements)), 1)),
      steps_(steps),
      first_number_(context.take_numbers(slices_ * static_cast<std::uint64_t>(steps.local))),
      first_tag_(context.take_tags(1 + slices_ * static_cast<std::uint64_t>(steps.exchanges))) {}

bool HierarchicalCollective::advance() {
  if (!greeted_ && layout().leads()) {
    // A message without data around the leaders.
    const int host = layout().own_host(), hosts = layout().hosts();
    const int next = layout().leader((host + 1) % hosts);
    const int previous = layout().leader((host + hosts - 1) % hosts);
    running_.add(std::make_unique<Exchange>(messages(tag(0)),
                                            std::vector<Piece>{{nullptr, 0, previous}},
                                            std::vector<Piece>{{nullptr, 0, next}}));
  }
  greeted_ = true;
  while (true) {
    while (next_ < slices_ && running_.running() < kSlicesInFlight) running_.add(slice(next_++));
    const std::size_t before = running_.running();
    if (running_.advance() && next_ == slices_) return true;
    if (running_.running() == before) return false;
  }
}

CollectiveContext HierarchicalCollective::messages(int tag) const {
  return {
      context_.transport(), context_.scratch(), *bytes_sent_, context_.threads(), tag, signature_};
}

CollectivePtr HierarchicalCollective::local_step(std::size_t slice, int step, CollectiveKind kind,
                                                 Views outputs, Views inputs, int root,
                                                 Behind behind) {
  const bool moves_nothing_alone =
      kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kBarrier;
  if (layout().local_size() == 1 && moves_nothing_alone) return nullptr;
  Call call{signature_, outputs, inputs};
  call.signature.kind = kind;
  call.signature.root = root;
  // The end of an average comes after the sums of all hosts.
  if (call.signature.op == ReduceOp::kAvg) call.signature.op = ReduceOp::kSum;
  call.signature.sequence = first_number_ + slice * static_cast<std::uint64_t>(steps_.local) +
                            static_cast<std::uint64_t>(step);
  call.step_of = signature_;
  call.bytes_sent = bytes_sent_;
  call.bytes_staged = bytes_staged_;
  return std::make_unique<NamedStep>(context_.local().start(call), layout().own_members(),
                                     std::move(behind));
}

CollectivePtr HierarchicalCollective::exchange(std::size_t slice, int step,
                                               const std::vector<Piece>& receives,
                                               const std::vector<Piece>& sends, Behind behind) {
  if (receives.empty() && sends.empty()) return nullptr;
  const std::uint64_t index =
      1 + slice * static_cast<std::uint64_t>(steps_.exchanges) + static_cast<std::uint64_t>(step);
  auto pieces = std::make_unique<Exchange>(messages(tag(index)), receives, sends);
  if (!behind) return pieces;
  return std::make_unique<NamedStep>(std::move(pieces), std::vector<int>(), std::move(behind));
}

TensorView HierarchicalCollective::slice_of(const TensorView& part, std::size_t index) const {
  return elements_of(part, static_cast<std::int64_t>(index) * slice_elements_, slice_elements_);
}

std::vector<TensorView> HierarchicalCollective::stripes_by_member(const TensorView& view,
                                                                  int stripes) const {
  std::vector<TensorView> parts;
  for (int c = 0; c < layout().local_size(); ++c) {
    const planner::ShardRange range =
        c < stripes ? planner::shard_range(view.numel(), stripes, c) : planner::ShardRange{};
    parts.push_back(elements_of(view, range.begin, range.size()));
  }
  return parts;
}

TensorView elements_of(const TensorView& view, std::int64_t begin, std::int64_t n) {
  const std::int64_t from = std::min(begin, view.numel());
  const std::int64_t count = std::min(n, view.numel() - from);
  if (count == 0) return make_view(nullptr, view.dtype, {0}, view.device);
  return make_view(memory_of(view) + static_cast<std::size_t>(from) * dtype_size(view.dtype),
                   view.dtype, {count}, view.device);
}

}  // namespace meshloom::comm
