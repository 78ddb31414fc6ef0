// SPDX-License-Identifier: Apache-2.0
// Keys and values of the positions that one sequence of a generation has seen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/tensor/ops/attention.h"
#include "planner/dtensor_spec.h"

namespace meshloom::nn {

/// Made by Model::make_cache, one for each sequence, so that sequences of different lengths are
/// decoded together and one that ends gives its memory back. A layer's memory for all positions is
/// taken at its first append; a layer with a window keeps room for kept_positions of them. Keys and
/// values with a layout are kept sharded as those of the first append (by heads, mostly), with all
/// positions of what a rank holds.
class KvCache {
 public:
  struct Sizes {
    std::int64_t kv_heads, max_length, head_dim;
    std::vector<std::int64_t> windows;  ///< of each layer, the query's position included; 0: none
  };
  /// Positions that a layer with this window has memory for, where it is fed some at a time: the
  /// window, and as many behind it before what is out of it is dropped.
  static std::int64_t kept_positions(std::int64_t window, std::int64_t max_length);
  KvCache(ExecutionContext& context, const Sizes& sizes, DType dtype);

  std::int64_t max_length() const { return sizes_.max_length; }
  /// Positions that hold something; the next token has this position.
  std::int64_t length() const { return length_; }
  void clear();

  using KeyValue = ops::KeyValue;
  /// Writes k and v [1,Hkv,S,D] of the next S positions of one layer and returns those of that
  /// layer, S included: all, or with a window those that one of the S queries sees.
  KeyValue append(std::int64_t layer, const Tensor& k, const Tensor& v);
  /// After every layer has appended S positions. Throws InvalidArgument beyond max_length.
  void advance(std::int64_t positions);
  /// Throws InvalidArgument unless so many more positions fit.
  void check_room(std::int64_t positions) const;

 private:
  /// What a rank holds of the keys or values of a layer: [1,Hkv,P,D] of its heads.
  struct Memory {
    Tensor values;
    std::int64_t begin = 0;  ///< the position that comes first in `values`
    planner::SpecPtr first;  ///< layout of the first append, positions whole; null: none
  };
  struct Layer {
    Memory k, v;
  };

  Tensor append_to(Memory& memory, const Tensor& next, std::int64_t window) const;
  /// Makes room for positions up to `end`, keeping those from `first` on.
  void make_room(Memory& memory, const Tensor& like, std::int64_t first, std::int64_t end,
                 std::int64_t window) const;

  ExecutionContext& context_;
  Sizes sizes_;
  DType dtype_;
  std::int64_t length_ = 0;
  std::vector<Layer> layers_;
};

/// The caches of the sequences that one pass decodes, row by row; empty: a pass without a cache.
using KvCaches = std::span<KvCache* const>;

}  // namespace meshloom::nn
