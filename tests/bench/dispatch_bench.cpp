// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "daemon/comm/mesh/local_bootstrap.h"
#include "daemon/dtensor/distributed_engine.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/shape.h"
#include "planner/sharding/propagate.h"
#include "tests/bench/bench.h"

namespace meshloom::bench {
namespace {

using Json = nlohmann::ordered_json;
using dtensor::DistributedEngine;
using planner::Placement;
using planner::Placements;
using planner::SpecPtr;

struct DispatchOptions {
  int rounds = 7;
  int repeats = 2000;
};

/// Microseconds of one call: the best round.
template <typename Fn>
double microseconds(const DispatchOptions& options, int repeats, Fn&& fn) {
  for (int i = 0; i < repeats / 10 + 1; ++i) fn();
  double best = 1e30;
  for (int round = 0; round < options.rounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) fn();
    best = std::min(best, seconds_since(start) * 1e6 / repeats);
  }
  return best;
}

SpecPtr spec_of(const planner::MeshPtr& mesh, Placements placements, const Shape& shape) {
  return std::make_shared<const planner::DTensorSpec>(mesh, std::move(placements), shape);
}

/// Parts of a plain op of a few elements: its memory, its kernel, what autograd records.
void measure_parts(const DispatchOptions& options, Json& result) {
  ExecutionContext context;
  const auto timed = [&](auto&& fn) { return microseconds(options, options.repeats, fn); };
  Tensor x = full(context, {16}, 1.0, DType::kFloat32);
  result["allocate_us"] = timed([&] { context.allocator().allocate(4096).reset(); });
  result["add_kernel_us"] = timed([&] {
    context.backend().binary(context.kernel_context(), kernels::BinaryOp::kAdd, x.view(), x.view(),
                             x.view());
  });
  x.set_requires_grad(true);
  result["view_recorded_us"] = timed([&] { ops::transpose(ops::reshape(x, {4, 4}), 0, 1); }) / 2;
  Tensor scalar = full(context, {1}, 1.0, DType::kFloat32);
  scalar.set_requires_grad(true);
  constexpr int kOps = 10;
  result["mul_forward_backward_us"] = timed([&] {
                                        Tensor y = scalar;
                                        for (int i = 0; i < kOps; ++i) y = ops::mul(y, 2.0);
                                        autograd::backward(y);
                                      }) /
                                      kOps;
}

/// What the layout step adds to an op that was decided before: a mesh of one rank, a small tensor.
void measure_hits(const DispatchOptions& options, comm::ProcessGroup& world, Json& result) {
  ExecutionContext context;
  dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"tp", world.size()}}));
  planner::PlanCache plans;
  DistributedEngine engine({mesh, plans});
  Tensor local = full(context, {16}, 1.0, DType::kFloat32);
  const SpecPtr spec = spec_of(mesh.layout(), {Placement::shard(0)}, {16 * world.size()});
  for (const bool recorded : {false, true}) {
    const Tensor x = with_layout(local, spec, engine);
    const std::string suffix = recorded ? "_recorded" : "";
    const double plain = microseconds(options, options.repeats, [&] { ops::add(local, local); });
    const double laid_out = microseconds(options, options.repeats, [&] { ops::add(x, x); });
    result["add_plain" + suffix + "_us"] = plain;
    result["add_hit" + suffix + "_us"] = laid_out;
    result["layout_step" + suffix + "_us"] = laid_out - plain;
    local.set_requires_grad(true);
  }
  const Tensor flat = with_layout(local.detach(), spec, engine);
  const std::int64_t rows = 4 * world.size();
  result["reshape_hit_us"] = microseconds(options, options.repeats, [&] {
    ops::reshape(flat, {rows, 4});
  });
}

/// Layouts of single ops on larger meshes, decided each time anew.
void measure_decisions(const DispatchOptions& options, Json& result) {
  using planner::OpCall;
  using planner::OpId;
  const auto shard = [](int dim) { return Placement::shard(dim); };
  const Placement whole = Placement::replicate();
  const Placement partial = Placement::partial_of(planner::PartialOp::kSum);
  const auto flat = std::make_shared<const planner::MeshLayout>(planner::MeshLayout({{"tp", 8}}));
  const auto grid =
      std::make_shared<const planner::MeshLayout>(planner::MeshLayout({{"dp", 8}, {"tp", 8}}));
  const std::vector<std::pair<const char*, OpCall>> calls = {
      {"decide_add_us",
       {OpId::kAdd,
        {spec_of(flat, {shard(0)}, {64, 512}), spec_of(flat, {shard(1)}, {64, 512})},
        {}}},
      {"decide_linear_2d_us",
       {OpId::kLinear,
        {spec_of(grid, {shard(0), shard(1)}, {8, 64, 512}),
         spec_of(grid, {whole, shard(0)}, {4096, 512}), spec_of(grid, {whole, whole}, {4096})},
        {}}},
      {"decide_reshape_2d_us",
       {OpId::kReshape, {spec_of(grid, {shard(0), shard(2)}, {8, 64, 512})}, {{8, 64, 8, 64}, {}}}},
      {"decide_add_partial_2d_us",
       {OpId::kAdd,
        {spec_of(grid, {shard(0), partial}, {64, 512}),
         spec_of(grid, {partial, shard(0)}, {64, 512})},
        {}}}};
  for (const auto& [name, call] : calls)
    result[name] = microseconds(options, options.repeats / 20 + 1, [&] {
      planner::PlanCache plans;
      planner::propagate(call, {}, &plans);
    });
}

