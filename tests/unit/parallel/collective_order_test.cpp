// SPDX-License-Identifier: Apache-2.0
// Ranks with and without samples meet in one order: what every rank asks of every group is written
// down and compared, for random models, meshes and numbers of samples.
#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "daemon/nn/models/model.h"
#include "daemon/parallel/data_parallel.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/norm.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "tests/support/draws.h"
#include "tests/support/random_tensor.h"
#include "tests/support/recording_group.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::parallel {
namespace {

using testing::RecordingGroup;

/// A model as this test needs it: its loss is a sum over samples.
class Trainable {
 public:
  virtual ~Trainable() = default;
  virtual std::vector<nn::NamedParameter> parameters() = 0;
  virtual Tensor loss(std::int64_t first_sample, std::int64_t samples) = 0;
};

constexpr std::int64_t kMostSamples = 9;

class Transformer final : public Trainable {
 public:
  Transformer(ExecutionContext& context, std::mt19937_64& random) {
    nn::ModelConfig config = kinds()[random() % 3];
    config.num_layers = static_cast<std::int64_t>(1 + random() % 6);
    mode_ = static_cast<nn::ActivationCheckpoint>(random() % 3);
    model_ = testing::make_random_model(context, config);
    const auto seed = static_cast<std::uint32_t>(random());
    ids_ = testing::random_ids(context, kMostSamples, 7, config.vocab_size, seed);
    labels_ = testing::random_ids(context, kMostSamples, 7, config.vocab_size, seed + 1);
  }

  std::vector<nn::NamedParameter> parameters() override { return model_->named_parameters(); }

  Tensor loss(std::int64_t first, std::int64_t samples) override {
    nn::Batch batch;
    batch.input_ids = ops::contiguous(ops::slice(ids_, 0, first, first + samples));
    batch.labels = ops::contiguous(ops::slice(labels_, 0, first, first + samples));
    batch.labels_shifted = true;
    nn::ForwardOptions options;
    options.training = true;
    options.first_sample = static_cast<std::uint64_t>(first);
    options.activation_checkpoint = mode_;
    return model_->loss(batch, 0.01f, options);
  }

 private:
  static std::vector<nn::ModelConfig> kinds() {
    return {testing::tiny_gpt2(), testing::tiny_llama(), testing::tiny_bert()};
  }

  nn::ActivationCheckpoint mode_;
  std::unique_ptr<nn::Model> model_;
  Tensor ids_, labels_;
};

/// Block k computes norm_k(x_(k-1) A_k + x_j B_k) with any earlier j: the gradient of B_k makes
/// x_j again from norm_j, so backward touches blocks far before their turn. Some blocks have a
/// parameter that nothing uses.
class Skips final : public Trainable {
 public:
  Skips(ExecutionContext& context, std::mt19937_64& random) {
    const auto blocks = 2 + random() % 9;
    input_ = test::random_tensor(context, {kMostSamples, kWidth}, random, DType::kFloat32);
    add("head.weight", context, {1, kWidth}, random);
    for (std::size_t k = 0; k < blocks; ++k) {
      const std::string prefix = fmt::format("net.{}.", k);
      from_.push_back(k == 0 ? 0 : random() % k);
      add(prefix + "a", context, {kWidth, kWidth}, random);
      add(prefix + "b", context, {kWidth, kWidth}, random);
      add(prefix + "norm", context, {kWidth}, random);
      if (random() % 4 == 0) add(prefix + "unused", context, {kWidth}, random);
    }
  }

  std::vector<nn::NamedParameter> parameters() override {
    std::vector<nn::NamedParameter> named;
    for (auto& [name, parameter] : parameters_) named.push_back({name, parameter.get()});
    return named;
  }

  Tensor loss(std::int64_t first, std::int64_t samples) override {
    const Tensor input = ops::contiguous(ops::slice(input_, 0, first, first + samples));
    std::vector<Tensor> x;
    for (std::size_t k = 0; k < from_.size(); ++k) {
      const std::string prefix = fmt::format("net.{}.", k);
      const Tensor near = ops::linear(k == 0 ? input : x.back(), value(prefix + "a"), Tensor());
      const Tensor far = ops::linear(k == 0 ? input : x[from_[k]], value(prefix + "b"), Tensor());
      x.push_back(ops::rms_norm(ops::add(near, far), value(prefix + "norm"), 1e-5f));
    }
    return ops::sum(ops::linear(x.back(), value("head.weight"), Tensor()));
  }

 private:
  static constexpr std::int64_t kWidth = 10;

