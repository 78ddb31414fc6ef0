// SPDX-License-Identifier: Apache-2.0
// LocalModel: the sizes of the rank that holds most, which is the first of every mesh dim (the ceil
// rule gives the largest shards to the first).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/estimate/activations.h"
#include "planner/estimate/model_pass.h"
#include "planner/estimate/workload.h"

namespace meshloom::planner {

/// UnitSize counts elements of a set of parameters on a rank.
struct UnitSize {
  std::int64_t tensor_parallel = 0;  ///< after tp's sharding: what computing needs
  std::int64_t sharded = 0;          ///< after fsdp's too: what stays
  std::int64_t summands = 0;         ///< of `sharded`: whose gradients are sums over tp
  std::int64_t gathered = 0;         ///< of `tensor_parallel`: elements that fsdp shards
  std::int64_t shards = 0;           ///< of `sharded`: theirs
  std::int64_t packed = 0;           ///< of `gathered`: elements that travel in one message,
  std::int64_t packed_shards = 0;    ///< and of `shards`
  std::int64_t flat = 0;             ///< `shards` as they lie in one buffer
  int messages = 0;                  ///< of one gather or reduction of them

  UnitSize& operator+=(const UnitSize& other);
};

/// GradientSums are the sums of gradients of whole parameters over dp and fsdp, in buckets as they
/// travel (planner/gradient_buckets.h).
struct GradientSums {
  std::int64_t calls = 0;
  std::int64_t elements = 0;    ///< of all calls, a flag per parameter included
  std::int64_t bytes_sent = 0;  ///< by rank 0
};

/// LocalModel holds everything by which memory, traffic and time are counted.
struct LocalModel {
  ModelShape model;
  MeshSizes mesh;
  ParallelPlan plan;
  Workload work;

  UnitSize block{};                       ///< one layer
  UnitSize root{};                        ///< all that is in no layer
  std::shared_ptr<const ModelPass> pass;  ///< of a micro batch over tp; its graph is ModelGraphs'
  ActivationEstimate activations{};
  std::int64_t rows = 0;  ///< tokens of a micro batch
  std::int64_t element_bytes = 4;
  /// If true, summands are the gradients of biases alone, as without sequence parallelism.
  bool biases_alone = true;
  GradientSums gradient_sums{};            ///< of parameters that fsdp does not shard
  UnitSize trained_root{};                 ///< of `root`: parameters that are trained
  std::vector<UnitSize> trained_layers{};  ///< the same of each layer

  UnitSize all() const;
  std::int64_t trained_shards() const;  ///< all that is trained, as `sharded`
};

/// The choice must be valid. Throws InvalidArgument for dims of fully_shard and styles that do not
/// fit the model, and Unimplemented for layers that are sharded each in its own way, blocks that
/// keep different things for backward, and as styled_model and model_pass do.
LocalModel local_model(ModelGraphs& model, const MeshSizes& mesh, const ParallelPlan& plan,
                       const Workload& work);
/// Makes a local model without what depends on the micro batch: `rows`, `pass` and `activations`.
LocalModel sized_model(const ModelGraphs& model, const StyledModel& styled, const MeshSizes& mesh,
                       const ParallelPlan& plan, const Workload& work);

}  // namespace meshloom::planner
