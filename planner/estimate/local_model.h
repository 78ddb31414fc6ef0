// SPDX-License-Identifier: Apache-2.0
// LocalModel: the sizes of the rank that holds most, which is the first of every mesh dim (the ceil
// rule gives the largest shards to the first).
#pragma once

#include <cstdint>

#include "planner/estimate/plan_choice.h"

namespace meshloom::planner {

/// Elements of a set of parameters on a rank.
struct UnitSize {
  std::int64_t tensor_parallel = 0;  ///< after tp's cut: what computing needs
  std::int64_t sharded = 0;          ///< after fsdp's too: what stays
  std::int64_t replicated = 0;       ///< of `tensor_parallel`: elements that tp does not cut
  int count = 0;                     ///< parameters
  int direct = 0;  ///< of them, those whose shards fully_shard sends by themselves

  UnitSize& operator+=(const UnitSize& other);
  /// Messages of one gather or reduction of them: the small ones travel as one.
  int messages() const { return direct + (direct < count ? 1 : 0); }
};

/// The sums of gradients over dp, in buckets as they travel (planner/gradient_buckets.h).
struct GradientSums {
  std::int64_t calls = 0;
  std::int64_t elements = 0;    ///< of all calls, a flag per parameter included
  std::int64_t bytes_sent = 0;  ///< by rank 0
};

/// Everything by which memory, traffic and time are counted.
struct LocalModel {
  ModelShape model;
  MeshSizes mesh;
  PlanChoice plan;
  Workload work;

  UnitSize block{};                                  ///< one layer
  UnitSize root{};                                   ///< all that is in no layer
  std::int64_t q = 0, kv = 0, inner = 0, vocab = 0;  ///< local widths
  std::int64_t heads = 0;                            ///< local query heads
  std::int64_t rows = 0;                             ///< tokens of a micro batch
  std::int64_t stream_rows = 0;  ///< of them, those the residual stream holds here
  std::int64_t element_bytes = 4;
  /// tp cuts a projection's inputs but not its bias, whose gradient is then a sum over tp.
  std::int64_t row_biases = 0;   ///< elements of one layer
  GradientSums gradient_sums{};  ///< without fully_shard

  UnitSize all() const;
};

/// The choice must be valid.
LocalModel local_model(const ModelShape& model, const MeshSizes& mesh, const PlanChoice& plan,
                       const Workload& work);
/// The same from parameters that were described before: for searches.
LocalModel local_model(const ModelShape& model, const ModelParameters& parameters,
                       const MeshSizes& mesh, const PlanChoice& plan, const Workload& work);

}  // namespace meshloom::planner
