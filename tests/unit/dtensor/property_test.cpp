// SPDX-License-Identifier: Apache-2.0
// Random programs on random meshes against one rank: values, gradients, layouts, counts.
//
// MESHLOOM_TEST_DRAWS is how many programs are drawn (default 1000), MESHLOOM_TEST_SEED the number
// of the first: a failure names its own, to be run alone with MESHLOOM_TEST_DRAWS=1. A soak:
//   MESHLOOM_TEST_DRAWS=100000 unit_dtensor --gtest_filter='LayoutProperty.*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "daemon/dtensor/distributed_engine.h"
#include "daemon/tensor/autograd/backward.h"
#include "kernels/base/error.h"
#include "tests/support/draws.h"
#include "tests/support/partial_share.h"
#include "tests/support/random_rows.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/dtensor/global_values.h"
#include "tests/unit/dtensor/random_program.h"

namespace meshloom::dtensor {
namespace {

using planner::DTensorSpec;
using planner::PartialOp;
using planner::Placement;
using planner::SpecPtr;
using Counts = std::map<std::string, std::uint64_t>;

/// What a rank holds of a tensor at the end; no spec where there is none.
struct Held {
  SpecPtr spec;
  Shape shape;
  std::vector<double> values;
};

struct RankResult {
  std::vector<Held> results, grads;
  Counts forward, backward;
  std::string error;
  bool refused = false;  ///< the error is that the arguments do not go together
};

struct Draw {
  std::uint64_t seed = 0;
  planner::MeshPtr mesh;
  Program program;
  std::vector<SpecPtr> leaf_specs;
  std::vector<std::vector<double>> results,
      grads;  ///< of one rank; grads empty where there is none
  std::vector<RankResult> ranks;

