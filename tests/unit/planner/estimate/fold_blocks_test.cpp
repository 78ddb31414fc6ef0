// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/estimate/model_graph.h"
#include "tests/unit/planner/estimate/models.h"
#include "tests/unit/planner/estimate/traced.h"

namespace meshloom::planner {
namespace {

std::vector<std::int64_t> times_of(const ModelGraph& graph) {
  std::vector<std::int64_t> times;
  for (const GraphRun& run : graph.runs) times.push_back(run.is_block ? run.times : -run.times);
  return times;
}

TEST(FoldBlocks, EqualBlocksAreOne) {
  using ::testing::ElementsAre;
  // The first block of a pre-norm model adds nothing before its first norm.
  EXPECT_THAT(times_of(plan::TracedModel(testing::gpt2_124m()).of(1, 8)),
              ElementsAre(-1, 1, 11, -1));
  EXPECT_THAT(times_of(plan::TracedModel(testing::measured_bert(4)).of(1, 8)),
              ElementsAre(-1, 4, -1));
  // Windows in the last two layers.
  EXPECT_THAT(times_of(plan::TracedModel(testing::small_qwen()).of(1, 8)),
              ElementsAre(-1, 1, 3, 2, -1));
}

TEST(FoldBlocks, RunsFollowEachOtherAndNameTheirTensors) {
  plan::TracedModel model(testing::small_qwen());
  const ModelGraph& graph = model.of(2, 16);
  std::size_t end = 0;
  for (const GraphRun& run : graph.runs) {
    EXPECT_EQ(run.begin, end);
    end = run.end;
    // What a further time takes was made by the time before, and what it replaces before the run.
    for (const auto& [from, to] : run.carried) {
      const GraphTensor &left = graph.tensors[static_cast<std::size_t>(from)],
                        &taken = graph.tensors[static_cast<std::size_t>(to)];
      EXPECT_GE(left.made, static_cast<int>(run.begin));
      EXPECT_LT(left.made, static_cast<int>(run.end));
      EXPECT_LT(taken.made, static_cast<int>(run.begin));
      EXPECT_EQ(left.shape, taken.shape);
    }
    EXPECT_EQ(run.carried.size(), run.times > 1 ? 2u : 0u) << "the stream, and what is added to it";
  }
  EXPECT_EQ(end, graph.steps.size());
  for (std::size_t i = 0; i < graph.steps.size(); ++i)
    for (const int name : graph.steps[i].outputs)
      if (name >= 0) {
        const GraphTensor& made = graph.tensors[static_cast<std::size_t>(name)];
        EXPECT_EQ(made.made, static_cast<int>(i));
        EXPECT_GT(made.released, static_cast<int>(i));
        EXPECT_LE(made.released, static_cast<int>(graph.steps.size()));
      }
}

TEST(FoldBlocks, AGraphIsMadeOnceForEachSize) {
  plan::TracedModel model(testing::byte_gpt());
  const ModelGraph* first = &model.of(1, 8);
  EXPECT_NE(&model.of(2, 8), first);
  EXPECT_EQ(&model.of(1, 8), first);
}

}  // namespace
}  // namespace meshloom::planner
