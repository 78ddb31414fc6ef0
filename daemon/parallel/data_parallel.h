// SPDX-License-Identifier: Apache-2.0
// DataParallel: gradients summed over the ranks that have other samples, whatever the mesh.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/nn/module.h"
#include "daemon/parallel/fully_shard/shard_plan.h"
#include "daemon/tensor/tensor.h"

namespace meshloom::parallel {

/// DataParallelGroups holds the groups of a run's mesh that this rank is in; all outlive their
/// users. Gathers and sums of shards need groups that nothing else uses (FullyShardGroups).
struct DataParallelGroups {
  comm::ProcessGroup* data;  ///< ranks that sum gradients: dp, fsdp and cp together
  /// Over which fully_shard shards parameters (fsdp, and cp with it), for values.
  comm::ProcessGroup* gather;
  comm::ProcessGroup* reduce;    ///< the same ranks, for gradients
  comm::ProcessGroup* replicas;  ///< over which shards are copies (dp, without fsdp cp too)
};

/// DataParallelInput is a parameter: the leaf is what this rank computes with (with tensor
/// parallelism its local part), the candidate describes the whole parameter.
struct DataParallelInput {
  ShardCandidate candidate;
  nn::Parameter* parameter;
};

/// The order is, per micro batch and on every rank of the mesh alike: begin_forward, forward,
/// begin_backward, backward, end_backward. A rank without samples calls take_part instead, as do
/// those that share its samples; so does one whose forward or backward failed, instead of what is
/// missing. Any number of micro batches makes a step. The gradients of parameters() are the global
/// ones after the micro batch that was announced as the last, whose sums overlap its backward; if
/// none was, after sum_gradients(). Leaves that require no gradient have none, and no memory for
/// one.
///
/// The base class is that of a rank alone, which has nothing to do.
class DataParallel {
 public:
  virtual ~DataParallel() = default;
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Returns what this rank keeps of every input, in their order: what an optimizer takes.
  const std::vector<nn::NamedParameter>& parameters() const { return parameters_; }
  /// Returns the dim that fully_shard shards of parameter i, if any.
  virtual std::optional<int> shard_dim(std::size_t) const { return std::nullopt; }
  /// Returns why fully_shard shards that one, or none (ShardChoice::reason); empty without
  /// fully_shard.
  virtual std::string shard_reason(std::size_t) const { return {}; }

  /// Is called before the first micro batch of a step: the sums start over.
  virtual void begin_step() {}
  virtual void begin_forward(bool /*backward_follows*/) {}
  /// Is called after a forward without backward.
  virtual void end_forward() {}
  /// Begins the backward of a micro batch. `last`: of the step.
  virtual void begin_backward(bool /*last*/) {}
  virtual void end_backward() {}
  /// Does the collectives of the rest of a micro batch, with zero gradients.
  virtual void take_part(bool /*last*/) {}
  /// Does the collectives of a forward without backward.
  virtual void take_part_forward() {}
  /// Ends a step none of whose micro batches was announced as the last.
  virtual void sum_gradients() {}

  /// Begins forwards over and over with the parameters sharded as they are (fully_shard.h).
  /// `keep_bytes` is how much of what is gathered may stay between passes, the same on every rank.
  virtual void begin_generation(std::int64_t /*keep_bytes*/) {}
  virtual void next_pass() {}
  /// Is called instead of the rest of a pass that failed here.
  virtual void take_part_pass() {}
  virtual void end_generation() {}

 protected:
  DataParallel() = default;
  std::vector<nn::NamedParameter> parameters_;
};

/// Returns FullyShard if options are given and there are ranks to shard over: leaves then lose
/// their memory and values. Else leaves without memory get some, and over several ranks gradients
/// are summed by a GradientReducer. Context, groups and parameters outlive the result.
std::unique_ptr<DataParallel> make_data_parallel(
    ExecutionContext& context, const DataParallelGroups& groups,
    const std::vector<DataParallelInput>& inputs,
    const std::optional<FullyShardOptions>& fully_shard);

}  // namespace meshloom::parallel
