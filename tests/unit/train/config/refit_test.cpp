// SPDX-License-Identifier: Apache-2.0
// Configs that find another number of ranks.
#include "daemon/train/config/refit.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resume_check.h"
#include "daemon/train/run/run_mesh.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

class RefitTest : public RunFixture {
 protected:
  v1::RunConfig refit(const v1::RunConfig& given, int before, int now) const {
    return refit_run_config(
        given, resolve_run_config(given, {.world_size = before, .data_dir = folder_.path()}),
        {.world_size = now, .data_dir = folder_.path()});
  }
  std::string refusal(const v1::RunConfig& given, int before, int now) const {
    try {
      refit(given, before, now);
    } catch (const FailedPrecondition& error) {
      EXPECT_EQ(error.reason(), "NEEDS_OTHER_RANKS");
      return error.what();
    }
    return "fits";
  }
};

TEST_F(RefitTest, AMeshLeftOpenTakesTheRanksThatThereAre) {
  v1::RunConfig given = config(8);
  EXPECT_EQ(refit(given, 2, 3).mesh().dp(), 3);
  EXPECT_EQ(refit(given, 2, 1).mesh().dp(), 1);
  EXPECT_EQ(refit(given, 2, 3).training().micro_batch_size(), 3);
  given.mutable_mesh()->set_tp(2);
  EXPECT_EQ(refit(given, 2, 4).mesh().dp(), 2);
  given.clear_mesh();
  given.mutable_plan()->set_fully_shard(true);
  const v1::RunConfig sharded = refit(given, 2, 3);
  EXPECT_EQ(sharded.mesh().fsdp(), 3);
  EXPECT_EQ(sharded.mesh().dp(), 1);
}

TEST_F(RefitTest, WhatHasNothingToDoWithRanksStaysAsItWasResolved) {
  v1::RunConfig resolved =
      resolve_run_config(config(), {.world_size = 2, .data_dir = folder_.path()});
  resolved.mutable_plan()->set_dtype("bfloat16");  // decided on another machine
  resolved.mutable_optimizer()->set_weight_decay(0.25);
  const v1::RunConfig now =
      refit_run_config(config(), resolved, {.world_size = 3, .data_dir = folder_.path()});
  EXPECT_EQ(now.plan().dtype(), "bfloat16");
  EXPECT_EQ(now.optimizer().weight_decay(), 0.25);
  EXPECT_TRUE(now.checkpoint().fallback());
  resolved.mutable_checkpoint()->clear_fallback();  // resolved by a daemon that knew no default
  EXPECT_FALSE(refit_run_config(config(), resolved, {.world_size = 3, .data_dir = folder_.path()})
                   .checkpoint()
                   .fallback());
  const v1::RunConfig same =
      refit_run_config({}, resolved, {.world_size = 2, .data_dir = folder_.path()});
  EXPECT_EQ(same.SerializeAsString(), resolved.SerializeAsString());
}

TEST_F(RefitTest, AMicroBatchThatWasChosenToFitIsKept) {
  const v1::RunConfig given = config(12);
  v1::RunConfig chosen = resolve_run_config(given, {.world_size = 2, .data_dir = folder_.path()});
  EXPECT_EQ(chosen.training().micro_batch_size(), 6);
  chosen.mutable_training()->set_micro_batch_size(2);  // as the memory wanted it
  const auto refitted = [&](const v1::RunConfig& open, int ranks) {
    return refit_run_config(open, chosen, {.world_size = ranks, .data_dir = folder_.path()})
        .training()
        .micro_batch_size();
  };
  EXPECT_EQ(refitted(given, 1), 2);
  EXPECT_EQ(refitted(given, 4), 2);
  EXPECT_EQ(refitted(given, 12), 1) << "a rank has no more";

  const test::TempFolder checkpoints;
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    create(world, context, chosen, checkpoints.path())->save_state();
  });
  const auto resumed = [&](const v1::RunConfig& next) {
    v1::RunConfig resolved =
        resolve_run_config(next, {.world_size = 2, .data_dir = folder_.path()});
    resolve_resume_from(next, &resolved, checkpoints.path() / "step-0", {folder_.path()});
    return resolved.training().micro_batch_size();
  };
  EXPECT_EQ(resumed(given), 2);
  v1::RunConfig other = given;
  other.mutable_training()->set_micro_batch_size(3);
  EXPECT_EQ(resumed(other), 3) << "what is given is taken";
}

TEST_F(RefitTest, KeysTravelAsBefore) {
  v1::RunConfig given = config(8);
  given.mutable_mesh()->set_cp(2);
  v1::RunConfig resolved = resolve_run_config(given, {.world_size = 2, .data_dir = folder_.path()});
  resolved.mutable_plan()->mutable_context_parallel()->set_rotate("allgather");
  const auto rotate = [&] {
    return refit_run_config(given, resolved, {.world_size = 4, .data_dir = folder_.path()})
        .plan()
        .context_parallel()
        .rotate();
  };
  EXPECT_EQ(rotate(), "allgather");
  resolved.mutable_plan()->clear_context_parallel();  // resolved by a daemon that always pulled
  EXPECT_EQ(rotate(), "pull");
  given.mutable_plan()->mutable_context_parallel()->set_rotate("alltoall");
  EXPECT_EQ(rotate(), "alltoall");
}

