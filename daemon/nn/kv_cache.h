// SPDX-License-Identifier: Apache-2.0
// Keys and values of the positions that one sequence of a generation has seen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "daemon/tensor/ops/attention.h"
#include "planner/dtensor_spec.h"

namespace meshloom::nn {

/// CacheRanks names the ranks that share the positions of caches
/// (planner/attention/cache_blocks.h): those along a mesh dim of the layouts of keys and values.
struct CacheRanks {
  int mesh_dim = 0;
  int ranks = 1;  ///< 1: every rank keeps all positions
  int rank = 0;   ///< this one's place among them
};

/// A KvCache is made by Model::make_cache, one for each sequence, so that sequences of different
/// lengths are decoded together and one that ends gives its memory back. A layer's memory for all
/// positions that a rank keeps is taken at its first append; a layer with a window keeps room for
/// kept_positions of them. Keys and values with a layout are kept sharded as those of the first
/// append (by heads, mostly), and where ranks share the positions, by these too.
class KvCache {
 public:
  struct Sizes {
    std::int64_t kv_heads, max_length, head_dim;
    std::vector<std::int64_t> windows;  ///< of each layer, the query's position included; 0: none
    CacheRanks sharing = {};
  };
  /// Returns the number of positions that a layer with this window has memory for, over the ranks
  /// that share them, where it is fed some at a time: the window, and as many behind it before what
  /// is out of it is dropped.
  static std::int64_t kept_positions(std::int64_t window, std::int64_t max_length);
  KvCache(ExecutionContext& context, const Sizes& sizes, DType dtype);

  std::int64_t max_length() const { return sizes_.max_length; }
  /// Returns the number of positions that hold something; the next token has this position.
  std::int64_t length() const { return length_; }
  void clear();

  /// Says that the first so many positions are one sequence that is computed at once, if in several
  /// passes (a prompt): what RoPE of a type that depends on the length takes for it. Until clear().
  void begin_sequence(std::int64_t length) { begun_ = length; }
  /// Returns the length of the sequence that the next positions are the end of, or a part of.
  std::int64_t sequence_length(std::int64_t next) const { return std::max(begun_, length_ + next); }

  /// Returns how many positions of a long prompt a pass takes, `least` or more: as many as make the
  /// ranks that share positions compute equally many.
  std::int64_t pass_positions(std::int64_t least) const;
  /// Returns ids [1,S] of the next S positions, which every rank has, as the pass takes them:
  /// sharded, each rank having those positions that it keeps, if the ranks compute so many together
  /// (planner::shares_pass). Nothing is sent.
  Tensor shard_pass(const Tensor& ids);
  /// Returns the last position [1,1,C] of x [1,S,C], which was made from ids that shard_pass gave.
  /// It is the same on the ranks that share positions.
  Tensor last_position(const Tensor& x) const;

  using KeyValue = ops::KeyValue;
  /// Writes k and v [1,Hkv,S,D] of the next S positions of one layer, whole on the ranks that share
  /// them or sharded as shard_pass shards ids, and returns those of that layer, S included: all, or
  /// with a window those that one of the S queries sees; sharded by position where ranks share
  /// them.
  KeyValue append(std::int64_t layer, const Tensor& k, const Tensor& v);
  /// Moves on by `positions`, which every layer has appended. Throws InvalidArgument beyond
  /// max_length.
  void advance(std::int64_t positions);
  /// Throws InvalidArgument unless so many more positions fit.
  void check_room(std::int64_t positions) const;
  /// Returns the bytes of keys and values of all layers on this rank.
  std::int64_t bytes() const;

 private:
  /// A rank holds this of the keys or values of a layer: [1,Hkv,P,D] of its heads.
  struct Memory {
    Tensor values;
    std::int64_t begin = 0;  ///< the position that comes first in `values`
    planner::SpecPtr first;  ///< layout of the first append, positions whole; null: none
  };
  struct Layer {
    Memory k, v;
  };

  Tensor append_to(Memory& memory, const Tensor& next, std::int64_t window);
  /// Makes room for positions up to `end`, keeping those from `first` on.
  void make_room(Memory& memory, const Tensor& like, std::int64_t first, std::int64_t end,
                 std::int64_t window) const;
  /// Returns how many of these positions this rank keeps.
  std::int64_t count_kept(planner::ShardRange positions) const;
  /// Returns a view of those that it keeps of `positions`, which follow `memory.begin`.
  Tensor kept(const Memory& memory, planner::ShardRange positions) const;
  /// Returns what this rank has of `next`, keys or values of the next positions, in the layout in
  /// which they are kept.
  Tensor local_part(Memory& memory, const Tensor& next);
  /// Tells whether a layout has positions, in dim `dim`, over the ranks that share them.
  bool shared(const planner::DTensorSpec& spec, int dim) const;
  /// Returns the order that says which rank keeps which of them.
  const planner::DimOrderPtr& order_of(planner::ShardRange positions);
  /// Returns the layout of keys or values of these positions.
  planner::SpecPtr layout_of(const planner::DTensorSpec& first, planner::ShardRange positions);

  ExecutionContext& context_;
  Sizes sizes_;
  DType dtype_;
  std::int64_t length_ = 0;
  std::int64_t begun_ = 0;  ///< of begin_sequence
  std::vector<Layer> layers_;
  /// Orders of this pass, by their first position: layers with one window have one.
  std::map<std::int64_t, planner::DimOrderPtr> orders_;
};

/// KvCaches are the caches of the sequences that one pass decodes, row by row; empty: a pass
/// without a cache.
using KvCaches = std::span<KvCache* const>;

}  // namespace meshloom::nn
