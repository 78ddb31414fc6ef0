// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/fully_shard/fully_shard.h"

#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "daemon/nn/models/model.h"
#include "daemon/tensor/autograd/backward.h"
#include "kernels/base/error.h"
#include "tests/support/thread_ranks.h"

namespace meshloom::parallel {
namespace {

nn::ModelConfig tiny_config(bool llama) {
  // Odd sizes everywhere: no dim divides by 2, 3 and 4 alike.
  if (llama)
    return nn::parse_hf_config(
        R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 37,
            "hidden_size": 20, "intermediate_size": 27, "num_hidden_layers": 3,
            "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16,
            "rms_norm_eps": 1e-05, "hidden_act": "silu", "initializer_range": 0.2,
            "tie_word_embeddings": false, "rope_theta": 10000.0})");
  return nn::parse_hf_config(
      R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 61,
          "n_positions": 16, "n_embd": 18, "n_layer": 3, "n_head": 3, "resid_pdrop": 0.1,
          "embd_pdrop": 0.1, "attn_pdrop": 0.1, "activation_function": "gelu_new",
          "layer_norm_epsilon": 1e-05, "initializer_range": 0.2})");
}

/// Some rows of a batch of random tokens that every rank knows.
nn::Batch rows_of_batch(ExecutionContext& context, std::int64_t vocabulary, std::int64_t first,
                        std::int64_t rows, unsigned seed) {
  constexpr std::int64_t kSequence = 11, kMost = 16;
  std::mt19937 random(seed);
  std::vector<std::int64_t> ids(kMost * kSequence), labels(kMost * kSequence);
  for (auto& id : ids) id = static_cast<std::int64_t>(random() % static_cast<unsigned>(vocabulary));
  for (auto& id : labels)
    id = static_cast<std::int64_t>(random() % static_cast<unsigned>(vocabulary));
  const auto part = [&](const std::vector<std::int64_t>& all) {
    return from_values(context, {rows, kSequence},
                       std::span(all).subspan(static_cast<std::size_t>(first * kSequence),
                                              static_cast<std::size_t>(rows * kSequence)));
  };
  nn::Batch batch;
  batch.input_ids = part(ids);
  batch.labels = part(labels);
  return batch;
}

constexpr std::int64_t kRowsOfMicroBatch[] = {5, 2};

struct Result {
  double loss = 0.0;
  std::vector<std::vector<float>> gradients;  ///< whole, by parameter
};

nn::ForwardOptions forward_options(nn::ActivationCheckpoint mode, std::int64_t first) {
  nn::ForwardOptions options;
  options.training = true;
  options.first_sample = static_cast<std::uint64_t>(first);
  options.activation_checkpoint = mode;
  return options;
}

std::vector<float> floats_of(const Tensor& tensor) {
  const std::vector<double> values = tensor.to_vector();
  return {values.begin(), values.end()};
}

Result reference(bool llama, nn::ActivationCheckpoint mode) {
  testing::TestContext context;
  const auto model = nn::make_model(context, tiny_config(llama), DType::kFloat32);
  nn::initialize_parameters(*model, 5);
  Result result;
  std::int64_t first = 0;
  for (std::size_t k = 0; k < std::size(kRowsOfMicroBatch); ++k) {
    const auto batch =
        rows_of_batch(context, model->config().vocab_size, first, kRowsOfMicroBatch[k], 3);
    const Tensor loss = model->loss(batch, 0.01f, forward_options(mode, first));
    result.loss += loss.item();
    autograd::backward(loss);
    first += kRowsOfMicroBatch[k];
  }
  for (const auto& p : model->named_parameters())
    result.gradients.push_back(floats_of(p.parameter->value.grad()));
  return result;
}

/// The part of a whole tensor that a choice and rank give, for comparison.
std::vector<float> sharding(const std::vector<float>& whole, const Shape& shape,
                            const ShardChoice& choice, int ranks, int rank) {
  if (!choice.dim) return whole;
  const planner::ShardRange range = planner::shard_range(shape[*choice.dim], ranks, rank);
  std::int64_t outer = 1, inner = 1;
  for (int d = 0; d < *choice.dim; ++d) outer *= shape[d];
  for (int d = *choice.dim + 1; d < shape.size(); ++d) inner *= shape[d];
  std::vector<float> part;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = range.begin * inner; i < range.end * inner; ++i)
      part.push_back(whole[static_cast<std::size_t>(o * shape[*choice.dim] * inner + i)]);
  return part;
}

