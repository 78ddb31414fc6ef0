// SPDX-License-Identifier: Apache-2.0
// LocalModel: the sizes of the rank that holds most, which is the first of every mesh dim (the ceil
// rule gives the largest shards to the first).
#pragma once

#include <cstdint>

#include "planner/estimate/plan_choice.h"

namespace meshloom::planner {

/// Elements of a set of parameters on a rank.
struct UnitSize {
  std::int64_t tensor_parallel = 0;  ///< after tp's sharding: what computing needs
  std::int64_t sharded = 0;          ///< after fsdp's too: what stays
  std::int64_t replicated = 0;       ///< of `sharded`: elements that tp does not shard
  std::int64_t gathered = 0;         ///< of `tensor_parallel`: elements that fsdp shards
  std::int64_t shards = 0;           ///< of `sharded`: theirs
  std::int64_t packed = 0;           ///< of `gathered`: elements that travel in one message,
  std::int64_t packed_shards = 0;    ///< and of `shards`
  std::int64_t flat = 0;             ///< `shards` as they lie in one buffer
  int messages = 0;                  ///< of one gather or reduction of them

  UnitSize& operator+=(const UnitSize& other);
};

/// The sums of gradients of whole parameters over dp and fsdp, in buckets as they travel
/// (planner/gradient_buckets.h).
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
  bool whole_kv = false;         ///< more tp ranks than key-value heads: each has all of them
  std::int64_t rows = 0;         ///< tokens of a micro batch
  std::int64_t stream_rows = 0;  ///< of them, those the residual stream holds here
  std::int64_t element_bytes = 4;
  /// tp shards a projection's inputs but not its bias, whose gradient is then a sum over tp.
  std::int64_t row_biases = 0;   ///< elements of one layer
  GradientSums gradient_sums{};  ///< of parameters that fsdp does not shard

  UnitSize all() const;
};

/// The choice must be valid. Throws InvalidArgument for dims of fully_shard that do not fit the
/// parameters, and Unimplemented where layers would be sharded each in its own way.
LocalModel local_model(const ModelShape& model, const MeshSizes& mesh, const PlanChoice& plan,
                       const Workload& work);
/// The same from parameters that were described before, their shardings settled (tensor_groups.h):
/// for searches.
LocalModel local_model(const ModelShape& model, const ModelParameters& parameters,
                       const MeshSizes& mesh, const PlanChoice& plan, const Workload& work);

}  // namespace meshloom::planner
