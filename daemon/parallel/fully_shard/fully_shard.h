// SPDX-License-Identifier: Apache-2.0
// FullyShard: every rank keeps shards of parameters, gradients and optimizer state; a block's
// parameters are gathered when they are used.
//
// Parameters are sharded one by one (per-parameter sharding, as in PyTorch's FSDP2), communication
// is by block. Nothing in the model knows of it: a leaf's memory is asked for when a kernel first
// looks at it, which gathers its block and begins to gather the next one; what autograd saved sees
// the memory that the leaf has at that moment. Source: Rajbhandari et al., "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", 2020 (stage 3).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/parallel/data_parallel.h"
#include "daemon/parallel/fully_shard/shard_plan.h"
#include "daemon/parallel/fully_shard/shard_unit.h"
#include "daemon/parallel/gradient_reducer.h"

namespace meshloom::parallel {

/// Gradients are summed over the shard group after every micro batch (only shards of them are
/// kept), over the replicas after the last.
///
/// What a model touches decides when blocks are gathered and reduced, never in which order: forward
/// gathers the root, then the blocks from the first to the last, backward gathers and reduces from
/// the last to the first. A block that is used early has all before it gathered too, one whose
/// gradients are final early waits for its turn. So ranks agree whatever the model does, and ranks
/// that compute nothing need not know it. A block that is used again after it was freed cannot be
/// had: Unimplemented, naming it.
class FullyShard final : public DataParallel {
 public:
  /// Takes the leaves' memory away (values are lost; fill in parameters()). All outlive this
  /// object.
  FullyShard(ExecutionContext& context, const FullyShardGroups& groups,
             const std::vector<DataParallelInput>& inputs, const FullyShardOptions& options);
  ~FullyShard() override;

  const std::vector<ShardChoice>& choices() const { return choices_; }
  std::optional<int> shard_dim(std::size_t i) const override { return choices_[i].dim; }
  std::string shard_reason(std::size_t i) const override { return choices_[i].reason; }

  void begin_step() override { first_ = true; }
  void begin_forward(bool backward_follows) override;
  /// Frees what was gathered.
  void end_forward() override;
  void begin_backward(bool last) override;
  void end_backward() override;
  void take_part(bool last) override;
  void take_part_forward() override;
  void sum_gradients() override;

  /// Begins forwards over and over, for generation: as in begin_forward, but the root stays
  /// gathered until end_generation, as do the first blocks that together fit into `keep_bytes` (the
  /// same on every rank; all of them without reshard_after_forward). The others are gathered again
  /// in every pass, one ahead, the first of them already during the pass before.
  void begin_generation(std::int64_t keep_bytes) override;
  void next_pass() override;
  /// Does the gathers of the rest of a pass.
  void take_part_pass() override { visit_rest(); }
  void end_generation() override { release_all(); }

 private:
  enum class Phase { kIdle, kForward, kBackward };
  class Provider final : public StorageProvider {
   public:
    Provider(FullyShard& owner, std::size_t unit, bool values)
        : owner_(owner), unit_(unit), values_(values) {}
    void provide() override;

   private:
    FullyShard& owner_;
    std::size_t unit_;
    bool values_;
  };
  struct Unit {
    std::unique_ptr<Provider> values, gradients;
    std::unique_ptr<ShardUnit> shards;
    bool root = false;
    std::size_t missing = 0;  ///< gradients that are not final
    bool visited = false;     ///< used in this pass of forward
    bool kept = false;        ///< once used, until the end of the forward or generation
  };

  std::size_t unit_index(const std::string& parameter_name);
  void set_hooks();
  void use(std::size_t unit);
  /// Returns false if the pass has no more.
  bool start_next_gather();
  bool gather_in_flight() const;
  void on_ready(std::size_t unit);
  void start_next_reduce();
  void finish_oldest();
  void visit_rest();
  void release_all();
  /// Each of the two makes a step of what is left of backward; false if it has to wait.
  bool step_gathers();
  bool step_reductions();
  void finish_step();
  void poll();

  ExecutionContext& context_;
  FullyShardGroups groups_;
  FullyShardOptions options_;
  std::vector<ShardChoice> choices_;
  std::vector<Unit> units_;
  std::vector<nn::NamedParameter> whole_;  ///< parameters that are not sharded
  std::unique_ptr<GradientReducer> whole_reducer_;
  Phase phase_ = Phase::kIdle;
  std::optional<PollPoint> poll_point_;  ///< while not idle
  bool backward_follows_ = false;
  bool repeated_ = false;  ///< the first block follows the last
  bool first_ = true, last_ = true;
  std::deque<std::size_t> to_gather_;  ///< in this pass, in the order of all ranks
  std::optional<std::size_t> newest_;  ///< whose gather was begun last
  std::deque<std::size_t> to_reduce_;  ///< in this micro batch, in the order of all ranks
  std::deque<std::size_t> reducing_;   ///< in order of issue
};

}  // namespace meshloom::parallel
