// SPDX-License-Identifier: Apache-2.0
// Generation on ranks that share the caches of sequences, against one rank: logits, tokens, memory.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "daemon/nn/generate.h"
#include "daemon/parallel/parallelize_model.h"
#include "daemon/tensor/ops/shape.h"
#include "planner/attention/cache_blocks.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::parallel {
namespace {

constexpr std::int64_t kContext = 600;

nn::ModelConfig with_context(nn::ModelConfig config) {
  config.max_position_embeddings = kContext;
  return config;
}
nn::ModelConfig gpt2() { return with_context(testing::tiny_gpt2()); }
nn::ModelConfig llama() { return with_context(testing::tiny_llama()); }
/// A layer with a window of 5, and one without.
nn::ModelConfig qwen3() { return with_context(testing::tiny_qwen3()); }
/// Windows that are wider than a block of positions, in all layers.
nn::ModelConfig mistral() {
  nn::ModelConfig config = llama();
  config.sliding_window = 150;
  return config;
}

struct Mesh {
  int cp = 1, tp = 1;
};

struct Case {
  const char* name;
  nn::ModelConfig (*config)();
  Mesh mesh;
};

/// Runs `body(model)` on every rank of a mesh.
void on_mesh(const Case& test, Mesh sizes, const std::function<void(nn::Model&, int)>& body) {
  testing::run_ranks(sizes.cp * sizes.tp, [&](comm::ProcessGroup& world) {
    ExecutionContext context;
    dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"cp", sizes.cp}, {"tp", sizes.tp}}));
    const auto model = testing::make_random_model(context, test.config());
    planner::ParallelPlan plan;
    plan.tensor_parallel = sizes.tp > 1;
    const ParallelModel parallel(*model, &mesh, plan);
    body(*model, world.rank());
  });
}

class SharedCaches : public ::testing::TestWithParam<Case> {
 protected:
  /// What each rank of the mesh makes with the model, and what one rank does.
  template <typename T>
  std::vector<T> on_ranks(Mesh sizes, const std::function<T(nn::Model&)>& make) const {
    std::vector<T> all(static_cast<std::size_t>(sizes.cp * sizes.tp));
    std::mutex mutex;
    on_mesh(GetParam(), sizes, [&](nn::Model& model, int rank) {
      T mine = make(model);
      const std::lock_guard lock(mutex);
      all[static_cast<std::size_t>(rank)] = std::move(mine);
    });
    return all;
  }
};

// Of four ranks of tp one has none of three heads.
INSTANTIATE_TEST_SUITE_P(
    Models, SharedCaches,
    ::testing::Values(Case{"gpt2_cp2", &gpt2, {2, 1}}, Case{"gpt2_cp2_tp4", &gpt2, {2, 4}},
                      Case{"llama_cp2", &llama, {2, 1}}, Case{"llama_cp3", &llama, {3, 1}},
                      Case{"llama_cp5", &llama, {5, 1}}, Case{"llama_cp2_tp2", &llama, {2, 2}},
                      Case{"qwen3_cp2", &qwen3, {2, 1}}, Case{"qwen3_cp3", &qwen3, {3, 1}},
                      Case{"qwen3_cp2_tp2", &qwen3, {2, 2}}, Case{"mistral_cp3", &mistral, {3, 1}}),
    [](const auto& test) { return std::string(test.param.name); });

using Logits = std::vector<std::vector<double>>;

/// Those of each piece of a sequence that is fed piece by piece, twice: the second time into a
/// cache that was used.
Logits decode_pieces(nn::Model& model, const std::vector<std::int64_t>& pieces) {
  const Tensor ids = testing::random_ids(model.context(), 1, kContext, 37, 3);
  const NoGradGuard no_grad(model.context());
  const auto cache = model.make_cache(kContext);
  Logits logits;
  for (int pass = 0; pass < 2; ++pass) {
    cache->clear();
    std::int64_t end = 0;
    for (const std::int64_t piece : pieces) {
      const Tensor part = ops::contiguous(ops::slice(ids, 1, end, end + piece));
      end += piece;
      logits.push_back(model.decode(part, *cache).to_vector());
    }
  }
  return logits;
}

