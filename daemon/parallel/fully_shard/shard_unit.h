// SPDX-License-Identifier: Apache-2.0
// ShardUnit: the parameters of one block, of which a rank holds shards between uses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/nn/module.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/tensor.h"
#include "planner/shard.h"

namespace meshloom::parallel {

/// ShardedParameter is a parameter that is sharded: the leaf that the model computes with and this
/// rank's shard of it.
struct ShardedParameter {
  std::string name;
  Tensor full;          ///< the model's leaf; its storages (value and gradient) come and go
  Tensor full_grad;     ///< the leaf's gradient buffer; undefined if it is frozen
  nn::Parameter shard;  ///< a leaf with memory of its own; its gradient is the reduced one
  int dim = 0;
  bool trained = true;  ///< false: the leaf requires no gradient, and the shard has none either
};

/// FullyShardGroups names four different groups: in each of them the order of collectives is fixed,
/// between them it is not.
struct FullyShardGroups {
  comm::ProcessGroup* gather;    ///< over which parameters are sharded: their values
  comm::ProcessGroup* reduce;    ///< the same ranks: their gradients
  comm::ProcessGroup* replicas;  ///< over which shards are copies (HSDP); null: none
  comm::ProcessGroup* data;      ///< both together: parameters that stay whole are summed over it
};

/// Collectives of a unit are issued by start_* and moved by any poll of the rank. Large shards
/// along dim 0 travel directly between the shards and their places in the full tensors; all others
/// are packed into one message. Reduction is in float32 in rank order.
class ShardUnit {
 public:
  /// Takes the memory of the leaves away: their values are lost, shards are undefined until they
  /// are filled. Groups and context outlive the unit.
  ShardUnit(ExecutionContext& context, const FullyShardGroups& groups, std::string name,
            StorageProvider& values, StorageProvider& gradients);
  ShardUnit(const ShardUnit&) = delete;
  ShardUnit& operator=(const ShardUnit&) = delete;

  /// Adds a parameter; no more may come after seal().
  void add(const std::string& name, const Tensor& leaf, int dim);
  /// Lays out the buffers.
  void seal();

  const std::string& name() const { return name_; }
  /// Returns the parameters that are trained.
  std::size_t trained() const { return trained_; }
  std::vector<ShardedParameter>& parameters() { return parameters_; }

  // --- Values
  bool gathered() const { return gathered_; }
  bool gathering() const { return gathering_; }
  void start_gather();
  /// Moves what is in flight; true if the values are all here.
  bool poll_gather();
  /// Waits and gives the leaves their memory.
  void finish_gather();
  /// Takes the leaves' memory back. A gather in flight is waited for first.
  void release();

  // --- Gradients
  /// Gives the leaves' gradient buffers memory, undefined. Called by the provider at first use.
  void provide_gradients();
  /// Leaves without a gradient count as zero. `first`: overwrite the shards' gradients, else add.
  void start_reduce(bool first);
  /// Moves what is in flight; true if the sums are all here.
  bool poll_reduce();
  /// Waits, adds to the shards' gradients and takes the leaves' gradient memory back. `last`: sums
  /// over the replicas are begun now.
  void finish_reduce(bool last);
  /// Begins the sums over the replicas, after the finish_reduce of the last micro batch.
  void start_replicas();
  /// Waits for the sums over the replicas.
  void finish_replicas();
  /// Returns, by parameter, whether this rank has had a gradient of it since start_reduce(true);
  /// true of frozen ones.
  const std::vector<bool>& had_gradients() const { return has_grad_; }

  /// Returns the bytes of the values while they are gathered, gaps included.
  std::int64_t full_bytes() const {
    return of_values_.full_elements * static_cast<std::int64_t>(dtype_size(dtype_));
  }

 private:
  /// The layout says where parameters lie in flat buffers, in elements: all of them for values,
  /// those that are trained for gradients. Both are the same if none is frozen.
  struct Layout {
    std::int64_t full_elements = 0;
    std::vector<std::int64_t> offsets;  ///< by parameter: of the full tensor
    /// By rank and parameter: place in the rank's flat buffer of shards, packed parameters first.
    std::vector<std::vector<std::int64_t>> shard_offsets;
    std::vector<std::int64_t> packed_begin;  ///< by rank, in a message of all; one more at the end
  };

  std::size_t index_of(const ShardedParameter& parameter) const;
  Layout place(bool trained_alone) const;
  planner::ShardRange range(const ShardedParameter& parameter, int rank) const;
  Shape shard_shape(const ShardedParameter& parameter, int rank) const;
  std::int64_t shard_size(const ShardedParameter& parameter, int rank) const;
  /// Returns this rank's part of the full tensor in a flat buffer of full tensors.
  TensorView part(const Tensor& flat, const Layout& layout, const ShardedParameter& parameter,
                  int rank) const;
  /// This rank's shard in a flat buffer of shards.
  TensorView shard_part(const Tensor& flat, const Layout& layout,
                        const ShardedParameter& parameter) const;
  /// Tells whether shards travel without packing.
  bool direct(const ShardedParameter& parameter) const;
  std::vector<TensorView> packed_parts(const Tensor& packed, const Layout& layout) const;
  void unpack_values();
  void pack_gradients();

  ExecutionContext& context_;
  FullyShardGroups groups_;
  std::string name_;
  StorageProvider& values_provider_;
  StorageProvider& gradients_provider_;
  DType dtype_ = DType::kFloat32;
  std::vector<ShardedParameter> parameters_;
  std::size_t trained_ = 0;
  Layout of_values_, of_gradients_;
  Tensor shards_, shard_grads_;  ///< flat: this rank's shards and their gradients

  bool gathered_ = false, gathering_ = false;
  Tensor values_, packed_values_;
  std::vector<comm::WorkPtr> gather_works_;
  bool reducing_ = false;
  bool reduce_adds_ = false;
  Tensor grads_, packed_grads_, reduced_;
  std::vector<bool> has_grad_;
  std::vector<comm::WorkPtr> reduce_works_;
  comm::WorkPtr replica_work_;
};

}  // namespace meshloom::parallel
