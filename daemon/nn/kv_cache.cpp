// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/kv_cache.h"

#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::nn {

KvCache::KvCache(ExecutionContext& context, const Sizes& sizes, DType dtype) : sizes_(sizes) {
  check(sizes.batch > 0 && sizes.max_length > 0,
        "key-value cache: batch {} and length {} must be positive", sizes.batch, sizes.max_length);
  const Shape shape{sizes.batch, sizes.kv_heads, sizes.max_length, sizes.head_dim};
  for (std::int64_t i = 0; i < sizes.layers; ++i)
    layers_.push_back({empty(context, shape, dtype), empty(context, shape, dtype)});
}

KvCache::KeyValue KvCache::append(std::int64_t layer, const Tensor& k, const Tensor& v) {
  const KeyValue& all = layers_.at(static_cast<std::size_t>(layer));
  const std::int64_t end = length_ + k.size(2);
  copy_into(ops::slice(all.k, 2, length_, end), k);
  copy_into(ops::slice(all.v, 2, length_, end), v);
  return {ops::slice(all.k, 2, 0, end), ops::slice(all.v, 2, 0, end)};
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