TEST_P(SharedCaches, GiveTheLogitsOfOneRank) {
  // The first pieces are shorter than a block, so that some ranks have no key; then passes that end
  // anywhere, wider than windows, and single tokens across ends of blocks.
  std::vector<std::int64_t> pieces{3, 1, 58, 1, 1, 1, 128, 77, 128, 130};
  pieces.insert(pieces.end(), 70, 1);
  const std::function<Logits(nn::Model&)> decode = [&](nn::Model& model) {
    return decode_pieces(model, pieces);
  };
  const Logits expected = on_ranks({1, 1}, decode).front();
  const std::vector<Logits> seen = on_ranks(GetParam().mesh, decode);
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    EXPECT_EQ(seen[rank], seen[0]) << "rank " << rank << " has other bits";
    ASSERT_EQ(seen[rank].size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      for (std::size_t v = 0; v < expected[i].size(); ++v)
        ASSERT_NEAR(seen[rank][i][v], expected[i][v], 1e-5 * (1.0 + std::abs(expected[i][v])))
            << "piece " << i;
  }
}

/// The tokens of some sequences that are drawn together, one list after the other.
std::vector<std::int64_t> draw_all(nn::Model& model,
                                   const std::vector<nn::GenerateSequence>& sequences) {
  nn::Generation generation(model, sequences);
  std::vector<std::vector<std::int64_t>> tokens(sequences.size());
  while (!generation.done())
    for (const nn::GeneratedToken& token : generation.advance())
      tokens[token.sequence].push_back(token.id);
  std::vector<std::int64_t> all;
  for (const auto& list : tokens) all.insert(all.end(), list.begin(), list.end());
  return all;
}

nn::GenerateSequence greedy(std::size_t prompt, std::int64_t tokens) {
  nn::GenerateSequence sequence;
  for (std::size_t i = 0; i < prompt; ++i)
    sequence.prompt.push_back(static_cast<std::int64_t>((7 * i * i + 3 * prompt + 1) % 37));
  sequence.options.sampling.temperature = 0.0;
  sequence.options.max_tokens = tokens;
  return sequence;
}

TEST_P(SharedCaches, SequencesOfDifferentLengthsDrawWhatOneRankDraws) {
  // The last goes on past its context and is fed anew.
  const std::vector<nn::GenerateSequence> sequences{greedy(5, 12), greedy(200, 9), greedy(1, 70),
                                                    greedy(64, 3), greedy(590, 20)};
  const std::function<std::vector<std::int64_t>(nn::Model&)> draw = [&](nn::Model& model) {
    return draw_all(model, sequences);
  };
  const auto expected = on_ranks({1, 1}, draw).front();
  ASSERT_EQ(expected.size(), 12u + 9 + 70 + 3 + 20);
  for (const auto& tokens : on_ranks(GetParam().mesh, draw)) EXPECT_EQ(tokens, expected);
  // Each has the tokens that it has alone.
  std::vector<std::int64_t> alone;
  for (const nn::GenerateSequence& sequence : sequences) {
    const std::function<std::vector<std::int64_t>(nn::Model&)> one = [&](nn::Model& model) {
      return draw_all(model, {sequence});
    };
    const auto tokens = on_ranks(GetParam().mesh, one).front();
    alone.insert(alone.end(), tokens.begin(), tokens.end());
  }
  EXPECT_EQ(alone, expected);
}

TEST_P(SharedCaches, TakeAShareOfTheMemory) {
  const std::function<std::int64_t(nn::Model&)> fill = [](nn::Model& model) {
    const auto cache = model.make_cache(kContext);
    model.decode(testing::random_ids(model.context(), 1, 128, 37, 3), *cache);
    return cache->bytes();
  };
  const std::int64_t whole = on_ranks({1, 1}, fill).front();
  const Mesh mesh = GetParam().mesh;
  const std::vector<std::int64_t> parts = on_ranks(mesh, fill);
  // Of each layer a rank has at most a block beyond its share, and of the heads a share, rounded
  // up.
  const nn::ModelConfig config = GetParam().config();
  const std::int64_t heads = (config.num_kv_heads + mesh.tp - 1) / mesh.tp;
  const std::int64_t block = config.num_layers * planner::kCacheBlock * 2 * config.num_kv_heads *
                             config.head_dim * static_cast<std::int64_t>(sizeof(float));
  std::int64_t sum = 0;
  for (const std::int64_t bytes : parts) {
    sum += bytes;
    EXPECT_LE(bytes, (whole / mesh.cp + block) * heads / config.num_kv_heads);
  }
  EXPECT_EQ(sum, whole);
}

}  // namespace
}  // namespace meshloom::parallel