struct Setting {
  int dp = 1, fsdp = 2;
  bool llama = false;
  nn::ActivationCheckpoint mode = nn::ActivationCheckpoint::kNone;
  FullyShardOptions options = {};
};

/// This rank's groups of a (dp, fsdp) mesh.
struct Groups {
  Groups(comm::ProcessGroup& world, int dp, int fsdp) {
    std::vector<std::vector<int>> rows, columns;
    for (int d = 0; d < dp; ++d) {
      rows.emplace_back();
      for (int f = 0; f < fsdp; ++f) rows.back().push_back(d * fsdp + f);
    }
    for (int f = 0; f < fsdp; ++f) {
      columns.emplace_back();
      for (int d = 0; d < dp; ++d) columns.back().push_back(d * fsdp + f);
    }
    gather = world.split(rows, "fsdp gathers");
    reduce = world.split(rows, "fsdp sums");
    replicas = world.split(columns, "dp");
    groups = {gather.get(), reduce.get(), dp > 1 ? replicas.get() : nullptr, &world};
  }
  std::unique_ptr<comm::ProcessGroup> gather, reduce, replicas;
  FullyShardGroups groups;
};

/// Two micro batches over the ranks; the second has fewer rows than ranks. `fail_on`: a rank whose
/// second forward does not happen.
std::vector<std::vector<float>> train_step(comm::ProcessGroup& world, const Setting& setting,
                                           const Result& expected, double& loss) {
  testing::TestContext context;
  std::unique_ptr<nn::Model> model;
  {
    const DeferParametersGuard defer(context);
    model = nn::make_model(context, tiny_config(setting.llama), DType::kFloat32);
  }
  std::vector<DataParallelInput> inputs;
  for (const auto& p : model->named_parameters())
    inputs.push_back({{p.name, p.parameter->value.shape(), {}}, p.parameter});
  Groups groups(world, setting.dp, setting.fsdp);
  FullyShard sharded(context, groups.groups, inputs, setting.options);

  // The values come from a whole model of the same seed.
  const auto whole = nn::make_model(context, tiny_config(setting.llama), DType::kFloat32);
  nn::initialize_parameters(*whole, 5);
  const auto whole_parameters = whole->named_parameters();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor shard = sharded.parameters()[i].parameter->value.detach();
    const auto part =
        sharding(floats_of(whole_parameters[i].parameter->value), inputs[i].candidate.shape,
                 sharded.choices()[i], setting.fsdp, groups.gather->rank());
    EXPECT_EQ(static_cast<std::int64_t>(part.size()), shard.numel());
    if (!part.empty()) copy_into(shard, from_values(context, shard.shape(), std::span(part)));
  }

  sharded.begin_step();
  loss = 0.0;
  std::int64_t first = 0;
  for (std::size_t k = 0; k < std::size(kRowsOfMicroBatch); ++k) {
    const bool last = k + 1 == std::size(kRowsOfMicroBatch);
    const auto range = planner::shard_range(kRowsOfMicroBatch[k], world.size(), world.rank());
    if (range.size() == 0) {
      sharded.take_part(last);
    } else {
      const auto batch =
          rows_of_batch(context, model->config().vocab_size, first + range.begin, range.size(), 3);
      sharded.begin_forward(true);
      const Tensor sum =
          model->loss(batch, 0.01f, forward_options(setting.mode, first + range.begin));
      loss += sum.item();
      sharded.begin_backward(last);
      autograd::backward(sum);
      sharded.end_backward();
    }
    first += kRowsOfMicroBatch[k];
  }
  std::vector<std::vector<float>> gradients;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto& leaf = sharded.parameters()[i].parameter->value;
    EXPECT_TRUE(leaf.leaf_grad()->has_value()) << sharded.parameters()[i].name;
    gradients.push_back(floats_of(leaf.leaf_grad()->buffer()));
    const auto want = sharding(expected.gradients[i], inputs[i].candidate.shape,
                               sharded.choices()[i], setting.fsdp, groups.gather->rank());
    EXPECT_EQ(gradients[i].size(), want.size());
    double scale = 1e-3;
    for (const float value : want) scale = std::max(scale, std::abs(static_cast<double>(value)));
    for (std::size_t e = 0; e < want.size(); ++e)
      EXPECT_NEAR(gradients[i][e], want[e], 1e-5 * scale)
          << sharded.parameters()[i].name << " element " << e << " of rank " << world.rank();
  }
  return gradients;
}

