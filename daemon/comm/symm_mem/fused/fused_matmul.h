// SPDX-License-Identifier: Apache-2.0
// Matrix products that gather or scatter an operand on the way: fused_all_gather_matmul,
// fused_matmul_reduce_scatter and their scaled variants for float8.
//
// Every rank of the group calls them with tensors of its own (no layouts; nothing is recorded, see
// fused_autograd.h).
// Shards are those of torch's ops: sizes along the gathered dim may differ between ranks, results
// are scattered by the ceil rule, and dims may be negative. Tensors may have any strides; results
// are contiguous. Arguments that are wrong by themselves are refused before anything is written or
// signalled, ranks that do not fit together on all of them: InvalidArgument with the op, the value
// seen and what was expected.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/comm/symm_mem/symmetric_group.h"
#include "daemon/tensor/tensor.h"

namespace meshloom::comm {

struct FusedOptions {
  /// 0: what is best on this device; on the CPU a gather, then one product of all rows. N: each
  /// shard travels and is multiplied in N pieces, while others are still on their way. All ranks
  /// alike. Bits may differ between the two, as products of fewer rows may be summed otherwise.
  int splits = 0;
  /// If true, a gather refuses shards that do not follow the ceil rule.
  bool shards_by_ceil_rule = false;
  /// A gather takes the shards of all ranks from this rendezvous (given on all or on none), each as
  /// it lies with the gathered dim outermost (restride_shard_for_gather). They are read where they
  /// are, without a copy, and may be written again when the call returns.
  std::shared_ptr<SymmetricBuffer> symmetric = nullptr;
};

struct GatheredProducts {
  Tensor gathered;               ///< A of all ranks
  std::vector<Tensor> products;  ///< [A's leading sizes.., N], one per B
};

/// Gathers the shards A [.., K] and multiplies by each B [K, N]: the shards joined along
/// gather_dim, times each B. Along the last dim the products are of the joined A all the same. A
/// and the Bs have one floating dtype, and so have the results; out_dtypes, where given, has one
/// per B: that dtype or float32.
GatheredProducts fused_all_gather_matmul(SymmetricGroup& group, const Tensor& a,
                                         std::span<const Tensor> bs, std::int64_t gather_dim,
                                         const FusedOptions& options = {},
                                         std::span<const DType> out_dtypes = {});

/// Returns A [.., K] times B [K, N] summed over the ranks (kSum or kAvg), this rank's part along
/// scatter_dim of [.., N]. Products are summed in rank order in float32 (float64 of float64) and
/// rounded once, to B's dtype or out_dtype.
Tensor fused_matmul_reduce_scatter(SymmetricGroup& group, const Tensor& a, const Tensor& b,
                                   ReduceOp reduce_op, std::int64_t scatter_dim,
                                   const FusedOptions& options = {},
                                   std::optional<DType> out_dtype = {});

/// Returns the sum of several products, A[i] B[i], each as above: their leading sizes and N are the
/// same.
Tensor fused_matmul_reduce_scatter(SymmetricGroup& group, std::span<const Tensor> as,
                                   std::span<const Tensor> bs, ReduceOp reduce_op,
                                   std::int64_t scatter_dim, const FusedOptions& options = {},
                                   std::optional<DType> out_dtype = {});

/// These lists go with the Bs of a scaled gather; each list is empty or has one entry per B
/// (undefined tensors: none).
struct ScaledLists {
  std::span<const Tensor> biases{};                    ///< [N], float32 or the out dtype
  std::span<const Tensor> result_scales{};             ///< one float32
  std::span<const std::optional<DType>> out_dtypes{};  ///< none: A's
  std::span<const bool> use_fast_accum{};              ///< accepted: sums are float32 in any case
};

/// Computes y = ((A * a_scale) (B * b_scale) + bias) * result_scale, summed in float32 and rounded
/// once; to float8 it saturates. A and B are float8, each e4m3 or e5m2. Scales are float32, with
/// one element or by row: a_scale has A's shape with last size 1 and goes with the shard (gathered
/// along the last dim: the same on all ranks), a b_scale is [1, N]. A single a_scale is that of its
/// rank's shard.
GatheredProducts fused_all_gather_scaled_matmul(SymmetricGroup& group, const Tensor& a,
                                                std::span<const Tensor> bs, const Tensor& a_scale,
                                                std::span<const Tensor> b_scales,
                                                std::int64_t gather_dim,
                                                const ScaledLists& lists = {},
                                                const FusedOptions& options = {});

struct ScaledTerms {
  Tensor bias{};                     ///< [N], float32 or the out dtype
  Tensor result_scale{};             ///< one float32
  std::optional<DType> out_dtype{};  ///< none: A's
  bool use_fast_accum = false;       ///< accepted: sums are float32 in any case
};

/// Returns the scaled product summed over the ranks: bias and result scale are applied once, to the
/// sum or average, and each rank's operands have scales of their own.
Tensor fused_scaled_matmul_reduce_scatter(SymmetricGroup& group, const Tensor& a, const Tensor& b,
                                          const Tensor& a_scale, const Tensor& b_scale,
                                          ReduceOp reduce_op, std::int64_t scatter_dim,
                                          const ScaledTerms& terms = {},
                                          const FusedOptions& options = {});

}  // namespace meshloom::comm
