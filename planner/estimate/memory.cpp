// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/memory.h"

#include <algorithm>
#include <map>

#include "kernels/base/device_products.h"
#include "kernels/base/integer_math.h"
#include "kernels/base/loss_pieces.h"
#include "planner/communication_sizes.h"
#include "planner/estimate/activations.h"
#include "planner/estimate/rotate_choice.h"
#include "planner/shard.h"

namespace meshloom::planner {
namespace {

constexpr std::int64_t kFloat = 4;
// What a rank's process takes beside tensors: measured with the programs of this repository.
constexpr std::int64_t kProcessBytes = 72 << 20;
constexpr std::int64_t kAttentionTiles = 340 << 10;
// Panels of bfloat16 products: between those of a CPU that has the products (2 MiB a thread) and of
// one that widens the operands (6 MiB).
constexpr std::int64_t kPanels = 7 << 19;
// What pinned memory comes in.
constexpr std::int64_t kPinnedSegmentBytes = 2 << 20;
// Of staged calls one after the other: a block is copied back from while the next call has another.
constexpr std::int64_t kBlocksInTurn = 2;

std::int64_t workspace_bytes(const LocalModel& local) {
  // Attention keeps its tiles on the chip there, and no other kernel's scratch comes near.
  if (local.work.device == DeviceKind::kCuda) return kernels::kDeviceProductBytes;
  // Of the loss: float32 sums of the hidden states' gradients over panels of the vocabulary.
  const bool panels =
      local.plan.dtype == DType::kBFloat16 && local.pass->vocab > kernels::kLogitPanelColumns;
  const std::int64_t sums = panels ? kernels::rows_per_piece(local.rows, local.pass->vocab * 2,
                                                             kernels::kLogitGradientBytes) *
                                         local.model.hidden * kFloat
                                   : 0;
  // Attention: float32 sums of dq for about a head at a time, and tiles.
  const std::int64_t attention = 2 * local.work.sequence * local.model.head_dim * kFloat *
                                     (local.model.heads / local.model.kv_heads) +
                                 kAttentionTiles;
  return std::max(sums, attention) + (local.plan.dtype == DType::kBFloat16 ? kPanels : 0);
}

std::int64_t state_bytes_per_element(OptimizerState optimizer) {
  switch (optimizer) {
    case OptimizerState::kAdam: return 2 * kFloat;
    case OptimizerState::kSgdMomentum: return kFloat;
    case OptimizerState::kSgd: return 0;
  }
  return 0;
}

/// Whole parameters of the layer at work and the one that is fetched meanwhile (or of all), whole
/// gradients of what is trained of the layers at work; those of the root throughout.
std::int64_t gathered_bytes(const LocalModel& local, const ActivationEstimate& activations) {
  if (!local.plan.fully_shard || local.mesh.fsdp == 1) return 0;
  const std::int64_t layers = local.model.layers;
  const std::int64_t weights = local.block.gathered * local.element_bytes;
  // What is not sharded along dim 0 in large pieces is copied into a message: the gradients of a
  // layer, and the weights of the one that is fetched meanwhile, two layers on.
  const bool reshard = local.plan.shards.reshard_after_forward;
  const std::int64_t message = reshard && layers > 2 ? local.block.packed * local.element_bytes : 0;
  const bool checkpointed = local.plan.checkpointing != ActivationCheckpoint::kNone;
  const std::int64_t given_back =
      (checkpointed ? activations.boundary : activations.block) + (reshard ? 0 : weights);
  // Whole gradients of the layer at work and of the one behind it, which are still being reduced,
  // with what of them is copied into a message, at the fullest moment: with every layer further
  // back `given_back` less of other things is there.
  std::int64_t gradients = 0, reduced = 0, packed = 0, less = 0;
  for (auto layer = local.trained_layers.rbegin(); layer != local.trained_layers.rend(); ++layer) {
    const std::int64_t whole = layer->gathered * kFloat;
    const std::int64_t copied = std::max(packed, layer->packed) * kFloat;
    gradients = std::max(gradients, whole + reduced + copied - less);
    reduced = whole;
    packed = layer->packed;
    less += given_back;
  }
  return local.root.gathered * local.element_bytes + local.trained_root.gathered * kFloat +
         weights * (reshard ? std::min<std::int64_t>(2, layers) : layers) + message + gradients;
}

/// A rank that sums with no other makes a layer's gradients when backward comes to it, and drops
/// them before the next step, so that most come when most activations have gone.
std::int64_t gradient_bytes(const LocalModel& local, const ActivationEstimate& activations) {
  const std::int64_t all = local.all().sharded * kFloat;
  const bool sums = local.mesh.parameter_copies() * local.mesh.parameter_shards() > 1;
  if (sums || local.work.accumulates || micro_batches(local.mesh, local.work) > 1) return all;
  const bool checkpointed = local.plan.checkpointing != ActivationCheckpoint::kNone;
  const std::int64_t layer = checkpointed ? activations.boundary : activations.block;
  // The fullest moment is when the last layer begins its backward, or the first does, or ends it.
  const std::int64_t block = local.block.sharded * kFloat, layers = local.model.layers;
  return std::max({local.root.sharded * kFloat, all - block - (layers - 1) * layer,
                   all - (activations.peak - activations.behind_blocks)});
}

std::int64_t staging_of(std::int64_t bytes, int group) {
  if (group <= 1) return 0;
  return (group - 1) *
         std::min(kReduceSlicesInFlight * kReduceSliceBytes, divide_up<std::int64_t>(bytes, group));
}

/// What context parallelism takes for attention, in tensors.
std::int64_t exchanged_bytes(const LocalModel& local) {
  if (local.mesh.cp == 1) return 0;
  const AttentionSizes sizes = attention_sizes(local.model, local.mesh, local.plan, local.work);
  const std::int64_t messages = attention_message_bytes(sizes, local.plan.context_parallel);
  // Gradients of the rank's own queries, keys and values are summed in float32, beside what a
  // rank alone makes of them.
  const bool sums = local.plan.dtype != DType::kFloat32;
  return messages + (sums ? local.pass->attended * kFloat : 0);
}

std::int64_t communication_bytes(const LocalModel& local) {
  const MeshSizes& mesh = local.mesh;
  const std::int64_t activations = local.rows * local.model.hidden * local.element_bytes;
  std::int64_t sum = 0;
  if (mesh.parameter_copies() > 1)
    sum += staging_of(std::min(kGradientBucketBytes, local.all().sharded * kFloat),
                      mesh.parameter_copies());
  std::int64_t trained = 0;  // of the layer of which most is
  for (const UnitSize& layer : local.trained_layers) trained = std::max(trained, layer.gathered);
  if (mesh.fsdp > 1) sum += staging_of(trained * kFloat, mesh.parameter_shards());
  if (mesh.tp > 1)
    sum += staging_of(activations, mesh.tp) +
           fused_workspace_bytes(mesh, local.plan, local.work, local.model.hidden);
  return sum;
}

/// The pinned blocks that a rank's staged calls take, of which each size has its own.
class StagedBlocks {
 public:
  /// So many blocks more for calls of so many bytes, inputs and outputs together.
  void add(std::int64_t bytes, std::int64_t blocks) {
    if (bytes > 0) blocks_[bytes] += blocks;
  }
  /// The same for calls one after the other, which share blocks of one size.
  void add_in_turn(std::int64_t bytes) {
    if (bytes > 0) blocks_[bytes] = std::max(blocks_[bytes], kBlocksInTurn);
  }
  /// Each size counts as a class of its own, which is at most a quarter larger.
  std::int64_t total() const {
    std::int64_t sum = 0;
    for (const auto& [bytes, blocks] : blocks_)
      sum += round_up<std::int64_t>((bytes + divide_up<std::int64_t>(bytes, 4)) * blocks,
                                    kPinnedSegmentBytes);
    return sum;
  }