  std::string to_string() const {
    std::string text =
        fmt::format("MESHLOOM_TEST_SEED={} on mesh {}\n", seed, planner::to_string(*mesh));
    for (std::size_t i = 0; i < leaf_specs.size(); ++i)
      text += fmt::format("  x{} is {}\n", i, planner::to_string(*leaf_specs[i]));
    return text + program.to_string();
  }
};

// --- Drawing

int pick(std::mt19937_64& rng, int low, int high) {
  return low + static_cast<int>(rng() % static_cast<std::uint64_t>(high - low + 1));
}

planner::MeshPtr random_mesh(std::mt19937_64& rng, int ranks) {
  std::vector<int> sizes;
  int rest = ranks;
  while (sizes.size() < 2 && rest > 1 && pick(rng, 0, 2) > 0) {
    int size = pick(rng, 1, rest);
    while (rest % size != 0) --size;
    sizes.push_back(size);
    rest /= size;
  }
  sizes.push_back(rest);
  std::vector<planner::MeshDim> dims;
  for (const int size : sizes) dims.push_back({"", size});
  return std::make_shared<const planner::MeshLayout>(dims);
}

/// Any lists, the same in every row of a drawn dim or not.
planner::DimOrderPtr random_lists(std::mt19937_64& rng, const planner::Placements& placements,
                                  const std::vector<planner::DimOrderPtr>& orders,
                                  const Shape& shape, int dim, int parts) {
  const int row_dim = pick(rng, 0, shape.size() - 1);
  const bool by_row = shape[row_dim] > 0 && pick(rng, 0, 3) > 0 &&
                      test::may_order_by_rows(placements, orders, dim, row_dim);
  if (by_row)
    return planner::DimOrder::listed_by_row(
        shape[dim], row_dim, test::random_rows(rng, shape[dim], parts, shape[row_dim]));
  return planner::DimOrder::listed(shape[dim],
                                   test::random_rows(rng, shape[dim], parts, 1).front());
}

/// Now and then the first sharding of a dim is by blocks, as of a fused projection, or by lists, as
/// of a balanced sequence.
std::vector<planner::DimOrderPtr> random_orders(std::mt19937_64& rng,
                                                const planner::MeshLayout& mesh,
                                                const planner::Placements& placements,
                                                const Leaf& leaf,
                                                const planner::ShardOrder& order) {
  if (!order.empty() || pick(rng, 0, 5) > 0) return {};
  std::vector<planner::DimOrderPtr> orders(placements.size());
  std::vector<bool> sharded(static_cast<std::size_t>(leaf.shape.size()), false);
  for (std::size_t d = 0; d < placements.size(); ++d) {
    if (!placements[d].is_shard()) continue;
    const int dim = placements[d].dim;
    if (sharded[static_cast<std::size_t>(dim)]) continue;
    sharded[static_cast<std::size_t>(dim)] = true;
    const int parts = mesh.dim_size(static_cast<int>(d));
    if (parts > 1 && pick(rng, 0, 1) == 0) {
      orders[d] = random_lists(rng, placements, orders, leaf.shape, dim, parts);
      continue;
    }
    int groups = pick(rng, 1, 3);
    if (leaf.shape[dim] % groups != 0) groups = 1;
    orders[d] = planner::DimOrder::blocked(leaf.shape[dim], parts, groups, pick(rng, 1, 3));
  }
  return orders;
}

SpecPtr random_spec(std::mt19937_64& rng, const Draw& draw, const Leaf& leaf) {
  const planner::MeshPtr& mesh = draw.mesh;
  // Sequences go together only in one order: now and then a layout is that of a tensor before.
  for (const SpecPtr& known : draw.leaf_specs)
    if (known->shape() == leaf.shape && known->has_dim_orders() && !known->has_partial() &&
        pick(rng, 0, 3) > 0)
      return known;
  const bool floating = dtype_is_floating(leaf.dtype);
  const PartialOp extreme = pick(rng, 0, 1) ? PartialOp::kMax : PartialOp::kMin;
  const bool extremes = pick(rng, 0, 9) == 0;
  planner::Placements placements;
  std::vector<std::vector<int>> sharding_dims(static_cast<std::size_t>(leaf.shape.size()));
  for (int d = 0; d < mesh->ndim(); ++d) {
    const int kind = pick(rng, 0, 9);
    if (kind < 5 && !leaf.shape.empty()) {
      const int dim = pick(rng, 0, leaf.shape.size() - 1);
      placements.push_back(Placement::shard(dim));
      sharding_dims[static_cast<std::size_t>(dim)].push_back(d);
    } else if (kind >= 8 && floating) {
      const PartialOp sums = pick(rng, 0, 3) ? PartialOp::kSum : PartialOp::kAvg;
      placements.push_back(Placement::partial_of(extremes ? extreme : sums));
    } else {
      placements.push_back(Placement::replicate());
    }
  }
  planner::ShardOrder order;
  if (pick(rng, 0, 4) == 0)
    for (std::size_t dim = 0; dim < sharding_dims.size(); ++dim) {
      if (sharding_dims[dim].empty()) continue;
      std::shuffle(sharding_dims[dim].begin(), sharding_dims[dim].end(), rng);
      order.push_back({static_cast<int>(dim), sharding_dims[dim]});
    }
  return std::make_shared<const DTensorSpec>(mesh, placements, leaf.shape, order,
                                             random_orders(rng, *mesh, placements, leaf, order));
}

std::vector<Tensor> make_leaves(ExecutionContext& context, const Program& program) {
  std::vector<Tensor> leaves;
  for (const Leaf& leaf : program.leaves) {
    leaves.push_back(leaf.make(context));
    if (leaf.requires_grad) leaves.back().set_requires_grad(true);
  }
  return leaves;
}

/// Outputs that take part in a graph, and which they are.
std::vector<std::size_t> differentiable_outputs(const Program& program,
                                                const std::vector<Tensor>& results) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < program.outputs.size(); ++i)
    if (results[program.outputs[i]].requires_grad()) found.push_back(i);
  return found;
}

Tensor output_grad(ExecutionContext& context, const Shape& shape, const std::vector<double>& values,
                   DType dtype) {
  return Leaf{shape, values, dtype, false}.make(context);
}

void run_reference(Draw& draw) {
  testing::TestContext context;
  const std::vector<Tensor> leaves = make_leaves(context, draw.program);
  const std::vector<Tensor> results = draw.program.run(leaves);
  std::vector<Tensor> roots, grads;
  for (const std::size_t i : differentiable_outputs(draw.program, results)) {
    roots.push_back(results[draw.program.outputs[i]]);
    grads.push_back(output_grad(context, roots.back().shape(), draw.program.output_grads[i],
                                roots.back().dtype()));
  }
  if (!roots.empty()) autograd::backward(roots, grads);
  for (const Tensor& t : results) draw.results.push_back(t.to_vector());
  for (const Tensor& t : leaves)
    draw.grads.push_back(t.grad() ? t.grad().to_vector() : std::vector<double>());
}

Draw make_draw(std::uint64_t seed, int ranks) {
  std::mt19937_64 rng(seed);
  rng.discard(16);
  Draw draw;
  draw.seed = seed;
  draw.mesh = random_mesh(rng, ranks);
  draw.program = random_program(rng);
  for (const Leaf& leaf : draw.program.leaves)
    draw.leaf_specs.push_back(random_spec(rng, draw, leaf));
  draw.ranks.resize(static_cast<std::size_t>(ranks));
  run_reference(draw);
  return draw;
}

// --- One rank of many

