// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include "planner/redistribute/planner.h"
#include "tests/bench/bench.h"

namespace meshloom::bench {
namespace {

using planner::CostModel;
using planner::DTensorSpec;
using planner::MeshPtr;
using planner::Placement;
using planner::Placements;
using planner::PlannerKind;
using planner::RedistributeOptions;
using planner::SpecPtr;

struct PlanOptions {
  int pairs = 300;
  int repeats = 5;
  int most_dims = 4;
  int tensor_dims = 3;
  unsigned seed = 1;
};

struct Pair {
  SpecPtr from, to;
};

int draw(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

SpecPtr draw_layout(std::mt19937& random, const MeshPtr& mesh, const Shape& shape, bool partial,
                    bool orders) {
  Placements placements;
  for (int m = 0; m < mesh->ndim(); ++m) {
    const int kind = draw(random, 0, partial ? 5 : 4);
    placements.push_back(kind == 0   ? Placement::replicate()
                         : kind == 5 ? Placement::partial_of(planner::PartialOp::kSum)
                                     : Placement::shard(draw(random, 0, shape.size() - 1)));
  }
  planner::ShardOrder order;
  for (int d = 0; orders && d < shape.size(); ++d) {
    planner::DimShardOrder entry{d, {}};
    for (int m = 0; m < mesh->ndim(); ++m)
      if (placements[static_cast<std::size_t>(m)] == Placement::shard(d))
        entry.mesh_dims.push_back(m);
    std::shuffle(entry.mesh_dims.begin(), entry.mesh_dims.end(), random);
    if (!entry.mesh_dims.empty()) order.push_back(std::move(entry));
  }
  return std::make_shared<const DTensorSpec>(mesh, placements, shape, order);
}

/// Layouts of a large and of a small tensor, a quarter of them in shard orders of their own.
std::vector<Pair> draw_pairs(const PlanOptions& options, int mesh_dims) {
  std::mt19937 random(options.seed);
  std::vector<planner::MeshDim> dims;
  for (int m = 0; m < mesh_dims; ++m) dims.push_back({"", m % 2 == 0 ? 4 : 2});
  const auto mesh = std::make_shared<const planner::MeshLayout>(dims);
  std::vector<Pair> pairs;
  for (int i = 0; i < options.pairs; ++i) {
    Shape shape;
    for (int d = 0; d < options.tensor_dims; ++d) shape.push_back(i % 2 == 0 ? 64 : 1000);
    const bool orders = i % 4 == 3;
    pairs.push_back({draw_layout(random, mesh, shape, true, orders),
                     draw_layout(random, mesh, shape, false, orders)});
  }
  return pairs;
}

nlohmann::ordered_json summary(const std::vector<double>& seconds) {
  double total = 0.0;
  for (const double value : seconds) total += value;
  const auto milliseconds = [](double value) { return std::round(value * 1e7) / 1e4; };
  return {{"mean_ms", milliseconds(total / static_cast<double>(seconds.size()))},
          {"p50_ms", milliseconds(percentile(seconds, 0.5))},
          {"p99_ms", milliseconds(percentile(seconds, 0.99))},
          {"max_ms", milliseconds(percentile(seconds, 1.0))}};
}

/// Seconds of each plan, the best of some repeats.
std::vector<double> time_plans(const std::vector<Pair>& pairs, const RedistributeOptions& options,
                               int repeats) {
  std::vector<double> seconds;
  for (const Pair& pair : pairs) {
    double best = 1e9;
    for (int i = 0; i < repeats; ++i) {
      const Clock::time_point start = Clock::now();
      planner::plan_redistribute(pair.from, pair.to, options);
      best = std::min(best, seconds_since(start));
    }
    seconds.push_back(best);
  }
  return seconds;
}

/// Microseconds of a plan that the cache has, layouts in turn.
double time_hits(const std::vector<Pair>& pairs, const PlanOptions& options) {
  planner::PlanCache cache;
  for (const Pair& pair : pairs) cache.plan(pair.from, pair.to);
  double best = 1e9;
  std::size_t steps = 0;
  constexpr int kRounds = 200;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    const Clock::time_point start = Clock::now();
    for (int round = 0; round < kRounds; ++round)
      for (const Pair& pair : pairs) steps += cache.plan(pair.from, pair.to).steps.size();
    best = std::min(best, seconds_since(start) / kRounds / static_cast<double>(pairs.size()));
  }
  return steps > 0 ? best * 1e6 : 0.0;
}

}  // namespace

int run_plan_bench(int argc, char** argv) {
  PlanOptions options;
  CLI::App app("Time to plan redistributions, without and with the cache");
  app.add_option("--pairs", options.pairs, "pairs of layouts for each mesh")
      ->check(CLI::PositiveNumber);
  app.add_option("--repeats", options.repeats, "the best of so many counts")
      ->check(CLI::PositiveNumber);
  app.add_option("--mesh-dims", options.most_dims, "meshes of 1 to so many dims")
      ->check(CLI::Range(1, 6));
  app.add_option("--tensor-dims", options.tensor_dims, "dims of the tensor")
      ->check(CLI::Range(1, 8));
  app.add_option("--seed", options.seed, "seed of the layouts");
  CLI11_PARSE(app, argc, argv);

  nlohmann::ordered_json result{{"benchmark", "plan"}, {"pairs", options.pairs}};
  for (int dims = 1; dims <= options.most_dims; ++dims) {
    const std::vector<Pair> pairs = draw_pairs(options, dims);
    nlohmann::ordered_json& entry = result[fmt::format("mesh_{}d", dims)];
    RedistributeOptions chosen;
    entry["bytes"] = summary(time_plans(pairs, chosen, options.repeats));
    chosen.cost_model = CostModel::kUnit;
    entry["unit"] = summary(time_plans(pairs, chosen, options.repeats));
    chosen.planner = PlannerKind::kGreedy;
    entry["greedy"] = summary(time_plans(pairs, chosen, options.repeats));
    entry["cached_us"] = std::round(time_hits(pairs, options) * 1e4) / 1e4;
  }
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace meshloom::bench