 private:
  std::map<std::int64_t, std::int64_t> blocks_;
};

/// Sums of gradients. All that are final are on their way at once, until the step ends.
void stage_gradients(StagedBlocks& blocks, const LocalModel& local) {
  const GradientSums& sums = local.gradient_sums;
  if (sums.calls > 0) blocks.add(divide_up(sums.elements, sums.calls) * kFloat, sums.calls);
  if (local.mesh.fsdp > 1 && local.mesh.parameter_copies() > 1) {
    blocks.add(local.block.flat * kFloat, local.model.layers);
    blocks.add(local.root.flat * kFloat, 1);
  }
  if (local.mesh.tp > 1) blocks.add(local.all().summands * kFloat, 1);
}

/// Whole parameters and their shards, and gradients in float32: those of two units travel at once.
void stage_units(StagedBlocks& blocks, const LocalModel& local) {
  if (local.mesh.fsdp == 1) return;
  for (const UnitSize* unit : {&local.block, &local.root}) {
    const std::int64_t elements = unit->gathered + unit->shards;
    blocks.add(elements * local.element_bytes, kBlocksInTurn);
    blocks.add(elements * kFloat, kBlocksInTurn + 1);
  }
}

void stage_activations(StagedBlocks& blocks, const LocalModel& local) {
  if (local.mesh.tp == 1) return;
  // Plans whose passes are not known take these, too.
  blocks.add_in_turn(2 * local.rows * local.model.hidden * local.element_bytes);
  const auto add = [&](const std::vector<PassCollective>& collectives) {
    for (const PassCollective& c : collectives)
      blocks.add_in_turn(2 * c.elements *
                         (c.element_bytes > 0 ? c.element_bytes : local.element_bytes));
  };
  for (const RunCollectives& run : local.pass->runs) add(run.collectives);
}

/// What a rank sends of attention is as much as it gets, at most all that others have.
void stage_attention(StagedBlocks& blocks, const LocalModel& local) {
  if (local.mesh.cp == 1) return;
  AttentionSizes sizes = attention_sizes(local.model, local.mesh, local.plan, local.work);
  sizes.seen_share = 1.0;
  for (const AttentionExchange& e : attention_exchanges(sizes, local.plan.context_parallel)) {
    const std::int64_t received = e.elements * e.element_bytes;
    const std::int64_t own = e.is_ring ? 0 : divide_up<std::int64_t>(received, e.size - 1);
    blocks.add_in_turn(2 * (received + own));
  }
}

}  // namespace

std::int64_t staged_bytes(const LocalModel& local) {
  const MeshSizes& mesh = local.mesh;
  StagedBlocks blocks;
  // The few scalars of a step.
  if (mesh.parameter_copies() * mesh.parameter_shards() * mesh.tp > 1) blocks.add(kFloat, 1);
  stage_gradients(blocks, local);
  stage_units(blocks, local);
  stage_activations(blocks, local);
  stage_attention(blocks, local);
  return blocks.total();
}

std::int64_t MemoryEstimate::total() const {
  return parameters + gradients + optimizer + activations + gathered + workspace + communication +
         process;
}

std::int64_t fused_workspace_bytes(const MeshSizes& mesh, const ParallelPlan& plan,
                                   const Workload& work, std::int64_t hidden) {
  if (mesh.tp == 1 || !plan.sequence_parallel) return 0;
  const bool by_table =
      fusion_ever_pays(FusedProduct::kGather) || fusion_ever_pays(FusedProduct::kScatter);
  const auto may_fuse = [by_table](FusionMode mode) {
    return mode == FusionMode::kForce || (mode == FusionMode::kAuto && by_table);
  };
  const bool fuses = may_fuse(plan.fusion.mode) ||
                     std::any_of(plan.fusion.choices.begin(), plan.fusion.choices.end(),
                                 [&](const FusionChoice& choice) { return may_fuse(choice.mode); });
  if (!fuses) return 0;
  // A result that is scattered, forward or as the gradient of what was gathered, has a slot for
  // every rank, of float32: more than a rank's part of what is gathered.
  const std::int64_t positions = divide_up<std::int64_t>(tokens_per_rank(mesh, work), mesh.tp);
  const std::int64_t slot =
      round_up<std::int64_t>(work.micro_batch * positions * hidden * kFloat, 64);
  return kFusedCardBytes + slot * mesh.tp;
}

MemoryEstimate estimate_memory(const LocalModel& local) {
  const std::int64_t elements = local.all().sharded;
  const bool masters = local.plan.dtype != DType::kFloat32;
  MemoryEstimate memory;
  memory.parameters = elements * local.element_bytes;
  const std::int64_t trained = local.trained_shards();
  memory.optimizer =
      trained * state_bytes_per_element(local.work.optimizer) + (masters ? elements * kFloat : 0);
  const ActivationEstimate& activations = local.activations;
  memory.activations = activations.peak;
  memory.gradients = std::min(gradient_bytes(local, activations), trained * kFloat);
  memory.gathered = gathered_bytes(local, activations);
  memory.workspace = workspace_bytes(local);
  memory.exchanged = exchanged_bytes(local);
  memory.communication = communication_bytes(local) + memory.exchanged;
  memory.process = kProcessBytes;
  return memory;
}

}  // namespace meshloom::planner
