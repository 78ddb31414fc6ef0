// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/step_time.h"

#include <algorithm>

#include "planner/estimate/rotate_choice.h"

namespace meshloom::planner {
namespace {

/// Flops per token of one forward.
struct ForwardFlops {
  double matmul = 0.0, attention = 0.0;  ///< of all blocks
  double output = 0.0;                   ///< of what is outside them
};

double to_double(std::int64_t n) { return static_cast<double>(n); }

/// Positions that a query of this call sees in a sequence of so many tokens, the mean over queries.
double seen_positions(const AttentionWork& call, double length) {
  const double window = call.window > 0 ? std::min(to_double(call.window), length) : length;
  return call.causal ? window - 0.5 * window * window / length : window;
}

ForwardFlops flops_of(const ForwardWork& work, std::int64_t sequence) {
  ForwardFlops flops{2.0 * work.in_blocks, 0.0, 2.0 * work.outside};
  // q k^T and the product with v.
  for (const AttentionWork& call : work.attention)
    flops.attention +=
        4.0 * to_double(call.times) * call.features * seen_positions(call, to_double(sequence));
  return flops;
}

/// Bytes of memory that norms, activations and additions move per micro batch, forward and
/// backward; each counted once per read or write.
double elementwise_bytes(const LocalModel& local, double forwards) {
  // Forward: a norm with its addition (2 reads, 2 writes) and an activation; backward: the norm
  // made again (2), its backward (3 reads, 1 write), activation made again and backward.
  const double elements = forwards * (4.0 * local.pass->norms + 2.0 * local.pass->activations) +
                          6.0 * local.pass->norms + 5.0 * local.pass->activations;
  return elements * static_cast<double>(local.element_bytes);
}

double optimizer_seconds(const LocalModel& local, const Machine& machine) {
  double bytes = 4.0;  // the norm reads gradients
  switch (local.work.optimizer) {
    case OptimizerState::kAdam: bytes += 28.0; break;         // reads 4 float32, writes 3
    case OptimizerState::kSgdMomentum: bytes += 20.0; break;  // reads 3, writes 2
    case OptimizerState::kSgd: bytes += 12.0; break;
  }
  if (local.plan.dtype != DType::kFloat32) bytes += 2.0;
  return static_cast<double>(local.all().sharded) * bytes / machine.memory_bytes_per_second;
}

/// Ranks from one member of a dim's group to the next, and members.
struct Group {
  std::int64_t stride = 1;
  int size = 1;
};

Group group_of(const std::string& dim, const MeshSizes& mesh) {
  if (dim == "tp") return {1, mesh.tp};
  if (dim == "cp") return {mesh.tp, mesh.cp};
  if (dim == "fsdp") return {std::int64_t{mesh.tp} * mesh.cp, mesh.fsdp};
  if (dim == "dp+fsdp") return {std::int64_t{mesh.tp} * mesh.cp, mesh.dp * mesh.fsdp};
  if (dim == "dp+cp") return {mesh.tp, mesh.dp * mesh.cp};
  if (dim == "fsdp+cp") return {mesh.tp, mesh.fsdp * mesh.cp};
  if (dim == "dp+fsdp+cp") return {mesh.tp, mesh.dp * mesh.fsdp * mesh.cp};
  return {std::int64_t{mesh.tp} * mesh.cp * mesh.fsdp, mesh.dp};
}

}  // namespace

double traffic_seconds(const Traffic& traffic, const MeshSizes& mesh, const Topology& topology) {
  Group group = group_of(traffic.mesh_dim, mesh);
  if (traffic.size > 0) group = {group.stride * traffic.stride, traffic.size};
  if (group.size == 1) return 0.0;
  const std::int64_t members =
      std::clamp<std::int64_t>(topology.ranks_per_host / group.stride, 1, group.size);
  const auto calls = static_cast<double>(traffic.calls);
  const auto bytes = static_cast<double>(traffic.bytes_sent);
  // Every rank sends its peers equal parts at once; those on its host and the others in parallel.
  const double inside = static_cast<double>(members - 1) / static_cast<double>(group.size - 1);
  const double intra = inside * bytes / topology.intra_host.bytes_per_second;
  const double inter = (1.0 - inside) * bytes / topology.inter_host.bytes_per_second;
  const double latency = members == group.size ? topology.intra_host.latency_seconds
                                               : topology.inter_host.latency_seconds;
  const double rounds = traffic.kind == CollectiveKind::kAllReduce ? 2.0 : 1.0;
  return std::max(intra, inter) + calls * rounds * latency;
}

StepTime estimate_step_time(const LocalModel& local, const std::vector<Traffic>& traffic,
                            const Machine& machine) {
  const auto micro = static_cast<double>(micro_batches(local.mesh, local.work));
  const double tokens = micro * static_cast<double>(local.rows);
  const ForwardFlops flops = flops_of(local.pass->work, local.work.sequence);
  const ActivationCheckpoint mode = local.plan.checkpointing;
  // Backward is twice a forward; a checkpointed layer runs forward once more.
  const double matmul_passes = mode == ActivationCheckpoint::kNone ? 3.0 : 4.0;
  // Attention's backward makes the scores again: 5 products where forward has 2.
  const double attention_passes = mode == ActivationCheckpoint::kFull ? 4.5 : 3.5;
  const double rate = machine.flops(local.plan.dtype);

  StepTime time;
  time.matmul = tokens * (flops.matmul * matmul_passes + 3.0 * flops.output) / rate;
  const AttentionSizes sizes = attention_sizes(local.model, local.mesh, local.plan, local.work);
  const double busiest = busiest_share(sizes, local.plan.context_parallel);
  time.attention =
      tokens * flops.attention * attention_passes * busiest / (rate * machine.attention_efficiency);
  if (local.mesh.cp > 1) time.attention_balance = 1.0 / busiest;
  time.memory =
      micro * elementwise_bytes(local, matmul_passes - 2.0) / machine.memory_bytes_per_second;
  time.optimizer = optimizer_seconds(local, machine);
  const double computing = time.matmul + time.attention + time.memory;

  double hideable = 0.0;
  for (const Traffic& t : traffic) {
    const double seconds = traffic_seconds(t, local.mesh, machine.topology);
    time.communication += seconds;
    if (t.can_overlap) hideable += seconds;
  }
  const double hidden = std::min(hideable * machine.overlap, computing);
  time.exposed = time.communication - hidden;
  time.total = computing + time.optimizer + time.exposed;

  const double step_tokens =
      static_cast<double>(local.work.global_batch) * static_cast<double>(local.work.sequence);
  time.tokens_per_second = step_tokens / time.total;
  const ForwardFlops needed = flops_of(local.pass->whole_work, local.work.sequence);
  const double step_flops = 3.0 * step_tokens * (needed.matmul + needed.attention + needed.output);
  time.utilization = step_flops / (time.total * machine.peak_flops(local.plan.dtype) *
                                   static_cast<double>(local.mesh.ranks()));
  return time;
}

}  // namespace meshloom::planner
