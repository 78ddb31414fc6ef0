// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/nn/models/default_styles.h"
#include "kernels/base/error.h"
#include "tests/unit/planner/estimate/models.h"
#include "tests/unit/planner/estimate/traced.h"

namespace meshloom::planner {
namespace {

Machine gpu() {
  Machine m;
  m.name = "gpu";
  m.float32_flops = 50e12;
  m.bfloat16_flops = 600e12;
  m.memory_bytes_per_second = 3e12;
  m.memory_bytes = std::int64_t{80} << 30;
  m.overlap = 0.9;
  return m;
}

TEST(Search, FindsWhatFitsAndSaysWhyTheRestDoesNot) {
  const SearchRequest request{.ranks = 8,
                              .memory_limit = std::int64_t{40} << 30,
                              .global_batch = 32,
                              .sequence = 2048,
                              .dtype = DType::kBFloat16};
  const SearchResult result = search_plans(testing::llama3_8b(), request, gpu());
  ASSERT_FALSE(result.candidates.empty());
  ASSERT_FALSE(result.rejected.empty());
  // 10 factorizations of 8 into dp, fsdp and tp; a sequence of 2048 is shared by two ranks at most,
  // and 4 has 6.
  EXPECT_EQ(result.candidates.size() + result.rejected.size(), 16u);
  double before = 0.0;
  for (const Candidate& c : result.candidates) {
    EXPECT_LE(c.estimate.memory.total(), request.memory_limit);
    EXPECT_EQ(c.estimate.mesh.ranks(), 8);
    EXPECT_GE(c.estimate.time.total, before);
    before = c.estimate.time.total;
  }
  // Data parallel alone holds 18 bytes a parameter: 144 GB.
  const auto dp =
      std::find_if(result.rejected.begin(), result.rejected.end(), [](const Rejected& r) {
        return r.mesh == MeshSizes{8, 1, 1, 1};
      });
  ASSERT_NE(dp, result.rejected.end());
  EXPECT_GT(dp->least_memory, std::int64_t{140} * 1000 * 1000 * 1000);
  EXPECT_THAT(dp->reason, ::testing::HasSubstr("of 40.00 GiB"));
}

// One sample of 64k tokens: no other dim divides its activations without dividing layers.
TEST(Search, ProposesContextParallelismForLongSequences) {
  nn::ModelConfig model = testing::llama3_8b();
  model.max_position_embeddings = 1 << 17;
  const SearchRequest request{.ranks = 8,
                              .memory_limit = std::int64_t{80} << 30,
                              .global_batch = 1,
                              .sequence = 1 << 16,
                              .dtype = DType::kBFloat16};
  const SearchResult result = search_plans(model, request, gpu());
  EXPECT_TRUE(std::any_of(result.candidates.begin(), result.candidates.end(),
                          [](const Candidate& c) { return c.estimate.mesh.cp > 1; }));
}

// Every plan of every mesh, tried one by one through estimate().
TEST(Search, FindsTheBestThereIs) {
  const nn::ModelConfig model = testing::byte_gpt();
  const SearchRequest request{
      .ranks = 6, .memory_limit = 300 << 20, .global_batch = 12, .sequence = 256};
  const SearchResult result = search_plans(model, request, gpu());
  double best = 1e9;
  for (int dp : {1, 2, 3, 6})
    for (int fsdp : {1, 2, 3, 6})
      for (int tp : {1, 2, 3, 6})
        for (int bits = 0; bits < 4; ++bits)
          for (int c = 0; c < 3; ++c)
            for (std::int64_t micro = 1; micro <= 12; ++micro) {
              const MeshSizes mesh{dp, fsdp, 1, tp};
              if (mesh.ranks() != 6 || 12 < dp * fsdp) continue;
              const ParallelPlan plan{.tensor_parallel = tp > 1,
                                      .sequence_parallel = (bits & 1) != 0,
                                      .fully_shard = fsdp > 1,
                                      .shards = {.reshard_after_forward = (bits & 2) != 0},
                                      .checkpointing = static_cast<ActivationCheckpoint>(c)};
              const Workload work{12, micro, 256};
              const bool tried =
                  (micro & (micro - 1)) == 0 || micro == samples_per_rank(mesh, work);
              if (!tried || why_invalid(plan::make_model_shape(model), mesh, plan, work)) continue;
              const Estimate e = estimate(model, mesh, plan, work, gpu());
              if (e.memory.total() <= request.memory_limit) best = std::min(best, e.time.total);
            }
  ASSERT_FALSE(result.candidates.empty());
  EXPECT_DOUBLE_EQ(result.candidates[0].estimate.time.total, best);
}

TEST(Search, OffersUnevenTensorParallelism) {
  const SearchRequest request{.ranks = 7, .global_batch = 1, .sequence = 64};
  const SearchResult result = search_plans(testing::gpt2_124m(), request, gpu());
  ASSERT_EQ(result.candidates.size(), 1u);
  EXPECT_EQ(result.candidates[0].estimate.mesh, (MeshSizes{1, 1, 1, 7}));
}

TEST(Search, NothingFits) {
  const SearchRequest request{
      .ranks = 2, .memory_limit = 1 << 30, .global_batch = 2, .sequence = 512};
  const SearchResult result = search_plans(testing::llama3_8b(), request, gpu());
  EXPECT_TRUE(result.candidates.empty());
  EXPECT_EQ(result.rejected.size(), 3u);
}

// Styles that cost less than the default ones on a mesh are chosen there, and others are not.
TEST(Search, TriesOwnStylesBesideTheDefaultOnes) {
  SearchRequest request{.ranks = 2, .global_batch = 1, .sequence = 64};
  const auto best = [&] {
    for (const Candidate& c : search_plans(testing::byte_gpt(), request, gpu()).candidates)
      if (c.estimate.mesh.tp == 2) return c.estimate;
    return Estimate{};
  };
  const Estimate before = best();
  request.styles = {{"transformer.h.*.mlp.c_fc", {{.kind = StyleKind::kColwise}}}};
  EXPECT_TRUE(best().plan.styles.empty());
  request.styles = nn::default_styles(nn::Architecture::kGpt2, false);
  std::erase_if(request.styles, [](const PatternStyles& entry) {
    return entry.pattern == "transformer.wte" || entry.pattern == "lm_head";
  });
  const Estimate own = best();
  EXPECT_EQ(own.plan.styles, request.styles);
  EXPECT_LT(own.time.total, before.time.total);
}

TEST(Search, FindsPlansForAHundredThousandRanks) {
  const SearchRequest request{
      .ranks = 100'000, .global_batch = 65'536, .sequence = 8192, .dtype = DType::kBFloat16};
  const SearchResult result = search_plans(testing::llama3_8b(), request, gpu());
  EXPECT_FALSE(result.candidates.empty());
}

TEST(Search, RefusesRequestsThatMakeNoSense) {
  const nn::ModelConfig model = testing::byte_gpt();
  EXPECT_THROW(search_plans(model, {.ranks = 0, .sequence = 64}, gpu()), InvalidArgument);
  EXPECT_THROW(search_plans(model, {.ranks = 1, .sequence = 100'000}, gpu()), InvalidArgument);
  Machine broken = gpu();
  broken.bfloat16_flops = 0.0;
  EXPECT_THROW(search_plans(model, {.ranks = 1, .sequence = 64}, broken), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::planner
