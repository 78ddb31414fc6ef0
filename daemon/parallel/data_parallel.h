// SPDX-License-Identifier: Apache-2.0
// DataParallel: gradients summed over everything that needs summing, whatever the mesh.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/parallel/fully_shard/fully_shard.h"
#include "daemon/parallel/gradient_reducer.h"

namespace meshloom::parallel {

/// The groups of a run's mesh that this rank is in; all outlive their users. Gathers and sums of
/// shards need groups that nothing else uses (FullyShardGroups).
struct DataParallelGroups {
  comm::ProcessGroup* data;      ///< ranks with other samples: dp and fsdp together
  comm::ProcessGroup* gather;    ///< over which fully_shard cuts parameters (fsdp), for values
  comm::ProcessGroup* reduce;    ///< the same ranks, for gradients
  comm::ProcessGroup* replicas;  ///< over which shards are copies (dp)
  comm::ProcessGroup* tensor;    ///< ranks that share samples (tp)
};

struct DataParallelInput {
  ShardCandidate candidate;
  nn::Parameter* parameter;  ///< a plain leaf: this rank's part of the parameter
  /// The model's tensor, where it has a layout: says whether the ranks of `tensor` hold summands of
  /// its gradient, which its first use decides.
  Tensor of_model = {};
};

/// Per micro batch, every rank of the mesh alike: begin_forward, forward, begin_backward, backward,
/// end_backward. A rank without samples calls take_part instead, as do those that
/// share its samples. After the last one of a step the gradients of parameters() are the global
/// ones.
class DataParallel {
 public:
  /// With `fully_shard` leaves lose their memory and values, else those without memory get some.
  DataParallel(ExecutionContext& context, const DataParallelGroups& groups,
               const std::vector<DataParallelInput>& inputs,
               const std::optional<FullyShardOptions>& fully_shard);

  /// What this rank keeps of every input, in their order: what an optimizer takes.
  const std::vector<nn::NamedParameter>& parameters() const { return parameters_; }
  /// The dim that fully_shard cuts of parameter i, if any.
  std::optional<int> shard_dim(std::size_t i) const;
  /// Why fully_shard cuts that one, or none (ShardChoice::reason); empty without fully_shard.
  std::string shard_reason(std::size_t i) const;

  void begin_step();
  void begin_forward(bool backward_follows);
  void end_forward();
  void begin_backward(bool last);
  void end_backward();
  void take_part(bool last);
  /// The same for a forward without backward.
  void take_part_forward();

  /// Forward over and over with the parameters cut as they are (fully_shard.h). `keep_bytes` is how
  /// much of what is gathered may stay between passes, the same on every rank.
  void begin_generation(std::int64_t keep_bytes);
  void next_pass();
  /// Instead of the rest of a pass that failed here.
  void take_part_pass();
  void end_generation();

 private:
  void sum_partial_gradients();

  ExecutionContext& context_;
  DataParallelGroups groups_;
  std::vector<nn::NamedParameter> parameters_;
  std::vector<Tensor> of_model_;  ///< by parameter
  std::unique_ptr<FullyShard> sharded_;
  std::unique_ptr<GradientReducer> reducer_;  ///< without fully_shard, on several ranks
  bool last_ = true;
};

}  // namespace meshloom::parallel
