// SPDX-License-Identifier: Apache-2.0
// Ranks with and without samples meet in one order: what every rank asks of every group is written
// down and compared, for random models, meshes and numbers of samples; ranks of cp share theirs.
#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "daemon/parallel/data_parallel.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/shape.h"
#include "tests/support/draws.h"
#include "tests/support/recording_group.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/parallel/trainable_models.h"

namespace meshloom::parallel {
namespace {

using test::Skips;
using test::Trainable;
using test::Transformer;
using testing::RecordingGroup;

struct Draw {
  explicit Draw(std::uint64_t seed) : model_seed(seed) {
    std::mt19937_64 random(seed * 7919);
    constexpr int kMeshes[][2] = {{1, 2}, {1, 3}, {1, 4}, {2, 2}, {1, 5}, {2, 3}, {3, 2}, {4, 1}};
    const auto& mesh = kMeshes[random() % std::size(kMeshes)];
    dp = mesh[0];
    fsdp = mesh[1];
    skips = random() % 2 == 0;
    if (!skips && dp * fsdp <= 4 && random() % 2 == 0) cp = 2 + static_cast<int>(random() % 2);
    reshard = random() % 4 != 0;
    for (std::size_t k = 0; k < 1 + random() % 3; ++k)
      samples.push_back(static_cast<std::int64_t>(1 + random() % static_cast<unsigned>(dp * fsdp)));
  }

  std::unique_ptr<Trainable> make(ExecutionContext& context, comm::ProcessGroup& sequence) const {
    std::mt19937_64 random(model_seed);
    if (skips) return std::make_unique<Skips>(context, random);
    return std::make_unique<Transformer>(context, random, sequence);
  }
  /// Ranks over which parameters are sharded: those of cp too, if any are.
  int shards() const { return fsdp > 1 ? fsdp * cp : 1; }
  int copies() const { return dp * fsdp * cp / shards(); }

  std::uint64_t model_seed;
  int dp, fsdp, cp = 1;
  bool skips, reshard;
  std::vector<std::int64_t> samples;  ///< by micro batch, at most one per ranks that share samples
};

/// What a rank brings home: the lines of its groups under names that its peers share, and the sum
/// of squares of every parameter's gradient (one replica, all shards).
struct RankResult {
  std::map<std::string, std::vector<std::string>> lines;
  std::vector<double> squares;
};

/// Copies are `shards` ranks apart; ranks of one copy are neighbours.
std::unique_ptr<RecordingGroup> recorded(comm::ProcessGroup& world, int copies, int shards,
                                         bool of_copies, const std::string& name) {
  std::vector<std::vector<int>> parts;
  for (int p = 0; p < (of_copies ? shards : copies); ++p) {
    parts.emplace_back();
    for (int i = 0; i < (of_copies ? copies : shards); ++i)
      parts.back().push_back(of_copies ? i * shards + p : p * shards + i);
  }
  return std::make_unique<RecordingGroup>(world.split(parts, name));
}

/// Neighbours share a sequence.
std::unique_ptr<comm::ProcessGroup> sequence_group(comm::ProcessGroup& world, int cp) {
  std::vector<std::vector<int>> parts(static_cast<std::size_t>(world.size() / cp));
  for (int r = 0; r < world.size(); ++r) parts[static_cast<std::size_t>(r / cp)].push_back(r);
  return world.split(parts, "sequence");
}

void fill(const Tensor& to, const Tensor& whole, std::optional<int> dim, int size, int rank) {
  Tensor part = whole;
  if (dim) {
    const planner::ShardRange range = planner::shard_range(whole.shape()[*dim], size, rank);
    part = ops::slice(whole, *dim, range.begin, range.end);
  }
  if (to.numel() > 0) copy_into(to.detach(), ops::contiguous(part));
}

double sum_of_squares(const Tensor& gradient) {
  double sum = 0.0;
  if (gradient)
    for (const double value : gradient.to_vector()) sum += value * value;
  return sum;
}

void train(DataParallel& data_parallel, Trainable& model, const Draw& draw, int ranks, int rank) {
  data_parallel.begin_step();
  for (std::size_t k = 0; k < draw.samples.size(); ++k) {
    const bool last = k + 1 == draw.samples.size();
    const auto range = planner::shard_range(draw.samples[k], ranks, rank);
    if (range.size() == 0) {
      data_parallel.take_part(last);
      continue;
    }
    data_parallel.begin_forward(true);
    const Tensor loss = model.loss(range.begin, range.size());
    data_parallel.begin_backward(last);
    autograd::backward(loss);
    data_parallel.end_backward();
  }
  // As a validation does.
  const NoGradGuard no_grad(model.parameters()[0].parameter->value.context());
  if (planner::shard_range(draw.samples[0], ranks, rank).size() == 0)
    return data_parallel.take_part_forward();
  data_parallel.begin_forward(false);
  model.loss(0, 1);
  data_parallel.end_forward();
}

RankResult run_rank(comm::ProcessGroup& world, const Draw& draw, int copies, int shards, int cp) {
  testing::TestContext context;
  const auto sequence = sequence_group(world, cp);
  const auto model = draw.make(context, *sequence);
  const auto gather = recorded(world, copies, shards, false, "gathers");
  const auto reduce = recorded(world, copies, shards, false, "sums");
  const auto replicas = recorded(world, copies, shards, true, "replicas");
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) all[static_cast<std::size_t>(r)] = r;
  RecordingGroup data(world.split({all}, "data"));

