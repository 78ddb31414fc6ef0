// SPDX-License-Identifier: Apache-2.0
// OpCall: an op as sharding propagation sees it: its name, the layouts of its inputs, and those
// arguments that a layout depends on.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/base/shape.h"
#include "planner/dtensor_spec.h"
#include "planner/sharding/mesh_role.h"

namespace meshloom::planner {

enum class OpId : std::uint8_t {
  // elementwise
  // ints[0]: 1 + the new dtype if it changes
  kUnaryLinear,  ///< neg, mul and div by a number, cast: f(P) is P of sum and avg
  kUnary,        ///< every other function of one tensor (add of a number too)
  kAdd,          ///< a + b, a - b
  kMul,          ///< a * b
  kDiv,          ///< a / b
  kWhere,        ///< condition, a, b
  kMaskedFill,   ///< x, mask
  kDropout,
  kSwiglu,  ///< gate, up
  kTri,     ///< triu and tril: ints[0] diagonal, ints[1] 1 for upper
  // reductions: dims (normalised; none: all), ints[0] keepdim; kAmax: ints[1] 1 if no gradient
  // will be wanted (then ranks may take the maximum of their shards)
  kSum,
  kMean,
  kAmax,
  kVar,
  // rows: ints[0] dim
  kSoftmax,
  kLogSoftmax,
  // norms: x, weight?, bias?; kAddNorm: x, residual, weight, bias?; outputs normed and sum
  kNorm,  ///< ints[0] number of trailing dims that are normalised
  kAddNorm,
  // matrices
  kMatmul,
  kBmm,
  kAddmm,
  kLinear,              ///< x, weight, bias?; ints[0] 1 if weight is [in, out], else [out, in]
  kEmbedding,           ///< weight, ids; ints[0] padding_idx or -1
  kCrossEntropy,        ///< logits [N, C, ..], targets; ints[0] reduction (0 none, 1 mean, 2 sum)
  kLinearCrossEntropy,  ///< hidden, weight [V, C], bias?, targets, weights?; LinearLossResults
  /// q, k, v [B, H, S, D], bias?, document ids?; ints[0] 1 if no gradient will be wanted; outputs o
  /// and lse
  kAttention,
  kRope,  ///< x [B, H, S, D], cos, sin, positions?
  // shape
  kTranspose,  ///< ints[0], ints[1]
  kPermute,    ///< dims
  kReshape,    ///< dims: the new shape, no -1
  kUnsqueeze,  ///< ints[0]
  kSqueeze,    ///< ints[0]
  kSlice,      ///< ints: dim, start, end (clamped), step
  kSplit,      ///< ints: split_size, dim
  kCat,        ///< ints[0] dim
  kExpand,     ///< dims: the new shape
  kContiguous,
  // decoding: q [B, H, 1, D], then k and v [1, H, L, D] of each row; output o
  kAttentionRows,
};

const char* op_name(OpId);

struct OpAttributes {
  Dims dims;
  std::array<std::int64_t, 4> ints{};

  bool operator==(const OpAttributes&) const = default;
};

/// The dims of the local attributes of kAttention and kAttentionRows say at these places which part
/// of the call a rank has.
enum AttentionDim : int {
  kFirstRow,      ///< of the batch
  kFirstHead,     ///< of the query heads
  kFirstKeyHead,  ///< of the key heads that the rank holds
  kHeads,         ///< query heads in all
  kHeadGroup,     ///< query heads per key head
  kQueries,       ///< queries in all, which is where dropout draws
  kKeys,
};

/// kLinearCrossEntropy gives one of these, which ints[0] of its attributes names.
enum LinearLossResults : std::int64_t {
  kLossSum = 0,      ///< [1], over all targets
  kWeightedSum = 1,  ///< [1], of losses times a fifth input of targets' shape; and the losses
  kTokenLosses = 2,  ///< of targets' shape, which may have one dim more than hidden has rows
};

/// The inputs are in the order of the op; null for one that is left out. At least one is there, all
/// on one mesh.
struct OpCall {
  OpId op = OpId::kUnary;
  std::vector<SpecPtr> inputs;
  OpAttributes attributes;
  /// The caller has a distributed implementation of this op for these roles: no mesh dim gets
  /// another role.
  RoleSet roles = RoleSet::all();
};

/// Returns the roles that the distributed implementations which come with the ops take
/// (daemon/tensor/ops); whoever decides without an engine counts on these.
constexpr RoleSet implemented_roles(OpId op) {
  using enum MeshRole;
  switch (op) {
    case OpId::kEmbedding:
    case OpId::kLinearCrossEntropy: return {kVocabulary};
    case OpId::kCrossEntropy: return {kVocabulary, kLabels};
    case OpId::kMean: return {kMean};
    case OpId::kLinear:
    case OpId::kAddmm: return {kBias};
    default: return {};
  }
}

}  // namespace meshloom::planner
