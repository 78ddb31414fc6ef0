// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/traffic.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "planner/estimate/rotate_choice.h"
#include "planner/shard.h"

namespace meshloom::planner {
namespace {

constexpr std::int64_t kFloat = 4;

/// Equal collectives of a step, of one tensor of a block or of several.
struct PassUse {
  PassCollective collective;
  std::vector<std::string> names;
  std::int64_t calls = 0;
};

/// Gathers equal collectives of passes over the step.
class PassUses {
 public:
  void add(const std::vector<PassCollective>& collectives, std::int64_t passes, bool twice) {
    for (const PassCollective& c : collectives) {
      if (c.backward) {
        note(backward_, c, passes);
      } else if (twice) {
        note(forward_, c, c.unshared ? passes : 2 * passes);
      } else if (!c.unshared) {
        note(forward_, c, passes);
      }
    }
  }
  /// Backward runs from the last to the first.
  std::vector<PassUse> forward_then_backward() {
    std::reverse(backward_.begin(), backward_.end());
    forward_.insert(forward_.end(), backward_.begin(), backward_.end());
    return std::move(forward_);
  }

 private:
  /// What modules of blocks give is listed together.
  static bool alike(const PassCollective& a, const PassCollective& b) {
    const auto joins = [](const TensorLabel& l) { return l.of_block && l.parameter.empty(); };
    return a.kind == b.kind && a.elements == b.elements && a.own == b.own &&
           (a.label == b.label || (joins(a.label) && joins(b.label)));
  }
  static void note(std::vector<PassUse>& uses, const PassCollective& c, std::int64_t calls) {
    auto use = std::find_if(uses.begin(), uses.end(),
                            [&](const PassUse& u) { return alike(u.collective, c); });
    if (use == uses.end()) use = uses.insert(uses.end(), {c, {}, 0});
    use->calls += calls;
    const std::string name = to_string(c.label);
    if (std::find(use->names.begin(), use->names.end(), name) == use->names.end())
      use->names.push_back(name);
  }

  std::vector<PassUse> forward_, backward_;
};

/// "outputs of attn.c_proj and mlp.c_proj", "gradient of transformer.wte.weight"
std::string what_of(const PassUse& use) {
  const TensorLabel& label = use.collective.label;
  const char* plural = use.names.size() > 1 || label.of_block ? "s" : "";
  std::string text = fmt::format("{}", fmt::join(use.names, " and "));
  if (label.parameter.empty()) text = fmt::format("output{} of {}", plural, text);
  return use.collective.backward ? fmt::format("gradient{} of the {}", plural, text) : text;
}

class StepTraffic {
 public:
  explicit StepTraffic(const LocalModel& local)
      : local_(local), micro_batches_(micro_batches(local.mesh, local.work)) {}

