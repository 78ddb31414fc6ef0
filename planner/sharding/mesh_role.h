// SPDX-License-Identifier: Apache-2.0
// MeshRole: what a mesh dim shards in an op that cannot be run as the same op on local tensors.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace meshloom::planner {

/// Each role asks for the op's distributed implementation, which sees all ranks along its mesh
/// dims.
enum class MeshRole : std::uint8_t {
  /// kEmbedding, kCrossEntropy, kLinearCrossEntropy: every rank's weight rows or logits are one
  /// range of the vocabulary. embedding leaves out ids that are not in it, and its output is
  /// Partial(sum). The cross entropies reduce over the ranks (row maximum, sum of exponentials,
  /// logit of the target), and their output is R.
  kVocabulary,
  /// kCrossEntropy with reduction mean whose rows are sharded: only all ranks together know how
  /// many
  /// labels count. Sums of losses and counts are reduced over the ranks, and the output is R. (none
  /// and sum need no such thing: their outputs are S and Partial(sum).)
  kLabels,
  /// kMean over sharded dims: a rank divides its sum by the number of elements of all ranks, and
  /// the
  /// output is Partial(sum).
  kMean,
  /// kLinear and kAddmm whose product is Partial while the bias (kAddmm: the first input) is R:
  /// ranks
  /// with a coordinate other than 0 on any of the mesh dims run without it. Their gradient of it is
  /// zero, that of the others whole, so that it is Partial(sum).
  kBias,
  /// kAttention along the sequence of the queries: a rank holds the same positions of q and of the
  /// outputs (and of a bias its rows; document ids are whole). Of k and v it holds those positions
  /// too if they are of the same sequence, else any: its queries see the keys of all ranks, and the
  /// gradients of its keys and values come from the queries of all ranks. Or k and v of another
  /// sequence are whole.
  kSequence,
  /// kAttention and kAttentionRows along the keys, where every rank has the queries whole and no
  /// gradient is recorded (a cache of generation): a rank holds some positions of k and v, any, and
  /// the results of the ranks' keys are merged in rank order. Outputs are R.
  kKeys,
};

class RoleSet {
 public:
  constexpr RoleSet() = default;
  constexpr RoleSet(std::initializer_list<MeshRole> roles) {
    for (const MeshRole role : roles) bits_ |= bit(role);
  }
  static constexpr RoleSet all() {
    using enum MeshRole;
    return {kVocabulary, kLabels, kMean, kBias, kSequence, kKeys};
  }
  constexpr RoleSet without(MeshRole role) const {
    RoleSet rest = *this;
    rest.bits_ &= ~bit(role);
    return rest;
  }
  constexpr bool contains(MeshRole role) const { return (bits_ & bit(role)) != 0; }

 private:
  static constexpr unsigned bit(MeshRole role) { return 1u << static_cast<unsigned>(role); }

  unsigned bits_ = 0;
};

/// RoleDims lists the mesh dims, ascending, that have one role in an op.
struct RoleDims {
  MeshRole role;
  std::vector<int> mesh_dims;
};

}  // namespace meshloom::planner
