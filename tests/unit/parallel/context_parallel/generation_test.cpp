// SPDX-License-Identifier: Apache-2.0
// Generation on ranks that share the caches of sequences, against one rank: logits, tokens, memory.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "daemon/comm/symm_mem/tensors/symmetric_source.h"
#include "daemon/nn/generate.h"
#include "daemon/parallel/parallelize_model.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/backend_table.h"
#include "planner/attention/cache_blocks.h"
#include "tests/bench/profiling_backend.h"
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

/// Most of the context is longer than what it was made for: each pass has frequencies of its own.
nn::ModelConfig dynamic() {
  nn::ModelConfig config = llama();
  config.max_position_embeddings = kContext / 6;
  config.rope_scaling = nn::RopeScaling{.type = nn::RopeType::kDynamic, .factor = 6.0};
  return config;
}

struct Mesh {
  int cp = 1, tp = 1;
  bool sequence_parallel = false;
};

struct Case {
  const char* name;
  nn::ModelConfig (*config)();
  Mesh mesh;
};

/// Runs `body(model, mesh)` on every rank of a mesh.
void on_mesh(const Case& test, Mesh sizes,
             const std::function<void(nn::Model&, dtensor::DeviceMesh&)>& body) {
  testing::run_ranks(sizes.cp * sizes.tp, [&](comm::ProcessGroup& world) {
    kernels::ProfilingBackend backend(kernels::backend_for(kCpuDevice));
    ExecutionContext::Options options;
    options.backend = &backend;
    options.symmetric_allocator = comm::make_symmetric_allocator(world);
    ExecutionContext context(options);
    dtensor::DeviceMesh mesh(world, planner::MeshLayout({{"cp", sizes.cp}, {"tp", sizes.tp}}));
    const auto model = testing::make_random_model(context, test.config());
    planner::ParallelPlan plan;
    plan.tensor_parallel = sizes.tp > 1;
    plan.sequence_parallel = sizes.sequence_parallel;
    const ParallelModel parallel(*model, &mesh, plan);
    body(*model, mesh);
  });
}

/// Collectives since the last call, by name.
std::map<std::string, std::uint64_t> calls_since(dtensor::DeviceMesh& mesh) {
  std::map<std::string, std::uint64_t> calls;
  for (const auto& [name, counter] : mesh.counters())
    if (counter.calls > 0) calls[name] = counter.calls;
  mesh.reset_counters();
  return calls;
}

/// Arithmetic of products, attention among them, since the last call.
double flops_since(nn::Model& model) {
  double flops = 0.0;
  for (const auto& [key, profile] :
       dynamic_cast<kernels::ProfilingBackend&>(model.context().backend()).take())
    flops += profile.flops;
  return flops;
}