/// Each op with layouts never seen before: shapes that grow.
void measure_misses(comm::ProcessGroup& world, Json& result) {
  ExecutionContext context;
  dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"dp", 1}, {"tp", world.size()}}));
  planner::PlanCache plans;
  DistributedEngine engine({mesh, plans});
  const Placements placements{Placement::replicate(), Placement::shard(0)};
  const int misses = 200;
  std::vector<Tensor> xs;
  for (int i = 0; i < misses; ++i) {
    const Shape shape{2 * world.size() + i, 4};
    const SpecPtr spec = spec_of(mesh.layout(), placements, shape);
    xs.push_back(with_layout(
        full(context, spec->local_shape(mesh.coordinates()), 1.0, DType::kFloat32), spec, engine));
  }
  std::vector<double> add, transpose;
  for (const Tensor& x : xs) {
    auto start = Clock::now();
    const Tensor y = ops::add(x, x);
    add.push_back(seconds_since(start) * 1e6);
    start = Clock::now();
    ops::transpose(y, 0, 1);
    transpose.push_back(seconds_since(start) * 1e6);
  }
  result["add_miss_us"] = percentile(add, 0.5);
  result["transpose_miss_us"] = percentile(transpose, 0.5);
}

void measure_redistribution(const DispatchOptions& options, comm::ProcessGroup& world,
                            Json& result) {
  ExecutionContext context;
  dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"tp", world.size()}}));
  planner::PlanCache plans;
  const dtensor::MeshContext on_mesh{mesh, plans};
  const Shape shape{16 * world.size()};
  const SpecPtr sharded = spec_of(mesh.layout(), {Placement::shard(0)}, shape);
  const SpecPtr equal = spec_of(mesh.layout(), {Placement::shard(0)}, shape);
  const SpecPtr replicated = spec_of(mesh.layout(), {Placement::replicate()}, shape);
  const Tensor local = full(context, {16}, 1.0, DType::kFloat32);
  result["no_op_redistribute_us"] = microseconds(options, options.repeats, [&] {
    dtensor::redistribute_local(local, {sharded, equal, sharded, sharded}, on_mesh);
  });
  result["shard_to_replicate_us"] = microseconds(options, options.repeats / 4, [&] {
    dtensor::redistribute_local(local, {sharded, replicated, replicated, sharded}, on_mesh);
  });
  const Tensor all = full(context, shape, 1.0, DType::kFloat32);
  result["replicate_to_shard_us"] = microseconds(options, options.repeats, [&] {
    dtensor::redistribute_local(all, {replicated, sharded, sharded, replicated}, on_mesh);
  });
}

}  // namespace

int run_dispatch_bench(int argc, char** argv) {
  CLI::App app("Microseconds an op takes beside its kernel, with and without a layout");
  DispatchOptions options;
  int ranks = 2;
  app.add_option("--ranks", ranks, "forked ranks for what needs several")->check(CLI::Range(1, 64));
  app.add_option("--rounds", options.rounds, "the best round counts");
  app.add_option("--repeats", options.repeats, "calls in a round");
  CLI11_PARSE(app, argc, argv);
  return comm::run_local_ranks(ranks, [&](comm::RankRuntime& runtime) {
    const auto world = runtime.make_world_group();
    Json result{{"benchmark", "dispatch"}, {"ranks", ranks}};
    if (runtime.rank() == 0) {
      const auto alone = comm::make_single_process_group();
      measure_parts(options, result);
      measure_hits(options, *alone, result);
      measure_decisions(options, result);
    }
    runtime.bootstrap().barrier();
    measure_misses(*world, result);
    measure_redistribution(options, *world, result);
    if (runtime.rank() == 0) fmt::print("{}\n", result.dump());
    runtime.bootstrap().barrier();
    return 0;
  });
}

}  // namespace meshloom::bench
