// SPDX-License-Identifier: Apache-2.0
// Generating while parameters are sharded: the tokens of one rank, one block whole at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "kernels/base/error.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kLayers = 7, kWidth = 48, kWide = 96;

struct GenerationMesh {
  int dp = 1, fsdp = 1, tp = 1, cp = 1;
  int ranks() const { return dp * fsdp * tp * cp; }
};

std::string name_of(const GenerationMesh& m) {
  return fmt::format("dp{}_fsdp{}_tp{}_cp{}", m.dp, m.fsdp, m.tp, m.cp);
}

class GenerationTest : public RunFixture {
 protected:
  void SetUp() override {
    RunFixture::SetUp();
    for (const std::int64_t width : {kWidth, kWide})
      folder_.write_text(
          fmt::format("{}.json", width),
          fmt::format(R"({{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
            "vocab_size": 256, "n_positions": 16, "n_embd": {}, "n_layer": {}, "n_head": 3,
            "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
            "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05,
            "initializer_range": 0.2}})",
                      width, kLayers));
  }

  v1::RunConfig on(const GenerationMesh& m, std::int64_t width = kWidth) const {
    v1::RunConfig c = config(4);
    c.mutable_model()->set_config(fmt::format("{}.json", width));
    c.mutable_mesh()->set_dp(m.dp);
    c.mutable_mesh()->set_fsdp(m.fsdp);
    c.mutable_mesh()->set_tp(m.tp);
    c.mutable_mesh()->set_cp(m.cp);
    return c;
  }
  static SampleStart start_with(std::int64_t count) {
    SampleStart start{{'a', 'b'}, {}};
    start.params.set_max_tokens(static_cast<int>(count));
    start.params.set_seed(3);
    start.params.set_past_context(true);
    return start;
  }
  /// More than the context holds, so that half of it is fed anew in between.
  static std::vector<std::int64_t> draw(test::LocalJob& run, std::int64_t count = 24) {
    return draw_all(run, start_with(count));
  }
  /// What is free counts as room to keep blocks in: takes it, as long as the result lives.
  static std::vector<std::shared_ptr<Storage>> take_free_memory(Allocator& allocator) {
    std::vector<std::shared_ptr<Storage>> taken;
    const auto left = [&] {
      const AllocatorStats stats = allocator.stats();
      return stats.segment_bytes - stats.bytes_in_use;
    };
    // Where no free piece is as large, the allocator takes more from the system, which is taken
    // too: what is left has no room for a block.
    constexpr std::size_t kTooLittle = 4096;
    do {
      for (std::size_t size = left(); size >= 64; size /= 2) {
        const std::size_t segments = allocator.stats().segment_bytes;
        while (left() >= size && allocator.stats().segment_bytes == segments)
          taken.push_back(allocator.allocate(size));
      }
    } while (left() >= kTooLittle);
    return taken;
  }
  /// Calls of all_gather over fsdp from the last step's end to that of the next one.
  static std::int64_t gathers_until_next_step(test::LocalJob& run) {
    run.forward_backward();
    const v1::StepMetrics metrics = run.optim_step();
    std::int64_t calls = 0;
    for (const auto& item : metrics.collectives())
      if (item.group() == "fsdp" && item.collective() == "all_gather") calls += item.calls();
    return calls;
  }
};

const GenerationMesh kGenerationMeshes[] = {{1, 2, 1},    {1, 3, 1},    {1, 2, 2},    {2, 2, 1},
                                            {2, 1, 1},    {1, 1, 3},    {1, 3, 2},    {2, 3, 1},
                                            {1, 1, 1, 2}, {1, 2, 1, 2}, {1, 1, 2, 2}, {2, 1, 1, 2}};

TEST_F(GenerationTest, EveryMeshDrawsTheTokensOfOneRank) {
  std::vector<std::int64_t> untrained, trained;
  const auto check_mesh = [&](const GenerationMesh& m, const v1::RunConfig& c) {
    SCOPED_TRACE(name_of(m));
    testing::run_ranks(m.ranks(), [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, c);
      const auto first = draw(*run);
      Trace trace;
      steps(*run, 2, trace);
      const auto second = draw(*run);
      EXPECT_EQ(draw(*run), second);
      if (world.rank() != 0) {
        EXPECT_TRUE(first.empty());
        return;
      }
      EXPECT_EQ(first.size(), 24u);
      if (m.ranks() == 1) {
        untrained = first;
        trained = second;
      }
      EXPECT_EQ(first, untrained);
      EXPECT_EQ(second, trained);
    });
  };
  check_mesh({1, 1, 1}, on({1, 1, 1}));
  EXPECT_NE(trained, untrained);
  for (const GenerationMesh& m : kGenerationMeshes) check_mesh(m, on(m));
  v1::RunConfig kept = on({1, 3, 1});
  kept.mutable_plan()->mutable_fully_shard_options()->set_reshard_after_forward(false);
  check_mesh({1, 3, 1}, kept);
}

struct Peaks {
  std::size_t sample = 0, forward = 0, whole_model = 0;
};

