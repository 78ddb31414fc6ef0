// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/traffic.h"

#include "planner/shard.h"

namespace meshloom::planner {
namespace {

constexpr std::int64_t kFloat = 4;

class StepTraffic {
 public:
  explicit StepTraffic(const LocalModel& local)
      : local_(local), micro_batches_(micro_batches(local.mesh, local.work)) {}

  std::vector<Traffic> run() {
    if (local_.mesh.tp > 1) tensor_parallel();
    if (local_.mesh.fsdp > 1) fully_shard();
    data_parallel();
    return std::move(list_);
  }

 private:
  using Kind = CollectiveKind;
  using Phase = TrafficPhase;

  /// Equal collectives on tensors of `elements`, of which this rank's part is `own`.
  struct Use {
    Kind kind;
    Phase phase;
    const char* what;
    std::int64_t calls, elements, own, element_bytes;
    bool can_overlap = false;
  };
  void add(const char* dim, int size, const Use& use) {
    if (use.calls == 0 || use.elements == 0) return;
    list_.push_back(
        {dim, use.kind, use.phase, use.what, use.calls, use.elements * use.element_bytes,
         use.calls * bytes_sent(use.kind, use.elements, use.own, use.element_bytes, size),
         use.can_overlap});
  }

  /// On a tensor of the residual stream, [rows, hidden].
  void add_stream(Kind kind, Phase phase, const char* what, std::int64_t calls) {
    const std::int64_t elements = local_.rows * local_.model.hidden;
    const std::int64_t own = kind == Kind::kAllReduce
                                 ? shard_range(elements, local_.mesh.tp, 0).size()
                                 : local_.stream_rows * local_.model.hidden;
    add("tp", local_.mesh.tp, {kind, phase, what, calls, elements, own, local_.element_bytes});
  }
  /// A sum over a group of what all its ranks hold.
  void add_sum(const char* dim, int size, const char* what, std::int64_t calls,
               std::int64_t elements, bool can_overlap) {
    add(dim, size,
        {Kind::kAllReduce, Phase::kGradients, what, calls, elements,
         shard_range(elements, size, 0).size(), kFloat, can_overlap});
  }

  void tensor_parallel();
  void sequence_parallel(std::int64_t layers, std::int64_t forwards);
  void whole_keys(std::int64_t layers);
  void loss();
  void fully_shard();
  void data_parallel();