/// This rank's part of global values; Partial ones as uneven shares.
Tensor local_of_values(ExecutionContext& context, const std::vector<double>& values, DType dtype,
                       const DTensorSpec& spec, const std::vector<int>& at) {
  std::vector<double> mine;
  for (const std::int64_t index : test::held_indices(spec, at)) {
    mine.push_back(test::partial_share(values[static_cast<std::size_t>(index)], index, spec, at));
  }
  return Leaf{spec.local_shape(at), mine, dtype, false}.make(context);
}

Held held(const Tensor& x) {
  if (!x) return {};
  const Tensor& local = x.layout()->local;
  return {x.layout()->spec, local.shape(), local.to_vector()};
}

Counts counts_of(const DeviceMesh& mesh) {
  Counts counts;
  for (const auto& [name, counter] : mesh.counters())
    if (counter.calls > 0) counts[name] = counter.calls;
  return counts;
}

void run_rank(const Draw& draw, comm::ProcessGroup& world, RankResult& result) {
  testing::TestContext context;
  DeviceMesh mesh(world, *draw.mesh);
  planner::PlanCache plans;
  DistributedEngine engine({mesh, plans});
  std::vector<Tensor> leaves;
  for (std::size_t i = 0; i < draw.program.leaves.size(); ++i) {
    const Leaf& leaf = draw.program.leaves[i];
    Tensor local =
        local_of_values(context, leaf.values, leaf.dtype, *draw.leaf_specs[i], mesh.coordinates());
    if (leaf.requires_grad) local.set_requires_grad(true);
    leaves.push_back(with_layout(std::move(local), draw.leaf_specs[i], engine));
  }
  mesh.reset_counters();
  const std::vector<Tensor> results = draw.program.run(leaves);
  result.forward = counts_of(mesh);
  for (const Tensor& t : results) result.results.push_back(held(t));

  std::vector<Tensor> roots, grads;
  for (const std::size_t i : differentiable_outputs(draw.program, results)) {
    const Tensor& y = results[draw.program.outputs[i]];
    const SpecPtr spec = engine.gradient_of(y.layout()->spec);
    roots.push_back(y);
    grads.push_back(with_layout(local_of_values(context, draw.program.output_grads[i], y.dtype(),
                                                *spec, mesh.coordinates()),
                                spec, engine));
  }
  mesh.reset_counters();
  if (!roots.empty()) autograd::backward(roots, grads);
  result.backward = counts_of(mesh);
  for (const Tensor& leaf : leaves) result.grads.push_back(held(leaf.grad()));
}

// --- Comparing

/// The global values of what the ranks hold; an error text where replicas differ.
std::string fold(const planner::MeshLayout& mesh, const std::vector<const Held*>& ranks,
                 std::vector<double>& values) {
  const DTensorSpec& spec = *ranks[0]->spec;
  values.assign(static_cast<std::size_t>(numel(spec.shape())), 0.0);
  std::vector<bool> seen(values.size(), false);
  std::map<std::vector<int>, const Held*> replicas;
  double weight = 1.0;
  bool largest = false, smallest = false;
  for (int d = 0; d < mesh.ndim(); ++d) {
    if (!spec.placement(d).is_partial()) continue;
    const PartialOp op = spec.placement(d).partial;
    if (op == PartialOp::kAvg) weight /= mesh.dim_size(d);
    largest = largest || op == PartialOp::kMax;
    smallest = smallest || op == PartialOp::kMin;
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Held& mine = *ranks[r];
    std::vector<int> at = mesh.coordinates(static_cast<int>(r));
    if (!(*mine.spec == spec)) return "ranks disagree on the layout";
    if (mine.shape != spec.local_shape(at))
      return fmt::format("rank {} holds shape {}", r, to_string(mine.shape));
    const std::vector<std::int64_t> indices = test::held_indices(spec, at);
    for (int d = 0; d < mesh.ndim(); ++d)
      if (spec.placement(d).is_replicate()) at[static_cast<std::size_t>(d)] = 0;
    const auto [replica, first] = replicas.emplace(at, &mine);
    if (!first) {
      if (replica->second->values != mine.values)
        return fmt::format("rank {} differs in a replica", r);
      continue;
    }
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto g = static_cast<std::size_t>(indices[i]);
      const double value = mine.values[i] * weight;
      if (!seen[g])
        values[g] = value;
      else if (largest || smallest)
        values[g] = largest ? std::max(values[g], value) : std::min(values[g], value);
      else
        values[g] += value;
      seen[g] = true;
    }
  }
  return {};
}

