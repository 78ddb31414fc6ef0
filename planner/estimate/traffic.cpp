// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/traffic.h"

#include <algorithm>

#include "planner/shard.h"

namespace meshloom::planner {
namespace {

constexpr std::int64_t kOneShotBytes = 32 * 1024;
constexpr std::int64_t kFloat = 4;
constexpr std::int64_t kBucketElements = (8 << 20) / 4;

class StepTraffic {
 public:
  explicit StepTraffic(const LocalModel& local)
      : local_(local), micro_batches_(micro_batches(local.mesh, local.work)) {}

  std::vector<Traffic> run() {
    if (local_.mesh.tp > 1) tensor_parallel();
    if (local_.mesh.fsdp > 1) fully_shard();
    if (local_.mesh.dp > 1) data_parallel();
    return std::move(list_);
  }

 private:
  using Kind = CollectiveKind;
  using Phase = TrafficPhase;

  /// `calls` collectives on tensors of `elements` each.
  void add(const char* dim, int size, Kind kind, Phase phase, const char* what, std::int64_t calls,
           std::int64_t elements, std::int64_t element_bytes, bool can_overlap) {
    if (calls == 0 || elements == 0) return;
    list_.push_back({dim, kind, phase, what, calls, elements * element_bytes,
                     calls * bytes_sent(kind, elements, element_bytes, size), can_overlap});
  }

  /// On a tensor of the residual stream, [rows, hidden].
  void add_stream(Kind kind, Phase phase, const char* what, std::int64_t calls) {
    add("tp", local_.mesh.tp, kind, phase, what, calls, local_.rows * local_.model.hidden,
        local_.element_bytes, false);
  }

  void tensor_parallel();
  void sequence_parallel(std::int64_t layers, std::int64_t forwards);
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
  add_stream(Kind::kAllReduce, Phase::kForward, "token embedding", micro_batches_);
  add_stream(Kind::kAllReduce, Phase::kForward, "attention and MLP outputs", 2 * forwards);
  loss();
  add_stream(Kind::kAllReduce, Phase::kBackward, "gradient of the last norm's output",
             micro_batches_);
  add_stream(Kind::kAllReduce, Phase::kBackward, "gradients of attention and MLP inputs",
             2 * layers);
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
  // Each rank saw a part of the tokens: gradients of what tp does not cut are sums over tp.
  add("tp", local_.mesh.tp, Kind::kAllReduce, Phase::kGradients,
      "gradients of replicated parameters", 1, local_.all().replicated, kFloat, false);
}

/// Over a cut vocabulary: maximum, sum of exponentials and the target's logit of each token.
void StepTraffic::loss() {
  add("tp", local_.mesh.tp, Kind::kAllReduce, Phase::kForward, "loss", 3 * micro_batches_,
      local_.rows, kFloat, false);
}

void StepTraffic::fully_shard() {
  const int size = local_.mesh.fsdp;
  const std::int64_t layers = local_.model.layers * micro_batches_;
  const std::int64_t gathers = local_.plan.reshard_after_forward ? 2 * layers : layers;
  const auto gather = [&](Phase phase, const char* what, std::int64_t calls, const UnitSize& unit) {
    add("fsdp", size, Kind::kAllGather, phase, what, calls, unit.tensor_parallel,
        local_.element_bytes, true);
  };
  gather(Phase::kForward, "parameters outside layers", micro_batches_, local_.root);
  gather(Phase::kForward, "parameters of layers", layers, local_.block);
  gather(Phase::kBackward, "parameters of layers", gathers - layers, local_.block);
  const auto scatter = [&](const char* what, std::int64_t calls, const UnitSize& unit) {
    add("fsdp", size, Kind::kReduceScatter, Phase::kBackward, what, calls, unit.tensor_parallel,
        kFloat, true);
  };
  scatter("gradients of layers", layers, local_.block);
  scatter("gradients outside layers", micro_batches_, local_.root);
}

void StepTraffic::data_parallel() {
  const std::int64_t elements = local_.all().sharded;
  const std::int64_t buckets = std::max<std::int64_t>(1, elements / kBucketElements);
  add("dp", local_.mesh.dp, Kind::kAllReduce, Phase::kGradients, "gradients", buckets,
      (elements + buckets - 1) / buckets, kFloat, true);
}

}  // namespace

std::string to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return "all_reduce";
    case CollectiveKind::kAllGather: return "all_gather";
    case CollectiveKind::kReduceScatter: return "reduce_scatter";
  }
  return "";
}

std::int64_t bytes_sent(CollectiveKind kind, std::int64_t elements, std::int64_t element_bytes,
                        int size) {
  const std::int64_t own = shard_range(elements, size, 0).size();
  const std::int64_t gathered = (size - 1) * own;
  const std::int64_t scattered = elements - own;
  switch (kind) {
    case CollectiveKind::kAllGather: return gathered * element_bytes;
    case CollectiveKind::kReduceScatter: return scattered * element_bytes;
    case CollectiveKind::kAllReduce:
      if (elements * element_bytes <= kOneShotBytes) return (size - 1) * elements * element_bytes;
      return (gathered + scattered) * element_bytes;
  }
  return 0;
}

std::vector<Traffic> step_traffic(const LocalModel& local) { return StepTraffic(local).run(); }

std::int64_t total_bytes_sent(const std::vector<Traffic>& traffic) {
  std::int64_t sum = 0;
  for (const Traffic& t : traffic) sum += t.bytes_sent;
  return sum;
}

}  // namespace meshloom::planner
