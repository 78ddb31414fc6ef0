// SPDX-License-Identifier: Apache-2.0
// What `rotate: auto` stands for: the cheapest way of moving keys by sizes, mask and hosts alone;
// and `load_balancer: auto` of models with windows.
#pragma once

#include <vector>

#include "planner/estimate/attention_exchange.h"
#include "planner/estimate/workload.h"

namespace meshloom::planner {

/// The ranks of a sequence are at these places: `stride` ranks apart, on hosts of `ranks_per_host`.
struct SequencePlace {
  int stride = 1;
  int ranks_per_host = 1;
};

/// RotateCost is the cost of one way, forward and backward.
struct RotateCost {
  Rotate rotate = Rotate::kPull;
  int ulysses_degree = 0;          ///< of kUlysses
  double attention_seconds = 0.0;  ///< on the rank that computes most
  double communication_seconds = 0.0;
  std::int64_t bytes = 0;  ///< that a rank gets from others

  double seconds() const { return attention_seconds + communication_seconds; }
};

/// Returns all ways (ulysses with degrees up to the number of heads), the cheapest first; of two
/// that cost the same pull, allgather, alltoall, ulysses in this order, and the larger degree. The
/// rates behind the seconds are fixed (those of a socket of a host with a network,
/// configs/clusters/cpu_cluster.yaml) and nothing is measured, so that the choice, which decides
/// the order of sums, is the same in every run. Nothing counts as hidden behind computing, since
/// ranks on CPUs move their bytes themselves.
std::vector<RotateCost> rotate_costs(const AttentionSizes& sizes, const SequencePlace& place);

/// Returns the sizes of an attention call of a micro batch on a rank of the mesh. The documents of
/// batches are not known; a row counts as one.
AttentionSizes attention_sizes(const ModelShape& model, const MeshSizes& mesh,
                               const ParallelPlan& plan, const Workload& work);

/// Returns what the rank that computes most has of the call's attention, over the mean of all
/// ranks: balance of the mask, and query heads that the neighbours of Ulysses cannot share evenly.
/// 1 if there is one rank.
double busiest_share(const AttentionSizes& sizes, const ContextParallelPlan& plan);

/// Returns `plan` with what it leaves open for cp: the balancer kMaskArea if chosen_balancer says
/// so for the windows of the model's layers (else it stays kAuto, since batches may have
/// documents), and the cheapest way of moving keys. Itself if cp has one rank.
ParallelPlan resolve_context_parallel(const ParallelPlan& plan, const ModelShape& model,
                                      const MeshSizes& mesh, const Workload& work,
                                      int ranks_per_host);

}  // namespace meshloom::planner