  std::vector<DataParallelInput> inputs;
  std::vector<Tensor> values;
  for (const nn::NamedParameter& p : model->parameters()) {
    inputs.push_back({{p.name, p.parameter->value.shape(), {}}, p.parameter});
    values.push_back(zeros(context, p.parameter->value.shape(), DType::kFloat32));
    copy_into(values.back(), p.parameter->value.detach());
  }
  FullyShardOptions options;
  options.reshard_after_forward = draw.reshard;
  const auto data_parallel = make_data_parallel(
      context, {&data, gather.get(), reduce.get(), replicas.get()}, inputs, options);
  for (std::size_t i = 0; i < values.size(); ++i)
    fill(data_parallel->parameters()[i].parameter->value, values[i], data_parallel->shard_dim(i),
         shards, gather->rank());
  train(*data_parallel, *model, draw, world.size() / cp, world.rank() / cp);

  RankResult result;
  const int row = world.rank() / shards, column = world.rank() % shards;
  result.lines[fmt::format("gathers of {}", row)] = gather->lines();
  result.lines[fmt::format("sums of {}", row)] = reduce->lines();
  result.lines[fmt::format("replicas of {}", column)] = replicas->lines();
  result.lines["data"] = data.lines();
  for (std::size_t i = 0; i < values.size(); ++i) {
    double sum = sum_of_squares(data_parallel->parameters()[i].parameter->value.grad());
    if (data_parallel->shard_dim(i))
      gather->all_reduce(make_view(&sum, DType::kFloat64, {1}), comm::ReduceOp::kSum)->wait_host();
    result.squares.push_back(sum);
  }
  return result;
}

std::vector<RankResult> run(const Draw& draw, int copies, int shards, int cp) {
  std::vector<RankResult> results(static_cast<std::size_t>(copies * shards));
  testing::run_ranks(copies * shards, [&](comm::ProcessGroup& world) {
    results[static_cast<std::size_t>(world.rank())] = run_rank(world, draw, copies, shards, cp);
  });
  return results;
}

TEST(CollectiveOrder, IsTheSameWithAndWithoutSamples) {
  const testing::Draws draws = testing::draws_from_environment(60);
  for (std::uint64_t seed = draws.first_seed; seed < draws.first_seed + draws.count; ++seed) {
    const Draw draw(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}, mesh dp {} fsdp {} cp {}, samples {}", seed,
                             draw.skips ? "skips" : "transformer", draw.dp, draw.fsdp, draw.cp,
                             fmt::join(draw.samples, ", ")));
    const std::vector<RankResult> ranks = run(draw, draw.copies(), draw.shards(), draw.cp);
    std::map<std::string, const std::vector<std::string>*> first;
    for (const RankResult& rank : ranks)
      for (const auto& [group, lines] : rank.lines) {
        const auto [found, is_new] = first.emplace(group, &lines);
        if (!is_new) {
          EXPECT_EQ(*found->second, lines) << group;
        }
      }
    EXPECT_FALSE(first.at("data")->empty());
    if (draw.fsdp > 1) {
      EXPECT_FALSE(first.at("gathers of 0")->empty());
      EXPECT_FALSE(first.at("sums of 0")->empty());
    }
    const RankResult alone = run(draw, 1, 1, 1)[0];
    for (const RankResult& rank : ranks)
      for (std::size_t i = 0; i < alone.squares.size(); ++i)
        EXPECT_NEAR(rank.squares[i], alone.squares[i], 1e-4 * (1.0 + alone.squares[i])) << i;
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace meshloom::parallel
