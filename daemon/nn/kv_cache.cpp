// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/kv_cache.h"

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::nn {

KvCache::KvCache(ExecutionContext& context, const Sizes& sizes, DType dtype)
    : context_(context), sizes_(sizes), dtype_(dtype) {
  check(sizes.batch > 0 && sizes.max_length > 0,
        "key-value cache: batch {} and length {} must be positive", sizes.batch, sizes.max_length);
  layers_.resize(static_cast<std::size_t>(sizes.layers));
}

KvCache::KeyValue KvCache::append(std::int64_t layer, const Tensor& k, const Tensor& v) {
  KeyValue& all = layers_.at(static_cast<std::size_t>(layer));
  return {append_to(all.k, k), append_to(all.v, v)};
}

Tensor KvCache::append_to(Tensor& all, const Tensor& x) const {
  const Tensor& local = local_of(x);
  if (!all)
    all =
        empty(context_, {sizes_.batch, local.size(1), sizes_.max_length, sizes_.head_dim}, dtype_);
  const std::int64_t end = length_ + local.size(2);
  copy_into(ops::slice(all, 2, length_, end), local);
  const Tensor seen = ops::slice(all, 2, 0, end);
  if (!x.has_layout()) return seen;
  const planner::DTensorSpec& spec = *x.layout()->spec;
  check(spec.cutters(0).empty() && spec.cutters(2).empty() && spec.cutters(3).empty(),
        "key-value cache: keys and values are held as {}, only heads can be cut", to_string(spec));
  Shape shape = spec.shape();
  shape[2] = end;
  LayoutEngine& engine = *x.layout()->engine;
  std::vector<planner::DimOrderPtr> orders;
  for (int m = 0; spec.has_dim_orders() && m < spec.mesh().ndim(); ++m)
    orders.push_back(spec.dim_order(m));
  return with_layout(seen,
                     engine.intern(std::make_shared<const planner::DTensorSpec>(
                         spec.mesh_ptr(), spec.placements(), shape, spec.shard_order(), orders)),
                     engine);
}

void KvCache::advance(std::int64_t positions) {
  check_room(sizes_.batch, positions);
  length_ += positions;
}

void KvCache::check_room(std::int64_t batch, std::int64_t positions) const {
  check(batch == sizes_.batch, "decode: {} rows of ids for a cache of {}", batch, sizes_.batch);
  check(length_ + positions <= sizes_.max_length,
        "decode: {} more positions after {} do not fit a cache of {}", positions, length_,
        sizes_.max_length);
}

}  // namespace meshloom::nn
