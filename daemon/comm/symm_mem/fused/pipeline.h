// SPDX-License-Identifier: Apache-2.0
// The two pipelines of fused operations: shards of all ranks come to each (gather and consume), and
// every rank makes something for each (produce and exchange), in pieces that overlap.
//
// All ranks first tell each other their shapes (rank_card.h). Then piece c of rank s is announced
// to every reader by a signal on channel c, and a wait for it comes right before its use. A call
// returns when nobody reads or writes its part of the workspace any more.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "daemon/comm/symm_mem/fused/rank_card.h"
#include "daemon/comm/symm_mem/symmetric_group.h"
#include "daemon/tensor/execution_context.h"

namespace meshloom::comm {

/// Most pieces of a shard; a group with fewer channels has fewer.
inline constexpr int kMostSplits = 16;

/// Throws InvalidArgument naming `op` unless 1 <= splits <= what the group offers.
void check_splits(const char* op, const SymmetricGroup& group, int splits);

struct GatherCall {
  const char* op = "";
  TensorView shard;   ///< at least one dim, any strides; is cut into pieces along dim 0
  TensorView side{};  ///< contiguous float32 or undefined: comes whole with every piece
  int free_dim = 0;   ///< in which the shards of the ranks may differ
  int splits = 1;
  std::vector<AgreedValue> agreed{};
  /// The rendezvous of the shards of all ranks, where they lie in symmetric memory: nothing is
  /// copied. Given on all ranks or on none; the shard is contiguous then.
  std::shared_ptr<SymmetricBuffer> symmetric = nullptr;
};

struct GatherPiece {
  TensorView rows;         ///< contiguous; valid until the pipeline has run
  TensorView side;         ///< the source's, one dim
  int source;              ///< rank
  std::int64_t first_row;  ///< of the piece in its shard
};

/// It is used once; every rank of the group makes one and runs it. The constructor throws
/// InvalidArgument on all ranks where they differ in more than the free dim.
class GatherPipeline {
 public:
  GatherPipeline(ExecutionContext& context, SymmetricGroup& group, GatherCall call);

  const Shape& shape(int rank) const { return shapes_[static_cast<std::size_t>(rank)]; }
  /// Returns the size of all shards together along the free dim, and where that of a rank begins.
  std::int64_t total() const { return begins_.back(); }
  std::int64_t begin(int rank) const { return begins_[static_cast<std::size_t>(rank)]; }
  /// Refuses on all ranks what all saw alike (total(), shape()); instead of run().
  [[noreturn]] void refuse(const std::string& text) const { refuse_together(group_, text); }

  /// Calls consume for every piece once: those of this rank first, then of the ranks behind it. An
  /// empty shard has pieces too.
  void run(const std::function<void(const GatherPiece&)>& consume);

 private:
  void publish();
  GatherPiece piece(int source, int split) const;

  ExecutionContext& context_;
  SymmetricGroup& group_;
  GatherCall call_;
  std::vector<Shape> shapes_;
  std::vector<std::int64_t> sides_, begins_;
  std::shared_ptr<SymmetricBuffer> workspace_;
};

struct ExchangeCall {
  const char* op = "";
  Shape whole;  ///< what all ranks' contributions add up to; rank r owns its part by the ceil rule
  int dim = 0;  ///< along this one
  DType dtype = DType::kFloat32;  ///< of the slots
  int splits = 1;
  std::vector<AgreedValue> agreed{};
};

/// ProducedRows are some rows of the part that `destination` owns: [rows, last size of the part].
struct ProducedRows {
  TensorView rows;  ///< contiguous, in the slot of this rank at the destination
  int destination;
  std::int64_t first_row;
};

struct ReceivedRows {
  std::vector<TensorView> slots;  ///< by source rank, all of one shape; may be written over
  std::int64_t first_row;
};

/// It is used once, as GatherPipeline.
class ExchangePipeline {
 public:
  ExchangePipeline(SymmetricGroup& group, ExchangeCall call);

  /// Returns the part of the whole that a rank owns.
  Shape part(int rank) const;

  /// Runs both: produce fills every slot's rows, those of the ranks behind this one first, its own
  /// last; then consume gets what all ranks made for this one.
  void run(const std::function<void(const ProducedRows&)>& produce,
           const std::function<void(const ReceivedRows&)>& consume);

 private:
  /// Returns piece `split` of the slot of `source` in the memory of `owner`.
  TensorView slot(int owner, int source, int split, std::int64_t& first_row) const;

  SymmetricGroup& group_;
  ExchangeCall call_;
  std::size_t slot_bytes_ = 0;
  std::shared_ptr<SymmetricBuffer> workspace_;
};

/// consume(shard, source) for the contiguous shard of every rank once, this rank's first. Shards
/// may differ in dim 0. Every rank of the group calls it.
void gather_and_consume(ExecutionContext& context, SymmetricGroup& group, const TensorView& shard,
                        const std::function<void(const TensorView& shard, int source)>& consume);

/// produce(destination, slot) fills a slot of shape [rows, columns] for every rank once, this
/// rank's last; consume(slots) gets those that all ranks filled for this one, by source. `whole` as
/// in ExchangeCall. Every rank of the group calls it.
void produce_and_exchange(
    SymmetricGroup& group, const Shape& whole, int dim, DType dtype,
    const std::function<void(int destination, const TensorView& slot)>& produce,
    const std::function<void(std::span<const TensorView> slots)>& consume);

}  // namespace meshloom::comm
