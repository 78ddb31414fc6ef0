// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/kv_cache.h"

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::nn {

namespace {

/// The layout of more positions than `spec` describes.
planner::SpecPtr with_positions(const planner::DTensorSpec& spec, std::int64_t positions) {
  check(spec.cutters(2).empty(), "key-value cache: layout {} cuts the positions",
        planner::to_string(spec));
  Shape shape = spec.shape();
  shape[2] = positions;
  std::vector<planner::DimOrderPtr> orders;
  if (spec.has_dim_orders())
    for (int d = 0; d < spec.mesh().ndim(); ++d) orders.push_back(spec.dim_order(d));
  return std::make_shared<const planner::DTensorSpec>(spec.mesh_ptr(), spec.placements(), shape,
                                                      spec.shard_order(), std::move(orders));
}

}  // namespace

KvCache::KvCache(ExecutionContext& context, const Sizes& sizes, DType dtype)
    : context_(context),
      sizes_(sizes),
      dtype_(dtype),
      layers_(static_cast<std::size_t>(sizes.layers)) {
  check(sizes.batch > 0 && sizes.max_length > 0,
        "key-value cache: batch {} and length {} must be positive", sizes.batch, sizes.max_length);
}

Tensor KvCache::append_to(Tensor& memory, const Tensor& next) const {
  const Tensor local = local_of(next);
  const std::int64_t end = length_ + local.size(2);
  if (!memory)
    memory =
        empty(context_, {local.size(0), local.size(1), sizes_.max_length, sizes_.head_dim}, dtype_);
  copy_into(ops::slice(memory, 2, length_, end), local);
  const Tensor all = ops::slice(memory, 2, 0, end);
  if (!next.has_layout()) return all;
  const TensorLayout& layout = *next.layout();
  return with_layout(all, layout.engine->intern(with_positions(*layout.spec, end)), *layout.engine);
}

KvCache::KeyValue KvCache::append(std::int64_t layer, const Tensor& k, const Tensor& v) {
  KeyValue& all = layers_.at(static_cast<std::size_t>(layer));
  return {append_to(all.k, k), append_to(all.v, v)};
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