  std::vector<Traffic> run() {
    if (local_.mesh.tp > 1) tensor_parallel();
    if (local_.mesh.cp > 1) context_parallel();
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
    std::string what;
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

  /// A sum over a group of what all its ranks hold.
  void add_sum(const char* dim, int size, const char* what, std::int64_t calls,
               std::int64_t elements, bool can_overlap) {
    add(dim, size,
        {Kind::kAllReduce, Phase::kGradients, what, calls, elements,
         shard_range(elements, size, 0).size(), kFloat, can_overlap});
  }

  void tensor_parallel();
  void context_parallel();
  void fully_shard();
  void data_parallel();

  const LocalModel& local_;
  std::int64_t micro_batches_;
  std::vector<Traffic> list_;
};

void StepTraffic::tensor_parallel() {
  // Checkpointed layers run forward twice, first without recording a gradient.
  const bool checkpointed = local_.plan.checkpointing != ActivationCheckpoint::kNone;
  PassUses uses;
  for (const RunCollectives& run : local_.pass->runs)
    uses.add(run.collectives, run.times * micro_batches_, checkpointed && run.is_block);
  for (const PassUse& use : uses.forward_then_backward()) {
    const PassCollective& c = use.collective;
    const std::string what = what_of(use);
    add("tp", local_.mesh.tp,
        {c.kind, c.backward ? Phase::kBackward : Phase::kForward, what, use.calls, c.elements,
         c.own, c.element_bytes > 0 ? c.element_bytes : local_.element_bytes});
  }
  // Every rank computes a share of these: with sequence parallelism it sees a part of the tokens,
  // and a bias that is added to a sum is added by one rank.
  add_sum(
      "tp", local_.mesh.tp,
      local_.biases_alone ? "gradients of row-wise biases" : "gradients of replicated parameters",
      1, local_.all().summands, false);
}

void StepTraffic::context_parallel() {
  const std::int64_t layers = local_.model.layers * micro_batches_;
  const ActivationCheckpoint kept = local_.plan.checkpointing;
  const AttentionSizes sizes = attention_sizes(local_.model, local_.mesh, local_.plan, local_.work);
  for (const AttentionExchange& e : attention_exchanges(sizes, local_.plan.context_parallel)) {
    // A layer that is computed again exchanges heads once more, and keys unless the result of
    // attention was kept.
    const bool again = !e.backward && (kept == ActivationCheckpoint::kFull ||
                                       (e.of_heads && kept != ActivationCheckpoint::kNone));
    const std::int64_t calls = e.calls * (again ? 2 * layers : layers);
    const std::int64_t bytes = e.elements * e.element_bytes;
    const std::int64_t data = e.kind == Kind::kAllGather ? bytes / (e.size - 1) * e.size : bytes;
    list_.push_back({"cp", e.kind, e.backward ? Phase::kBackward : Phase::kForward, e.what, calls,
                     data, calls * bytes, !e.of_heads, e.stride, e.size});
  }
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
    add(local_.mesh.cp > 1 ? "fsdp+cp" : "fsdp", local_.mesh.parameter_shards(), use);
    list_.back().calls *= unit.messages;
    list_.back().data_bytes /= unit.messages;
  };
  unit_use(Kind::kAllGather, Phase::kForward, "parameters outside layers", micro_batches_,
           local_.root);
  unit_use(Kind::kAllGather, Phase::kForward, "parameters of layers", layers, local_.block);
  // The last layer's are still there.
  if (local_.plan.shards.reshard_after_forward)
    unit_use(Kind::kAllGather, Phase::kBackward, "parameters of layers", layers - micro_batches_,
             local_.block);
  unit_use(Kind::kReduceScatter, Phase::kBackward, "gradients of layers", layers, local_.block);
  unit_use(Kind::kReduceScatter, Phase::kBackward, "gradients outside layers", micro_batches_,
           local_.root);
}

void StepTraffic::data_parallel() {
  // Without fsdp ranks of cp hold copies of what those of dp hold copies of, too.
  const MeshSizes& mesh = local_.mesh;
  const int copies = mesh.parameter_copies();
  const char* of_copies = mesh.cp == 1 || mesh.fsdp > 1 ? "dp" : mesh.dp == 1 ? "cp" : "dp+cp";
  if (mesh.fsdp > 1 && copies > 1) {
    add_sum(of_copies, copies, "gradients of layers", local_.model.layers, local_.block.flat, true);
    add_sum(of_copies, copies, "gradients outside layers", 1, local_.root.flat, true);
  }
  const GradientSums& sums = local_.gradient_sums;
  if (sums.calls == 0) return;
  std::string dims = mesh.fsdp > 1 ? "" : of_copies;
  if (mesh.fsdp > 1)
    dims = std::string(mesh.dp > 1 ? "dp+" : "") + "fsdp" + (mesh.cp > 1 ? "+cp" : "");
  list_.push_back({dims, Kind::kAllReduce, Phase::kGradients,
                   mesh.fsdp > 1 ? "gradients of whole parameters" : "gradients", sums.calls,
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