  const LocalModel& local_;
  std::int64_t micro_batches_;
  std::vector<Traffic> list_;
};

void StepTraffic::tensor_parallel() {
  const std::int64_t layers = local_.model.layers * micro_batches_;
  // Checkpointed layers run forward twice.
  const std::int64_t forwards =
      local_.plan.checkpointing == Checkpointing::kNone ? layers : 2 * layers;
  if (local_.plan.sequence_parallel) return sequence_parallel(layers, forwards);
  const TensorGroups& groups = local_.plan.tensor_groups;
  const std::int64_t parts = (groups.attention ? 1 : 0) + (groups.mlp ? 1 : 0);
  if (groups.embedding)
    add_stream(Kind::kAllReduce, Phase::kForward, "token embedding", micro_batches_);
  const bool both = parts == 2;
  add_stream(Kind::kAllReduce, Phase::kForward,
             both               ? "attention and MLP outputs"
             : groups.attention ? "attention outputs"
                                : "MLP outputs",
             parts * forwards);
  if (groups.output) {
    loss();
    add_stream(Kind::kAllReduce, Phase::kBackward, "gradient of the last norm's output",
               micro_batches_);
  }
  add_stream(Kind::kAllReduce, Phase::kBackward,
             both               ? "gradients of attention and MLP inputs"
             : groups.attention ? "gradients of attention inputs"
                                : "gradients of MLP inputs",
             parts * layers);
  whole_keys(layers);
  // Each rank adds a share of these biases: their gradients are sums over tp.
  add_sum("tp", local_.mesh.tp, "gradients of row-wise biases", 1,
          local_.model.layers * local_.row_biases, false);
}

void StepTraffic::sequence_parallel(std::int64_t layers, std::int64_t forwards) {
  add_stream(Kind::kReduceScatter, Phase::kForward, "token embedding", micro_batches_);
  add_stream(Kind::kAllGather, Phase::kForward, "attention and MLP inputs", 2 * forwards);
  add_stream(Kind::kReduceScatter, Phase::kForward, "attention and MLP outputs", 2 * forwards);
  add_stream(Kind::kAllGather, Phase::kForward, "last norm's output", micro_batches_);
  loss();
  add_stream(Kind::kReduceScatter, Phase::kBackward, "gradient of the last norm's output",
             micro_batches_);
  add_stream(Kind::kAllGather, Phase::kBackward, "gradients of attention and MLP outputs",
             2 * layers);
  add_stream(Kind::kReduceScatter, Phase::kBackward, "gradients of attention and MLP inputs",
             2 * layers);
  add_stream(Kind::kAllGather, Phase::kBackward, "gradient of the token embedding", micro_batches_);
  whole_keys(layers);
  // Each rank saw a part of the tokens: gradients of what tp does not shard are sums over tp.
  add_sum("tp", local_.mesh.tp, "gradients of replicated parameters", 1, local_.all().replicated,
          false);
}

/// Keys and values that every rank computes, but uses with its own query heads only.
void StepTraffic::whole_keys(std::int64_t layers) {
  if (!local_.whole_kv) return;
  const std::int64_t elements = local_.rows * local_.kv;
  add("tp", local_.mesh.tp,
      {Kind::kAllReduce, Phase::kBackward, "gradients of keys and values", 2 * layers, elements,
       shard_range(elements, local_.mesh.tp, 0).size(), local_.element_bytes});
}

/// Over a sharded vocabulary: what each rank knows of each token's loss, two floats.
void StepTraffic::loss() {
  const std::int64_t own = 2 * local_.rows;
  add("tp", local_.mesh.tp,
      {Kind::kAllGather, Phase::kForward, "loss", micro_batches_, own * local_.mesh.tp, own,
       kFloat});
}

void StepTraffic::fully_shard() {
  const std::int64_t layers = local_.model.layers * micro_batches_;
  const auto unit_use = [&](Kind kind, Phase phase, const char* what, std::int64_t calls,
                            const UnitSize& unit) {
    const Use use{kind,
                  phase,
                  what,
                  calls,
                  unit.gathered,
                  unit.shards,
                  kind == Kind::kAllGather ? local_.element_bytes : kFloat,
                  true};
    if (calls == 0 || unit.messages == 0) return;
    add("fsdp", local_.mesh.fsdp, use);
    list_.back().calls *= unit.messages;
    list_.back().data_bytes /= unit.messages;
  };
  unit_use(Kind::kAllGather, Phase::kForward, "parameters outside layers", micro_batches_,
           local_.root);
  unit_use(Kind::kAllGather, Phase::kForward, "parameters of layers", layers, local_.block);
  // The last layer's are still there.
  if (local_.plan.reshard_after_forward)
    unit_use(Kind::kAllGather, Phase::kBackward, "parameters of layers", layers - micro_batches_,
             local_.block);
  unit_use(Kind::kReduceScatter, Phase::kBackward, "gradients of layers", layers, local_.block);
  unit_use(Kind::kReduceScatter, Phase::kBackward, "gradients outside layers", micro_batches_,
           local_.root);
}

void StepTraffic::data_parallel() {
  if (local_.mesh.fsdp > 1 && local_.mesh.dp > 1) {
    add_sum("dp", local_.mesh.dp, "gradients of layers", local_.model.layers, local_.block.flat,
            true);
    add_sum("dp", local_.mesh.dp, "gradients outside layers", 1, local_.root.flat, true);
  }
  const GradientSums& sums = local_.gradient_sums;
  if (sums.calls == 0) return;
  const bool both = local_.mesh.fsdp > 1 && local_.mesh.dp > 1;
  list_.push_back({both                   ? "dp+fsdp"
                   : local_.mesh.fsdp > 1 ? "fsdp"
                                          : "dp",
                   Kind::kAllReduce, Phase::kGradients,
                   local_.mesh.fsdp > 1 ? "gradients of whole parameters" : "gradients", sums.calls,
                   sums.elements / sums.calls * kFloat, sums.bytes_sent, true});
}

}  // namespace

std::vector<Traffic> step_traffic(const LocalModel& local) { return StepTraffic(local).run(); }

std::int64_t total_bytes_sent(const std::vector<Traffic>& traffic) {
  std::int64_t sum = 0;
  for (const Traffic& t : traffic) sum += t.bytes_sent;
  return sum;
}

}  // namespace meshloom::planner