void check_setting(const Setting& setting) {
  const Result expected = reference(setting.llama, setting.mode);
  std::vector<std::vector<std::vector<float>>> runs[2];
  for (auto& run : runs) {
    run.resize(static_cast<std::size_t>(setting.dp * setting.fsdp));
    std::mutex mutex;
    double total = 0.0;
    testing::run_ranks(setting.dp * setting.fsdp, [&](comm::ProcessGroup& world) {
      double loss = 0.0;
      auto gradients = train_step(world, setting, expected, loss);
      const std::lock_guard lock(mutex);
      run[static_cast<std::size_t>(world.rank())] = std::move(gradients);
      total += loss;
    });
    EXPECT_NEAR(total, expected.loss, 1e-5 * expected.loss);
  }
  EXPECT_EQ(runs[0], runs[1]) << "a rerun gives other bits";
}

TEST(FullyShard, UnevenShardsGiveTheGradientsOfOneRank) {
  for (const int ranks : {1, 2, 3, 4, 8}) check_setting({.fsdp = ranks});
}

TEST(FullyShard, LlamaAndEveryActivationCheckpoint) {
  for (const auto mode : {nn::ActivationCheckpoint::kNone, nn::ActivationCheckpoint::kSelective,
                          nn::ActivationCheckpoint::kFull}) {
    check_setting({.fsdp = 3, .llama = true, .mode = mode});
    check_setting({.fsdp = 2, .mode = mode});
  }
}

TEST(FullyShard, KeptAfterForward) {
  Setting setting{.fsdp = 3};
  setting.options.reshard_after_forward = false;
  check_setting(setting);
}

TEST(FullyShard, HybridWithReplicas) {
  check_setting({.dp = 2, .fsdp = 2});
  check_setting({.dp = 3, .fsdp = 1});
  check_setting({.dp = 2, .fsdp = 3, .llama = true});
}

TEST(FullyShard, LargestDivisibleAndOverrides) {
  Setting setting{.dp = 2, .fsdp = 2};
  setting.options.policy = ShardPolicy::kLargestDivisible;
  setting.options.min_elements = 100;
  setting.options.dims["transformer.h.1.mlp.c_fc.weight"] = 0;
  setting.options.dims["transformer.h.2.attn.c_proj.weight"] = std::nullopt;
  check_setting(setting);
}

TEST(ShardPlan, ChoosesTheLargestFreeDimThatDivides) {
  const std::vector<ShardCandidate> candidates = {
      {"a", {6, 8}, {}}, {"b", {6, 8}, {1}}, {"c", {5, 7}, {}}, {"d", {2}, {}}, {"e", {}, {}}};
  FullyShardOptions options;
  options.policy = ShardPolicy::kLargestDivisible;
  options.min_elements = 10;
  const auto choices = choose_shards(candidates, 2, options);
  EXPECT_EQ(choices[0].dim, 1);
  EXPECT_EQ(choices[1].dim, 0);
  EXPECT_EQ(choices[2].dim, std::nullopt);
  EXPECT_EQ(choices[2].reason, "no dim divides");
  EXPECT_EQ(choices[3].reason, "small");
  options.dims["x"] = 0;
  EXPECT_THROW(choose_shards(candidates, 2, options), InvalidArgument);
  options.dims = {{"d", 1}};
  EXPECT_THROW(choose_shards(candidates, 2, options), InvalidArgument);
  EXPECT_EQ(choose_shards(candidates, 2, {})[4].dim, std::nullopt);
}

TEST(ShardPlan, BlocksEndAtTheirNumber) {
  EXPECT_EQ(unit_of("transformer.h.11.attn.c_attn.weight"), "transformer.h.11");
  EXPECT_EQ(unit_of("transformer.wte.weight"), "");
  EXPECT_EQ(unit_of("net.0"), "net.0");
}

}  // namespace
}  // namespace meshloom::parallel