TEST_F(GenerationTest, IsNeverWhole) {
  if (testing::test_device() != kCpuDevice) GTEST_SKIP() << "the segments of the CPU are measured";
  const auto measure = [&](bool reshard) {
    Peaks peaks;
    testing::run_ranks(2, [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      v1::RunConfig c = on({1, 2, 1}, kWide);
      c.mutable_plan()->mutable_fully_shard_options()->set_reshard_after_forward(reshard);
      const auto run = create(world, context, c);
      Allocator& allocator = context.allocator();
      const auto most = [&](const auto& body) {
        const auto rest = take_free_memory(allocator);
        const std::size_t before = allocator.stats().bytes_in_use;
        allocator.reset_peak();
        body();
        return allocator.stats().peak_bytes_in_use - before;
      };
      Peaks mine;
      mine.sample = most([&] { draw(*run); });
      mine.forward = most([&] { mean_loss(run->evaluate(0, 1)); });
      constexpr std::int64_t kBlock = 12 * kWide * kWide + 13 * kWide;
      mine.whole_model = (kLayers * kBlock + (256 + 16 + 2) * kWide) * sizeof(float);
      if (world.rank() == 0) peaks = mine;
    });
    return peaks;
  };
  const Peaks sharded = measure(true), kept = measure(false);
  EXPECT_LT(sharded.sample, sharded.whole_model / 2);
  EXPECT_LT(sharded.sample, sharded.forward * 5 / 4);
  EXPECT_GT(kept.sample, kept.whole_model);
}

TEST_F(GenerationTest, KeepsWhatFitsIntoMemoryThatStepsHaveTaken) {
  if (testing::test_device() != kCpuDevice) GTEST_SKIP() << "the segments of the CPU are measured";
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto run = create(world, context, on({1, 2, 1}));
    gathers_until_next_step(*run);
    const std::int64_t of_step = gathers_until_next_step(*run);
    const auto segments = context.allocator().stats().segment_bytes;
    draw(*run, 12);
    const std::int64_t of_some = gathers_until_next_step(*run) - of_step;
    EXPECT_EQ(context.allocator().stats().segment_bytes, segments);
    auto rest = take_free_memory(context.allocator());
    draw(*run, 12);
    rest.clear();
    const std::int64_t of_none = gathers_until_next_step(*run) - of_step;
    EXPECT_LT(of_some, of_none);
    // Two works a block, the large and the small parameters.
    EXPECT_GE(of_none, 12 * kLayers);
  });
}

TEST_F(GenerationTest, SlicesBetweenStepsDrawTheSameAndLeaveTrainingAsItIs) {
  for (const GenerationMesh& m :
       {GenerationMesh{1, 1, 1}, {1, 3, 1}, {2, 2, 1}, {2, 1, 1}, {1, 1, 3}}) {
    SCOPED_TRACE(name_of(m));
    const Trace expected = run_training(on(m), m.ranks(), 2);
    testing::run_ranks(m.ranks(), [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, on(m));
      const auto whole = draw(*run);
      // A pass at a time, two samples in turn.
      const auto a = run->begin_sample({start_with(24)}), b = run->begin_sample({start_with(24)});
      std::vector<std::int64_t> of_a, of_b;
      const auto take = [](Sample& sample, std::vector<std::int64_t>& tokens) {
        const auto more = sample.advance(std::chrono::milliseconds(0));
        EXPECT_LE(more.size(), 1u);
        for (const SampledToken& token : more) tokens.push_back(token.id);
      };
      for (int i = 0; i < 23; ++i) {
        take(*a, of_a);
        take(*b, of_b);
      }
      EXPECT_FALSE(a->done());
      take(*a, of_a);
      EXPECT_EQ(of_a, whole);
      EXPECT_TRUE(a->done() || world.rank() != 0);
      Trace trace;
      steps(*run, 1, trace);
      take(*b, of_b);
      EXPECT_EQ(of_b.size(), world.rank() == 0 ? 24u : 0u);
      // Also between gradients and their use.
      const auto c = run->begin_sample({start_with(3)});
      run->forward_backward();
      c->advance(std::chrono::milliseconds(0));
      trace.losses.push_back(run->optim_step().loss());
      EXPECT_EQ(trace.losses, expected.losses);
    });
  }
}

TEST_F(GenerationTest, GoesOnWhereAnotherSampleEnded) {
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto run = create(world, context, on({1, 2, 1}));
    const auto whole = draw(*run, 12);
    // Rank 0's tokens are every rank's prompt, as a command carries them.
    std::vector<std::int64_t> known(whole.begin(), whole.begin() + (whole.empty() ? 0 : 5));
    known.resize(5);
    world.broadcast(make_view(known.data(), DType::kInt64, {5}), 0)->wait_host();
    SampleStart start = start_with(7);
    start.prompt.insert(start.prompt.end(), known.begin(), known.end());
    start.drawn_before = 5;
    const auto rest = draw_all(*run, start);
    if (world.rank() == 0) {
      EXPECT_EQ(rest, std::vector<std::int64_t>(whole.begin() + 5, whole.end()));
    }
  });
}

TEST_F(GenerationTest, WhatAllRefuseLeavesTheRunAsItWas) {
  for (const GenerationMesh& m :
       {GenerationMesh{1, 3, 1}, GenerationMesh{2, 2, 1}, GenerationMesh{2, 1, 1}}) {
    SCOPED_TRACE(name_of(m));
    const Trace expected = run_training(on(m), m.ranks(), 2);
    testing::run_ranks(m.ranks(), [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, on(m));
      Trace trace;
      steps(*run, 1, trace);
      for (const std::vector<std::int64_t>& prompt :
           {std::vector<std::int64_t>{'a', 999}, std::vector<std::int64_t>(17, 'a')}) {
        try {
          run->begin_sample({{prompt, {}}});
          ADD_FAILURE() << "rank " << world.rank() << " went on";
        } catch (const InvalidArgument& error) {
          EXPECT_THAT(error.what(), HasSubstr("prompt: "));
          EXPECT_FALSE(error.metadata().contains("failed_rank"));
        }
      }
      EXPECT_EQ(world.failures()->epoch(), 2u);
      steps(*run, 1, trace);
      EXPECT_EQ(trace.losses, expected.losses);
    });
  }
}

}  // namespace
}  // namespace meshloom::train
