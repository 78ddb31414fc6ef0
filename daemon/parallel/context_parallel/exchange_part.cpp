// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/exchange_part.h"

#include <algorithm>
#include <numeric>

#include "daemon/tensor/execution_context.h"

namespace meshloom::parallel {

std::vector<std::int64_t> Members::by_rank(const std::vector<std::int64_t>& counts) const {
  std::vector<std::int64_t> all(static_cast<std::size_t>(plan_.ranks), 0);
  for (std::size_t m = 0; m < counts.size(); ++m)
    all[static_cast<std::size_t>(plan_.members[m])] = counts[m];
  return all;
}

PendingTensorPtr Members::exchange(const Tensor& x, const std::vector<std::int64_t>& sent,
                                   const std::vector<std::int64_t>& received) const {
  return collectives_.all_to_all(x, by_rank(sent), by_rank(received), plan_.mesh_dims);
}

PendingTensorPtr Members::pass_on(const Tensor& x, std::int64_t received) const {
  std::vector<std::int64_t> to(plan_.members.size(), 0), from = to;
  to[static_cast<std::size_t>(before(-1))] = x.numel();
  from[static_cast<std::size_t>(before(1))] = received;
  return exchange(x, to, from);
}

KeyBundle ExchangePart::bundle(
    const std::function<planner::IndexRanges(const RowGroup&)>& keys_of) const {
  std::vector<planner::IndexRanges> keys;
  for (const RowGroup& group : plan.groups) keys.push_back(keys_of(group));
  return {plan, sizes, std::move(keys)};
}

KeyBundle ExchangePart::bundle_of(int member) const {
  return bundle(
      [member](const RowGroup& g) { return g.parts[static_cast<std::size_t>(member)].keys; });
}

KeyBundle ExchangePart::seen_in(int step) const {
  return bundle([step](const RowGroup& g) { return g.steps[static_cast<std::size_t>(step)].keys; });
}

KeyBundle ExchangePart::requested_by(int member) const {
  return bundle(
      [member](const RowGroup& g) { return g.requested[static_cast<std::size_t>(member)]; });
}

std::vector<std::int64_t> ExchangePart::requested_sizes() const {
  std::vector<std::int64_t> sent;
  for (int m = 0; m < members.count(); ++m)
    sent.push_back(m == members.self() ? 0 : requested_by(m).numel());
  return sent;
}

std::int64_t ExchangePart::longest() const {
  std::int64_t most = 0;
  for (int m = 0; m < members.count(); ++m) most = std::max(most, bundle_of(m).numel());
  return most;
}

Tensor ExchangePart::flat(std::int64_t numel, DType dtype) const {
  return empty(k.context(), Shape{numel}, dtype, MemoryKind::kSymmetric);
}

Tensor ExchangePart::packed(std::int64_t numel) const {
  const KeyBundle own = bundle_of(members.self());
  Tensor packed = flat(std::max(numel, own.numel()), k.dtype());
  copy_keys(own.blocks(packed, 0), own_blocks(plan, k, v));
  // What pads it to the longest is sent as well, and nobody sends memory that nothing has written.
  const TensorView padding = rows_of(packed.view(), own.numel(), packed.numel() - own.numel());
  if (padding.numel() > 0) k.context().backend().fill(k.context().kernel_context(), padding, 0.0);
  return packed;
}

StepPlaces::StepPlaces(const ExchangePart& part)
    : sizes_(static_cast<std::size_t>(part.members.count()), 0), first_(sizes_) {
  for (int step = 1; step < part.members.count(); ++step)
    sizes_[static_cast<std::size_t>(part.source(step))] = part.seen_in(step).numel();
  for (std::size_t m = 0; m < sizes_.size(); ++m) {
    first_[m] = numel_;
    numel_ += sizes_[m];
  }
}

std::int64_t sum_of(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

}  // namespace meshloom::parallel