  void add(const std::string& name, ExecutionContext& context, const Shape& shape,
           std::mt19937_64& random) {
    auto parameter = std::make_unique<nn::Parameter>();
    parameter->value = test::random_tensor(context, shape, random, DType::kFloat32);
    parameter->value.set_requires_grad(true);
    parameters_.emplace_back(name, std::move(parameter));
  }
  const Tensor& value(const std::string& name) const {
    for (const auto& [n, parameter] : parameters_)
      if (n == name) return parameter->value;
    throw std::logic_error(name);
  }

  Tensor input_;
  std::vector<std::size_t> from_;
  std::vector<std::pair<std::string, std::unique_ptr<nn::Parameter>>> parameters_;
};

struct Draw {
  explicit Draw(std::uint64_t seed) : model_seed(seed) {
    std::mt19937_64 random(seed * 7919);
    constexpr int kMeshes[][2] = {{1, 2}, {1, 3}, {1, 4}, {2, 2}, {1, 5}, {2, 3}, {3, 2}, {4, 1}};
    const auto& mesh = kMeshes[random() % std::size(kMeshes)];
    dp = mesh[0];
    fsdp = mesh[1];
    skips = random() % 2 == 0;
    reshard = random() % 4 != 0;
    for (std::size_t k = 0; k < 1 + random() % 3; ++k)
      samples.push_back(static_cast<std::int64_t>(1 + random() % static_cast<unsigned>(dp * fsdp)));
  }

  std::unique_ptr<Trainable> make(ExecutionContext& context) const {
    std::mt19937_64 random(model_seed);
    if (skips) return std::make_unique<Skips>(context, random);
    return std::make_unique<Transformer>(context, random);
  }

  std::uint64_t model_seed;
  int dp, fsdp;
  bool skips, reshard;
  std::vector<std::int64_t> samples;  ///< by micro batch, at most one per rank
};

/// What a rank brings home: the lines of its groups under names that its peers share, and the sum
/// of squares of every parameter's gradient (one replica, all shards).
struct RankResult {
  std::map<std::string, std::vector<std::string>> lines;
  std::vector<double> squares;
};

std::unique_ptr<RecordingGroup> recorded(comm::ProcessGroup& world, int dp, int fsdp, bool along_dp,
                                         const std::string& name) {
  std::vector<std::vector<int>> parts;
  for (int p = 0; p < (along_dp ? fsdp : dp); ++p) {
    parts.emplace_back();
    for (int i = 0; i < (along_dp ? dp : fsdp); ++i)
      parts.back().push_back(along_dp ? i * fsdp + p : p * fsdp + i);
  }
  return std::make_unique<RecordingGroup>(world.split(parts, name));
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

RankResult run_rank(comm::ProcessGroup& world, const Draw& draw, int dp, int fsdp) {
  ExecutionContext context;
  const auto model = draw.make(context);
  const auto gather = recorded(world, dp, fsdp, false, "gathers");
  const auto reduce = recorded(world, dp, fsdp, false, "sums");
  const auto replicas = recorded(world, dp, fsdp, true, "replicas");
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
         fsdp, gather->rank());
  train(*data_parallel, *model, draw, world.size(), world.rank());

  RankResult result;
  const int row = world.rank() / fsdp, column = world.rank() % fsdp;
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

std::vector<RankResult> run(const Draw& draw, int dp, int fsdp) {
  std::vector<RankResult> results(static_cast<std::size_t>(dp * fsdp));
  testing::run_ranks(dp * fsdp, [&](comm::ProcessGroup& world) {
    results[static_cast<std::size_t>(world.rank())] = run_rank(world, draw, dp, fsdp);
  });
  return results;
}

TEST(CollectiveOrder, IsTheSameWithAndWithoutSamples) {
  const testing::Draws draws = testing::draws_from_environment(60);
  for (std::uint64_t seed = draws.first_seed; seed < draws.first_seed + draws.count; ++seed) {
    const Draw draw(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}, mesh dp {} fsdp {}, samples {}", seed,
                             draw.skips ? "skips" : "transformer", draw.dp, draw.fsdp,
                             fmt::join(draw.samples, ", ")));
    const std::vector<RankResult> ranks = run(draw, draw.dp, draw.fsdp);
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
    const RankResult alone = run(draw, 1, 1)[0];
    for (const RankResult& rank : ranks)
      for (std::size_t i = 0; i < alone.squares.size(); ++i)
        EXPECT_NEAR(rank.squares[i], alone.squares[i], 1e-4 * (1.0 + alone.squares[i])) << i;
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace meshloom::parallel