class SharedCaches : public ::testing::TestWithParam<Case> {
 protected:
  /// What each rank of the mesh makes with the model, and what one rank does.
  template <typename T>
  std::vector<T> on_ranks(Mesh sizes, const std::function<T(nn::Model&)>& make) const {
    std::vector<T> all(static_cast<std::size_t>(sizes.cp * sizes.tp));
    std::mutex mutex;
    on_mesh(GetParam(), sizes, [&](nn::Model& model, dtensor::DeviceMesh& mesh) {
      T mine = make(model);
      const std::lock_guard lock(mutex);
      all[static_cast<std::size_t>(mesh.rank())] = std::move(mine);
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
                      Case{"qwen3_cp2_tp2", &qwen3, {2, 2}},
                      Case{"llama_cp2_tp2_sequence", &llama, {2, 2, true}},
                      Case{"mistral_cp3", &mistral, {3, 1}}, Case{"dynamic_cp3", &dynamic, {3, 1}},
                      Case{"dynamic_cp2_tp2", &dynamic, {2, 2}}),
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
  sequence.options.past_context = true;
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

/// What the passes of a prompt of `length` took of a rank.
struct Work {
  double flops = 0.0;
  std::size_t bytes = 0;  ///< the most that was held beside what was there before
};

Work prefill(nn::Model& model, std::int64_t length) {
  const NoGradGuard no_grad(model.context());
  const Tensor ids = testing::random_ids(model.context(), 1, length, 37, 3);
  const auto cache = model.make_cache(length);
  // Tables and caches are made by the first pass.
  model.decode(ids, *cache);
  cache->clear();
  const Allocator& own = model.context().allocator();
  model.context().allocator().reset_peak();
  const std::size_t before = own.stats().bytes_in_use;
  flops_since(model);
  model.decode(ids, *cache);
  return {flops_since(model), own.stats().peak_bytes_in_use - before};
}

TEST_P(SharedCaches, ShareTheWorkOfAPrompt) {
  constexpr std::int64_t kPrompt = 576;
  const Mesh sizes = GetParam().mesh;
  const std::function<Work(nn::Model&)> work = [](nn::Model& model) {
    return prefill(model, kPrompt);
  };
  // Ranks of tp share it in any case.
  const std::vector<Work> whole = on_ranks({1, sizes.tp}, work);
  const std::vector<Work> parts = on_ranks(sizes, work);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const Work& one = whole[rank % static_cast<std::size_t>(sizes.tp)];
    const double positions = static_cast<double>(planner::count_kept_by_rank(
                                 static_cast<int>(rank) / sizes.tp, sizes.cp, {0, kPrompt})) /
                             kPrompt;
    // Queries at the end of a prompt see more keys.
    EXPECT_LE(parts[rank].flops, 1.25 * positions * one.flops) << "rank " << rank;
    EXPECT_LE(static_cast<double>(parts[rank].bytes),
              1.25 * positions * static_cast<double>(one.bytes))
        << "rank " << rank;
  }
}

/// A sequence that has been fed so many tokens.
std::unique_ptr<nn::KvCache> fed(nn::Model& model, std::int64_t length) {
  auto cache = model.make_cache(kContext);
  model.decode(testing::random_ids(model.context(), 1, length, 37, 3), *cache);
  return cache;
}

TEST_P(SharedCaches, PassesTakeFewMessages) {
  const Mesh sizes = GetParam().mesh;
  on_mesh(GetParam(), sizes, [&](nn::Model& model, dtensor::DeviceMesh& mesh) {
    const NoGradGuard no_grad(model.context());
    const auto layers = static_cast<std::uint64_t>(model.config().num_layers);
    const Tensor ids = testing::random_ids(model.context(), 4, 1, 37, 5);
    std::vector<std::unique_ptr<nn::KvCache>> caches;
    std::vector<nn::KvCache*> rows;
    for (const std::int64_t length : {1, 200, 64, 5}) {
      caches.push_back(fed(model, length));
      rows.push_back(caches.back().get());
    }
    // One token of each of several sequences takes what that of one does.
    calls_since(mesh);
    model.decode(ids, nn::KvCaches(rows));
    const auto of_four = calls_since(mesh);
    model.decode(ops::contiguous(ops::slice(ids, 0, 0, 1)), nn::KvCaches(rows).first(1));
    EXPECT_EQ(of_four, calls_since(mesh));
    using Calls = std::map<std::string, std::uint64_t>;
    if (sizes.tp == 1) {
      EXPECT_EQ(of_four, (Calls{{"all_gather", layers}}));
    }
    // Many of one: its keys are exchanged once a layer, and in the end the last position.
    model.decode(testing::random_ids(model.context(), 1, 192, 37, 3), *rows[0]);
    const auto of_prompt = calls_since(mesh);
    if (sizes.tp == 1) {
      EXPECT_EQ(of_prompt, (Calls{{"all_gather", 1}, {"all_to_all", layers}}));
    }
  });
}

}  // namespace
}  // namespace meshloom::parallel
