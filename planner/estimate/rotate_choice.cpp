// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/rotate_choice.h"

#include <algorithm>

#include "kernels/base/integer_math.h"
#include "planner/attention/balance.h"
#include "planner/redistribute/topology.h"

namespace meshloom::planner {
namespace {

// Of one rank.
constexpr Link kInsideHost{2e-6, 2.5e10};
constexpr Link kBetweenHosts{1e-5, 1.1e10};
constexpr double kCopyBytesPerSecond = 1e11;
constexpr double kFloat32Flops = 1.25e12;
constexpr double kBFloat16Flops = 4e12;
/// Products of attention: two forward, five backward.
constexpr double kProducts = 7.0;

double seconds_of(const AttentionExchange& exchange, const SequencePlace& place) {
  const int near =
      std::clamp(place.ranks_per_host / (exchange.stride * place.stride), 1, exchange.size);
  const bool one_host = near == exchange.size;
  const double bytes = static_cast<double>(exchange.calls * exchange.elements) *
                       static_cast<double>(exchange.element_bytes);
  // A ring is as fast as its slowest link; else a rank hears from all others at once.
  const double inside = exchange.is_ring ? (one_host ? 1.0 : 0.0)
                                         : static_cast<double>(near - 1) / (exchange.size - 1);
  const double latency = one_host ? kInsideHost.latency_seconds : kBetweenHosts.latency_seconds;
  return std::max(inside * bytes / kInsideHost.bytes_per_second,
                  (1.0 - inside) * bytes / kBetweenHosts.bytes_per_second) +
         (one_host && exchange.in_place ? 0.0 : exchange.copies) * bytes / kCopyBytesPerSecond +
         static_cast<double>(exchange.calls) * latency;
}

RotateCost cost_of(const AttentionSizes& sizes, const SequencePlace& place, Rotate rotate,
                   int degree) {
  RotateCost cost{rotate, rotate == Rotate::kUlysses ? degree : 0, 0.0, 0.0, 0};
  const ContextParallelPlan plan{LoadBalancer::kAuto, rotate, cost.ulysses_degree};
  const auto tokens = static_cast<double>(sizes.tokens);
  const double pairs = sizes.pairs > 0.0 ? sizes.pairs : 0.5 * tokens * tokens;
  const double heads = static_cast<double>(sizes.heads) / sizes.ranks * busiest_share(sizes, plan);
  const double rate = sizes.element_bytes == 2 ? kBFloat16Flops : kFloat32Flops;
  cost.attention_seconds = kProducts *
                           static_cast<double>(sizes.rows * (sizes.dims + sizes.dims_v)) * pairs *
                           heads / rate;
  for (const AttentionExchange& exchange : attention_exchanges(sizes, plan)) {
    cost.communication_seconds += seconds_of(exchange, place);
    cost.bytes += exchange.calls * exchange.elements * exchange.element_bytes;
  }
  return cost;
}

LoadBalancer balancer_of_layers(const ModelShape& model, const MeshSizes& mesh,
                                const Workload& work) {
  if (!model.causal || model.windowed_layers == 0) return LoadBalancer::kHeadTail;
  std::vector<LayerWindow> layers{{model.window - 1, model.windowed_layers}};
  if (model.layers > model.windowed_layers)
    layers.push_back({-1, model.layers - model.windowed_layers});
  return chosen_balancer(work.sequence, mesh.cp, {{.is_causal = true}, nullptr}, layers);
}

/// The mean over layers, of which those with a window see the keys just before each of a rank's
/// stretches, and compute evenly.
void add_windows(const ModelShape& model, std::int64_t stretches, AttentionSizes& sizes) {
  const auto tokens = static_cast<double>(sizes.tokens);
  const auto window = static_cast<double>(model.window);
  const double windowed =
      static_cast<double>(model.windowed_layers) / static_cast<double>(model.layers);
  const double pairs = tokens * seen_positions(model, sizes.tokens);
  const double others = tokens * (sizes.ranks - 1) / sizes.ranks;
  if (others > 0.0)
    sizes.seen_share =
        (1.0 - windowed) * sizes.seen_share +
        windowed * std::min(sizes.seen_share, static_cast<double>(stretches) * window / others);
  const double whole_pairs = (1.0 - windowed) * 0.5 * tokens * tokens;
  sizes.balance = pairs / (whole_pairs / sizes.balance + (pairs - whole_pairs));
  sizes.pairs = pairs;
}

}  // namespace

std::vector<RotateCost> rotate_costs(const AttentionSizes& sizes, const SequencePlace& place) {
  std::vector<RotateCost> costs;
  for (const Rotate rotate : {Rotate::kPull, Rotate::kAllGather, Rotate::kAllToAll})
    costs.push_back(cost_of(sizes, place, rotate, 1));
  // With a degree beyond the heads some ranks would have none.
  for (int degree = static_cast<int>(std::min<std::int64_t>(sizes.ranks, sizes.heads)); degree > 1;
       --degree)
    if (sizes.ranks % degree == 0) costs.push_back(cost_of(sizes, place, Rotate::kUlysses, degree));
  std::stable_sort(costs.begin(), costs.end(), [](const RotateCost& a, const RotateCost& b) {
    return a.seconds() < b.seconds();
  });
  return costs;
}

AttentionSizes attention_sizes(const ModelShape& model, const MeshSizes& mesh,
                               const ParallelPlan& plan, const Workload& work) {
  AttentionSizes sizes{.rows = work.micro_batch,
                       .tokens = work.sequence,
                       .heads = divide_up<std::int64_t>(model.heads, mesh.tp),
                       .kv_heads = divide_up<std::int64_t>(model.kv_heads, mesh.tp),
                       .dims = model.head_dim,
                       .dims_v = model.head_dim,
                       .element_bytes = plan.dtype == DType::kFloat32 ? 4 : 2,
                       .ranks = mesh.cp};
  if (!model.causal) {
    sizes.pairs = static_cast<double>(work.sequence) * static_cast<double>(work.sequence);
    sizes.seen_share = 1.0;
  }
  const LoadBalancer balancer = plan.context_parallel.load_balancer;
  const bool neighbours = balancer == LoadBalancer::kNone;
  if (model.causal && neighbours) {
    // Rank r sees the keys of the r ranks before it; the last computes most.
    sizes.seen_share = 0.5;
    sizes.balance = mesh.cp / (2.0 * mesh.cp - 1.0);
  }
  // How many stretches of a sequence a rank holds.
  std::int64_t stretches = neighbours ? 1 : 2;
  if (balancer == LoadBalancer::kMaskArea) stretches = kAreaChunks;
  if (model.windowed_layers > 0 && model.window < work.sequence)
    add_windows(model, stretches, sizes);
  return sizes;
}

double busiest_share(const AttentionSizes& sizes, const ContextParallelPlan& plan) {
  int degree = 1;
  if (plan.rotate == Rotate::kUlysses)
    degree = plan.ulysses_degree == 0 ? sizes.ranks : plan.ulysses_degree;
  // Neighbours that exchange heads have the places of all of them, evenly.
  const double balance = sizes.ranks > degree ? sizes.balance : 1.0;
  const auto heads = static_cast<double>(divide_up<std::int64_t>(sizes.heads, degree));
  return heads * degree / static_cast<double>(sizes.heads) / balance;
}

ParallelPlan resolve_context_parallel(const ParallelPlan& plan, const ModelShape& model,
                                      const MeshSizes& mesh, const Workload& work,
                                      int ranks_per_host) {
  if (mesh.cp == 1) return plan;
  ParallelPlan resolved = plan;
  if (plan.context_parallel.load_balancer == LoadBalancer::kAuto &&
      balancer_of_layers(model, mesh, work) == LoadBalancer::kMaskArea)
    resolved.context_parallel.load_balancer = LoadBalancer::kMaskArea;
  if (plan.context_parallel.rotate != Rotate::kAuto) return resolved;
  const RotateCost best =
      rotate_costs(attention_sizes(model, mesh, resolved, work), {mesh.tp, ranks_per_host}).front();
  resolved.context_parallel.rotate = best.rotate;
  resolved.context_parallel.ulysses_degree = best.ulysses_degree;
  return resolved;
}

}  // namespace meshloom::planner