std::string compare(const Draw& draw, const std::string& name,
                    const std::vector<const Held*>& ranks, const std::vector<double>& expected) {
  if (!ranks[0]->spec) return expected.empty() ? "" : name + ": ranks have none";
  std::vector<double> values;
  const std::string error = fold(*draw.mesh, ranks, values);
  const std::string where = fmt::format("{} in {}", name, planner::to_string(*ranks[0]->spec));
  if (!error.empty()) return where + ": " + error;
  if (values.size() != expected.size()) return where + ": another number of elements";
  double scale = 1.0;
  for (const double v : expected) scale = std::max(scale, std::abs(v));
  const double tolerance = (draw.program.single_precision ? 1e-4 : 1e-10) * scale;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(values[i] - expected[i]) <= tolerance) &&
        !(std::isnan(values[i]) && std::isnan(expected[i])))
      return fmt::format("{}: element {} is {}, expected {}", where, i, values[i], expected[i]);
  return {};
}

/// All ranks refused alike, and the layouts have orders, which some ops do not mix.
bool may_be_refused(const Draw& draw) {
  bool orders = false, refused = true;
  for (const SpecPtr& spec : draw.leaf_specs) orders = orders || spec->has_dim_orders();
  for (const RankResult& rank : draw.ranks)
    refused = refused && rank.refused && rank.error == draw.ranks[0].error;
  return orders && refused;
}

std::string judge(const Draw& draw) {
  std::string errors;
  for (const RankResult& rank : draw.ranks)
    if (!rank.error.empty()) errors += rank.error + "\n";
  if (!errors.empty()) return errors;
  const auto of_ranks = [&](auto member, std::size_t i) {
    std::vector<const Held*> all;
    for (const RankResult& rank : draw.ranks) all.push_back(&(rank.*member)[i]);
    return all;
  };
  for (std::size_t i = 0; i < draw.results.size(); ++i) {
    const std::string error =
        compare(draw, fmt::format("t{}", i), of_ranks(&RankResult::results, i), draw.results[i]);
    if (!error.empty()) return error;
  }
  for (std::size_t i = 0; i < draw.grads.size(); ++i) {
    const std::string error = compare(draw, fmt::format("gradient of x{}", i),
                                      of_ranks(&RankResult::grads, i), draw.grads[i]);
    if (!error.empty()) return error;
  }
  bool all_replicated = true;
  for (const SpecPtr& spec : draw.leaf_specs) all_replicated = all_replicated && spec->replicated();
  for (const RankResult& rank : draw.ranks) {
    const RankResult& other = draw.ranks[0];
    if (!draw.program.chunked && (rank.forward != other.forward || rank.backward != other.backward))
      return "ranks counted different collectives";
    if (all_replicated && !draw.program.redistributes &&
        !(rank.forward.empty() && rank.backward.empty()))
      return "replicated inputs needed a collective";
  }
  return {};
}

/// Draws that run in one set of threads.
constexpr std::uint64_t kBatch = 50;

void run_batch(std::vector<Draw>& draws, int ranks) {
  testing::run_thread_ranks(ranks, [&](comm::RankRuntime& runtime) {
    const auto world =
        testing::make_test_world(runtime, {"world", std::chrono::seconds(5), nullptr, {}});
    for (Draw& draw : draws) {
      RankResult& result = draw.ranks[static_cast<std::size_t>(runtime.rank())];
      try {
        run_rank(draw, *world, result);
      } catch (const InvalidArgument& e) {
        result.error = e.what();
        result.refused = true;
      } catch (const std::exception& e) {
        result.error = e.what();
        break;  // groups that were left half way serve no further draw
      }
    }
    runtime.bootstrap().barrier();
  });
}

TEST(LayoutProperty, RandomProgramsEqualOneRank) {
  const auto [first, count] = testing::draws_from_environment(1000);
  int failures = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t begin = first; begin < first + count && failures < 5; begin += kBatch) {
    const std::uint64_t end = std::min(begin + kBatch, first + count);
    std::map<int, std::vector<Draw>> by_ranks;
    static constexpr int kRanks[] = {2, 3, 4, 6, 4, 2, 5, 8};
    for (std::uint64_t seed = begin; seed < end; ++seed) {
      const int ranks = kRanks[seed % std::size(kRanks)];
      by_ranks[ranks].push_back(make_draw(seed, ranks));
    }
    for (auto& [ranks, draws] : by_ranks) {
      run_batch(draws, ranks);
      for (const Draw& draw : draws) {
        if (may_be_refused(draw)) {
          ++refused;
          continue;
        }
        const std::string error = judge(draw);
        if (error.empty()) continue;
        ++failures;
        ADD_FAILURE() << error << "\n" << draw.to_string();
        break;
      }
    }
  }
  RecordProperty("refused", static_cast<int>(refused));
  EXPECT_LE(refused, 20 + count / 25);
}

}  // namespace
}  // namespace meshloom::dtensor
