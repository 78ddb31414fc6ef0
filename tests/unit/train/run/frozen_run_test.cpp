// SPDX-License-Identifier: Apache-2.0
// Runs with frozen parameters and with groups of parameters, on all kinds of meshes.
#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

using ::testing::HasSubstr;

class FrozenRunTest : public RunFixture {
 protected:
  v1::RunConfig frozen(const std::vector<std::string>& patterns) const {
    v1::RunConfig with = config();
    for (const std::string& pattern : patterns) with.mutable_training()->add_frozen(pattern);
    return with;
  }
  /// Trace of `count` steps, and the tensors of checkpoints before and behind them.
  struct Trained {
    Trace trace;
    Named before, after;
  };
  Trained train(const v1::RunConfig& with, int ranks, int count = 4) const {
    const test::TempFolder checkpoints;
    Trained trained;
    testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, with, checkpoints.path());
      const fs::path first = run->save_state();
      Trained mine;
      if (world.rank() == 0) mine.before = weights_of(first);
      steps(*run, count, mine.trace);
      const fs::path last = run->save_state();
      if (world.rank() != 0) return;
      mine.after = weights_of(last);
      trained = std::move(mine);
    });
    return trained;
  }
};

TEST_F(FrozenRunTest, FrozenParametersStayAndHaveNoMoments) {
  const Trained trained = train(frozen({"transformer.wte", "transformer.h.0"}), 1);
  int moved = 0;
  for (const auto& [name, values] : trained.after) {
    const bool is_frozen = name.find("transformer.wte") != std::string::npos ||
                           name.find("transformer.h.0.") != std::string::npos;
    if (!name.starts_with("model.")) {
      EXPECT_FALSE(is_frozen) << name;
    } else if (is_frozen) {
      EXPECT_EQ(values, trained.before.at(name)) << name;
    } else {
      moved += values != trained.before.at(name) ? 1 : 0;
    }
  }
  EXPECT_GT(moved, 10);
  EXPECT_LT(trained.trace.losses.back(), trained.trace.losses.front());
}

TEST_F(FrozenRunTest, TheFirstStepsNormIsThatOfTheOthersAlone) {
  // Of one step from the same weights the gradients of what is trained are the same.
  const std::string all = "transformer.h.1";
  const double whole = train(config(), 1, 1).trace.norms[0];
  const double without = train(frozen({all}), 1, 1).trace.norms[0];
  v1::RunConfig others = config();
  for (const char* name :
       {"transformer.wte", "transformer.wpe", "transformer.h.0", "transformer.ln_f"})
    others.mutable_training()->add_frozen(name);
  const double alone = train(others, 1, 1).trace.norms[0];
  EXPECT_NEAR(std::sqrt(without * without + alone * alone), whole, 1e-5 * whole);
}

TEST_F(FrozenRunTest, IsTheSameOnEveryMesh) {
  const std::vector<MeshSize> meshes = {{2, 1, 1}, {1, 2, 1},           {1, 3, 1},
                                        {1, 1, 2}, {1, 1, 2, true},     {2, 2, 1},
                                        {1, 2, 2}, {1, 1, 1, false, 2}, {1, 2, 1, false, 2}};
  for (const std::vector<std::string>& patterns :
       {std::vector<std::string>{"transformer.wte", "transformer.h.0"},
        {"transformer.h.*"},
        {"transformer.wpe", "transformer.h.1", "transformer.ln_f"},
        {"transformer.h.*.mlp", "transformer.h.*.*.bias"}}) {
    const v1::RunConfig with = frozen(patterns);
    const Trained one = train(with, 1);
    for (const MeshSize& mesh : meshes) {
      SCOPED_TRACE(fmt::format("{}: dp {} fsdp {} tp {} cp {}", patterns[0], mesh.dp, mesh.fsdp,
                               mesh.tp, mesh.cp));
      v1::RunConfig on_mesh = with;
      set_mesh(on_mesh, mesh);
      const Trained other = train(on_mesh, mesh.ranks());
      expect_close(one.trace, other.trace);
      ASSERT_EQ(one.after.size(), other.after.size());
    }
  }
}

TEST_F(FrozenRunTest, WorksWithCheckpointedBlocksAndInBfloat16) {
  for (const auto mode : {v1::ACTIVATION_CHECKPOINT_SELECTIVE, v1::ACTIVATION_CHECKPOINT_FULL}) {
    v1::RunConfig with = frozen({"transformer.wte", "transformer.wpe", "transformer.h.0"});
    const Trained plain = train(with, 1);
    with.mutable_plan()->set_activation_checkpoint(mode);
    set_mesh(with, {1, 2, 1});
    expect_close(plain.trace, train(with, 2).trace);
  }
  v1::RunConfig with = frozen({"transformer.h.0"});
  with.mutable_plan()->set_dtype("bfloat16");
  const Trained trained = train(with, 2);
  EXPECT_EQ(trained.after.at("model.transformer.h.0.mlp.c_fc.weight"),
            trained.before.at("model.transformer.h.0.mlp.c_fc.weight"));
}

TEST_F(FrozenRunTest, AResumeIsBitEqualAndMayThaw) {
  const v1::RunConfig with = frozen({"transformer.h.0", "transformer.wte"});
  expect_equal(run_training(with, 2, 6), run_training(with, 2, 6, {2, 4}));
  const test::TempFolder checkpoints;
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    Trace trace;
    {
      const auto run = create(world, context, with, checkpoints.path());
      steps(*run, 2, trace);
      run->save_state();
    }
    const auto thawed = create(world, context, config(), checkpoints.path());
    EXPECT_EQ(thawed->step(), 2);
    steps(*thawed, 2, trace);
    const fs::path last = thawed->save_state();
    if (world.rank() != 0) return;
    EXPECT_TRUE(weights_of(last).contains("optimizer.moment1.transformer.wte.weight"));
  });
}

TEST_F(FrozenRunTest, GroupsFollowTheirOwnRateAndDecayOnEveryMesh) {
  v1::RunConfig with = config();
  const auto add = [&](const char* pattern) -> v1::ParameterGroup& {
    v1::ParameterGroup& group = *with.mutable_optimizer()->add_groups();
    group.set_pattern(pattern);
    return group;
  };
  add("transformer.wte").set_lr(0.0);
  add("transformer.h.0").set_lr_factor(0.1);
  add("transformer.ln_f").set_weight_decay(0.5);
  const Trained one = train(with, 1);
  EXPECT_EQ(one.after.at("model.transformer.wte.weight"),
            one.before.at("model.transformer.wte.weight"))
      << "a rate of 0 moves nothing, but has moments";
  EXPECT_TRUE(one.after.contains("optimizer.moment1.transformer.wte.weight"));
  for (const MeshSize& mesh : {MeshSize{2, 1, 1}, MeshSize{1, 2, 1}, MeshSize{1, 1, 2}}) {
    set_mesh(with, mesh);
    expect_close(one.trace, train(with, 2).trace);
  }
}

TEST_F(FrozenRunTest, ARunRefusesPatternsAsItsSubmissionDoes) {
  try {
    resolve_run_config(frozen({"transformer.h.7"}), {.world_size = 1, .data_dir = folder_.path()});
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.metadata().at("field"), "run.training.frozen[0]");
  }
}

}  // namespace
}  // namespace meshloom::train
