// SPDX-License-Identifier: Apache-2.0
// KeyBundle: keys and values of one rank in one flat piece of memory, as they travel.
#pragma once

#include <vector>

#include "daemon/parallel/context_parallel/sequence_plan.h"
#include "daemon/tensor/tensor.h"

namespace meshloom::parallel {

/// KeyBlock holds keys and values (or their gradients) for the rows of one group: [count,Hkv,n,D]
/// and [count,Hkv,n,Dv]. The positions of the keys are `keys`; n may be 0.
struct KeyBlock {
  Tensor k, v;
  planner::IndexRanges keys;
};

/// KeySizes holds the sizes of keys and values that do not depend on the rank.
struct KeySizes {
  std::int64_t heads, dims, dims_v;

  KeySizes(const Tensor& k, const Tensor& v)
      : heads(k.size(1)), dims(k.size(3)), dims_v(v.size(3)) {}
};

/// A KeyBundle has for each group its keys, then its values, one group after the other.
class KeyBundle {
 public:
  /// `keys`: positions by group.
  KeyBundle(const SequencePlan& plan, const KeySizes& sizes,
            std::vector<planner::IndexRanges> keys);

  std::int64_t numel() const { return numel_; }
  /// Returns the blocks of a bundle that begins at element `base` of a flat tensor: views.
  std::vector<KeyBlock> blocks(const Tensor& flat, std::int64_t base) const;

 private:
  const SequencePlan& plan_;
  KeySizes sizes_;
  std::vector<planner::IndexRanges> keys_;
  std::vector<std::int64_t> first_;  ///< where a group begins
  std::int64_t numel_ = 0;
};

/// Returns views of all of a rank's own keys k [B,Hkv,n,D] and values v [B,Hkv,n,Dv], by group.
std::vector<KeyBlock> own_blocks(const SequencePlan& plan, const Tensor& k, const Tensor& v);
/// Returns the keys of `all` at positions `keys`: a view if they lie there in one piece, else a
/// copy.
KeyBlock some_keys(const KeyBlock& all, const planner::IndexRanges& keys);
/// Joins bundles one behind the other; they have the same rows. A block alone stays what it is.
KeyBlock join_keys(const std::vector<KeyBlock>& blocks);
/// Copies into `some` those keys of `all` that it names, group by group; they have the same rows.
void copy_keys(const std::vector<KeyBlock>& some, const std::vector<KeyBlock>& all);
/// Adds `some` to those keys of `all` that it names.
void add_keys(const std::vector<KeyBlock>& all, const std::vector<KeyBlock>& some);
/// Computes y += x, element by element.
void add_into(const Tensor& y, const Tensor& x);

}  // namespace meshloom::parallel