TEST_F(RefitTest, RanksHoldTheTokensThatTheyHeld) {
  folder_.write_text("mistral.json", testing::tiny_mistral_config(4));
  v1::RunConfig given = config(8);
  given.mutable_model()->set_config("mistral.json");
  given.mutable_mesh()->set_cp(2);
  v1::RunConfig resolved = resolve_run_config(given, {.world_size = 2, .data_dir = folder_.path()});
  ASSERT_EQ(resolved.plan().context_parallel().load_balancer(), "mask_area");
  const auto balancer = [&](int ranks) {
    return refit_run_config(given, resolved, {.world_size = ranks, .data_dir = folder_.path()})
        .plan()
        .context_parallel()
        .load_balancer();
  };
  EXPECT_EQ(balancer(2), "mask_area");
  EXPECT_EQ(balancer(4), "mask_area");
  // Resolved by a daemon that left it to the batch: by head and tail.
  for (const char* before : {"", "auto"}) {
    resolved.mutable_plan()->mutable_context_parallel()->set_load_balancer(before);
    EXPECT_EQ(balancer(2), before) << "nothing is resolved again";
    EXPECT_EQ(balancer(4), "head_tail");
  }
  given.mutable_plan()->mutable_context_parallel()->set_load_balancer("none");
  EXPECT_EQ(balancer(4), "none");
}

TEST_F(RefitTest, AResumedCheckpointKeepsWhoHoldsWhat) {
  const test::TempFolder checkpoints;
  folder_.write_text("mistral.json", testing::tiny_mistral_config(4));
  v1::RunConfig given = config(4);
  given.mutable_model()->set_config("mistral.json");
  given.mutable_mesh()->set_cp(2);
  v1::RunConfig older = resolve_run_config(given, {.world_size = 2, .data_dir = folder_.path()});
  older.mutable_plan()->mutable_context_parallel()->clear_load_balancer();
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    RunOptions options;
    options.folders.data_dir = folder_.path();
    options.folders.checkpoints = checkpoints.path();
    test::LocalJob({&context, &world}, older, options).save_state();
  });
  const auto resumed = [&](const char* balancer, int cp) {
    v1::RunConfig next = given;
    next.mutable_mesh()->set_cp(cp);
    next.mutable_plan()->mutable_context_parallel()->set_load_balancer(balancer);
    v1::RunConfig resolved =
        resolve_run_config(next, {.world_size = 4, .data_dir = folder_.path()});
    resolve_resume_from(next, &resolved, checkpoints.path() / "step-0", {folder_.path()});
    return resolved.plan().context_parallel().load_balancer();
  };
  EXPECT_EQ(resumed("auto", 2), "head_tail");
  EXPECT_EQ(resumed("", 2), "head_tail");
  EXPECT_EQ(resumed("mask_area", 2), "mask_area");
  EXPECT_EQ(resumed("auto", 4), "auto") << "other ranks add in another order anyway";
}

TEST_F(RefitTest, AResumedCheckpointKeepsHowKeysTravel) {
  const test::TempFolder checkpoints;
  v1::RunConfig given = config(4);
  given.mutable_mesh()->set_cp(2);
  given.mutable_plan()->mutable_context_parallel()->set_rotate("allgather");
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    create(world, context, resolve_run_config(given, {.world_size = 2, .data_dir = folder_.path()}),
           checkpoints.path())
        ->save_state();
  });
  const auto resumed = [&](const char* rotate, int cp) {
    v1::RunConfig next = given;
    next.mutable_mesh()->set_cp(cp);
    next.mutable_plan()->mutable_context_parallel()->set_rotate(rotate);
    v1::RunConfig resolved =
        resolve_run_config(next, {.world_size = 4, .data_dir = folder_.path()});
    resolve_resume_from(next, &resolved, checkpoints.path() / "step-0", {folder_.path()});
    return resolved.plan().context_parallel().rotate();
  };
  EXPECT_EQ(resumed("auto", 2), "allgather");
  EXPECT_EQ(resumed("", 2), "allgather");
  EXPECT_EQ(resumed("alltoall", 2), "alltoall");
  EXPECT_NE(resumed("auto", 4), "allgather") << "other ranks add in another order anyway";
}

TEST_F(RefitTest, AMeshThatDoesNotFitTellsWhatItNeeds) {
  v1::RunConfig given = config(8);
  given.mutable_mesh()->set_tp(2);
  EXPECT_EQ(refusal(given, 2, 3), "needs a multiple of 2 ranks, the daemon has 3");
  given.mutable_mesh()->set_dp(1);
  EXPECT_EQ(refusal(given, 2, 3), "needs 2 ranks, the daemon has 3");
  EXPECT_EQ(refusal(given, 2, 1), "needs 2 ranks, the daemon has 1");
  given.clear_mesh();
  given.mutable_training()->set_micro_batch_size(4);
  EXPECT_THAT(refusal(given, 2, 4), ::testing::HasSubstr("does not fit the daemon's 4 ranks"));
  given = config();
  v1::RunConfig resolved = resolve_run_config(given, {.world_size = 2, .data_dir = folder_.path()});
  resolved.mutable_data()->set_path("gone.txt");
  EXPECT_THROW(refit_run_config(given, resolved, {.world_size = 3, .data_dir = folder_.path()}),
               NotFound);
}

TEST_F(RefitTest, AMeshOfAnotherSizeIsRefusedByEveryRankAlike) {
  for (const int ranks : {1, 3}) {
    testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      v1::Mesh mesh;
      mesh.set_dp(1);
      mesh.set_fsdp(1);
      mesh.set_cp(1);
      mesh.set_tp(2);
      EXPECT_THROW(RunMesh(world, mesh_layout(mesh)), FailedPrecondition);
    });
  }
}

}  // namespace
}  // namespace meshloom::train
