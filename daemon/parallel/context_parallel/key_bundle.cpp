// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/key_bundle.h"

#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/ops/op_support.h"

namespace meshloom::parallel {
namespace {

using planner::IndexRanges;
using planner::ShardRange;

/// Places [range) of dim 2 of x [B,H,n,E]: a view.
Tensor places_of(const Tensor& x, ShardRange range) {
  return ops::alias(x, {x.size(0), x.size(1), range.size(), x.size(3)}, x.strides(),
                    range.begin * x.strides()[2]);
}

Tensor empty_like_places(const Tensor& x, std::int64_t count) {
  return empty(x.context(), {x.size(0), x.size(1), count, x.size(3)}, x.dtype());
}

/// Calls `pair(piece of all, piece of some)` for keys and then for values.
template <typename Pair>
void for_each_piece(const std::vector<KeyBlock>& all, const std::vector<KeyBlock>& some,
                    const Pair& pair) {
  for (std::size_t g = 0; g < some.size(); ++g) {
    std::int64_t next = 0;
    for (const ShardRange& place : places_in(all[g].keys, some[g].keys)) {
      const ShardRange here{next, next + place.size()};
      next = here.end;
      pair(places_of(all[g].k, place), places_of(some[g].k, here));
      pair(places_of(all[g].v, place), places_of(some[g].v, here));
    }
  }
}

}  // namespace

KeyBundle::KeyBundle(const SequencePlan& plan, const KeySizes& sizes, std::vector<IndexRanges> keys)
    : plan_(plan), sizes_(sizes), keys_(std::move(keys)) {
  for (std::size_t g = 0; g < keys_.size(); ++g) {
    first_.push_back(numel_);
    numel_ +=
        plan.groups[g].count * sizes.heads * total_size(keys_[g]) * (sizes.dims + sizes.dims_v);
  }
}

std::vector<KeyBlock> KeyBundle::blocks(const Tensor& flat, std::int64_t base) const {
  std::vector<KeyBlock> blocks;
  for (std::size_t g = 0; g < keys_.size(); ++g) {
    const Shape k{plan_.groups[g].count, sizes_.heads, total_size(keys_[g]), sizes_.dims};
    const Shape v{k[0], k[1], k[2], sizes_.dims_v};
    const std::int64_t at = base + first_[g];
    blocks.push_back({ops::alias(flat, k, contiguous_strides(k), at),
                      ops::alias(flat, v, contiguous_strides(v), at + meshloom::numel(k)),
                      keys_[g]});
  }
  return blocks;
}

KeyBlock some_keys(const KeyBlock& all, const IndexRanges& keys) {
  const IndexRanges places = places_in(all.keys, keys);
  if (places.size() == 1)
    return {places_of(all.k, places.front()), places_of(all.v, places.front()), keys};
  const std::int64_t count = total_size(keys);
  KeyBlock some{empty_like_places(all.k, count), empty_like_places(all.v, count), keys};
  copy_keys({some}, {all});
  return some;
}

KeyBlock join_keys(const std::vector<KeyBlock>& blocks) {
  if (blocks.size() == 1) return blocks.front();
  std::int64_t count = 0;
  for (const KeyBlock& block : blocks) count += total_size(block.keys);
  KeyBlock all{
      empty_like_places(blocks.front().k, count), empty_like_places(blocks.front().v, count), {}};
  std::int64_t next = 0;
  for (const KeyBlock& block : blocks) {
    const ShardRange here{next, next + total_size(block.keys)};
    next = here.end;
    copy_into(places_of(all.k, here), block.k);
    copy_into(places_of(all.v, here), block.v);
    all.keys.insert(all.keys.end(), block.keys.begin(), block.keys.end());
  }
  return all;
}

void copy_keys(const std::vector<KeyBlock>& some, const std::vector<KeyBlock>& all) {
  for_each_piece(all, some, [](const Tensor& from, const Tensor& to) { copy_into(to, from); });
}

void add_keys(const std::vector<KeyBlock>& all, const std::vector<KeyBlock>& some) {
  for_each_piece(all, some, [](const Tensor& sum, const Tensor& x) { add_into(sum, x); });
}

void add_into(const Tensor& y, const Tensor& x) {
  if (y.numel() == 0) return;
  ExecutionContext& context = y.context();
  context.backend().binary(context.kernel_context(), kernels::BinaryOp::kAdd, y.view(), y.view(),
                           x.view());
}

std::vector<KeyBlock> own_blocks(const SequencePlan& plan, const Tensor& k, const Tensor& v) {
  std::vector<KeyBlock> blocks;
  for (const RowGroup& group : plan.groups)
    blocks.push_back({rows_of(k, group), rows_of(v, group),
                      group.parts[static_cast<std::size_t>(plan.member)].keys});
  return blocks;
}

}  // namespace meshloom::parallel
