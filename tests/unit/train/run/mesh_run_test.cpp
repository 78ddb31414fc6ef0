// SPDX-License-Identifier: Apache-2.0
// Runs on meshes other than dp alone: the numbers of one rank, checkpoints from any mesh to any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <mutex>

#include "daemon/comm/symm_mem/segment.h"
#include "daemon/comm/symm_mem/tensors/symmetric_source.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/files/hf_folder.h"
#include "kernels/base/error.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string name_of(const MeshSize& m) {
  return fmt::format("dp{}_fsdp{}_cp{}_tp{}{}", m.dp, m.fsdp, m.cp, m.tp,
                     m.sequence ? "_sequence" : "");
}

class MeshRunTest : public RunFixture {
 protected:
  v1::RunConfig on(const MeshSize& m, std::int64_t batch = 6) const {
    v1::RunConfig c = config(batch);
    set_mesh(c, m);
    c.mutable_debug()->set_check_replicas(true);
    return c;
  }
  /// `count` more steps on a mesh from the checkpoint there, which is written again at the end.
  Trace go_on(const v1::RunConfig& c, int ranks, int count, const fs::path& checkpoints,
              std::vector<std::string>* notes = nullptr) const {
    Trace trace;
    testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, c, checkpoints);
      Trace mine;
      steps(*run, count, mine);
      const fs::path last = run->save_state();
      if (world.rank() != 0) return;
      if (notes != nullptr) *notes = run->notes();
      mine.weights = weights_of(last);
      trace = std::move(mine);
    });
    return trace;
  }
};

const std::vector<MeshSize> kMeshes = {
    {1, 2, 1},           {1, 3, 1},           {2, 2, 1},           {1, 8, 1},
    {1, 1, 2},           {1, 1, 2, true},     {1, 1, 3},           {2, 1, 2},
    {1, 2, 2},           {2, 2, 2, true},     {1, 2, 1, false, 2},  // parameters over fsdp x cp
    {1, 3, 1, false, 2}, {2, 1, 1, false, 2}, {1, 2, 2, false, 2}};

TEST_F(MeshRunTest, EveryMeshGivesTheNumbersOfOneRank) {
  const Trace one = run_training(config(), 1, 6);
  for (const MeshSize& m : kMeshes) {
    SCOPED_TRACE(name_of(m));
    const Trace trace = run_training(on(m), m.ranks(), 6);
    expect_close(trace, one);
    expect_equal(run_training(on(m), m.ranks(), 6), trace);
    ASSERT_EQ(trace.weights.size(), one.weights.size());
  }
}

TEST_F(MeshRunTest, UnevenBatchesAccumulationAndDropoutToo) {
  v1::RunConfig reference = config(7);
  reference.mutable_model()->set_config("dropout.json");
  const Trace one = run_training(reference, 1, 5);
  for (const MeshSize& m : kMeshes) {
    SCOPED_TRACE(name_of(m));
    v1::RunConfig c = on(m, 7);
    c.mutable_model()->set_config("dropout.json");
    c.mutable_training()->set_micro_batch_size(1);
    expect_close(run_training(c, m.ranks(), 5), one);
  }
}

TEST_F(MeshRunTest, TokensDealtByTheAreaOfWindowsTrainTheSame) {
  folder_.write_text("mistral.json", testing::tiny_mistral_config(4));
  v1::RunConfig reference = config(5);
  reference.mutable_model()->set_config("mistral.json");
  const Trace one = run_training(reference, 1, 5);
  for (const MeshSize& m :
       {MeshSize{1, 1, 1, false, 2}, {1, 1, 2, false, 2}, {1, 2, 1, false, 2}}) {
    SCOPED_TRACE(name_of(m));
    v1::RunConfig c = on(m, 5);
    c.mutable_model()->set_config("mistral.json");
    EXPECT_EQ(resolve_run_config(c, {.world_size = m.ranks(), .data_dir = folder_.path()})
                  .plan()
                  .context_parallel()
                  .load_balancer(),
              "mask_area");
    expect_close(run_training(c, m.ranks(), 5), one);
  }
}

TEST_F(MeshRunTest, PoliciesAndActivationCheckpointsChangeNothing) {
  const MeshSize m{2, 2, 1};
  const Trace plain = run_training(on(m), m.ranks(), 4);
  for (const auto mode : {v1::ACTIVATION_CHECKPOINT_FULL, v1::ACTIVATION_CHECKPOINT_SELECTIVE}) {
    v1::RunConfig c = on(m);
    c.mutable_plan()->set_activation_checkpoint(mode);
    expect_equal(run_training(c, m.ranks(), 4), plain);
  }
  v1::RunConfig some = on(m);
  auto& second = *some.mutable_plan()->add_activation_checkpoint_choices();
  second.set_pattern("transformer.h.[1-9]");
  second.set_mode(v1::ACTIVATION_CHECKPOINT_FULL);
  expect_equal(run_training(some, m.ranks(), 4), plain);
  second.set_pattern("transformer.g.*");
  EXPECT_THROW(run_training(some, m.ranks(), 1), InvalidArgument);
  v1::RunConfig c = on(m);
  auto& options = *c.mutable_plan()->mutable_fully_shard_options();
  options.set_policy(v1::SHARD_POLICY_LARGEST_DIVISIBLE);
  options.set_min_elements(300);
  options.set_reshard_after_forward(false);
  auto& choice = *options.add_choices();
  choice.set_pattern("transformer.h.*.mlp.c_fc.weight");
  choice.set_dim(0);
  expect_close(run_training(c, m.ranks(), 4), plain);
  options.mutable_choices(0)->set_pattern("transformer.h.*.mlp.c_fd.weight");
  try {
    run_training(c, m.ranks(), 1);
    FAIL() << "a pattern that matches nothing was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.metadata().at("field"), "run.plan.fully_shard_options.choices");
    EXPECT_THAT(error.what(), HasSubstr("transformer.h.0.mlp.c_fc.weight"));
  }
}

// Products that take their collectives along: sums meet in another place, and nothing else changes.
TEST_F(MeshRunTest, FusedProductsTrainTheSame) {
  if (testing::test_device() != kCpuDevice) GTEST_SKIP() << "symmetric memory is the host's";
  for (const MeshSize& m : {MeshSize{1, 1, 2, true}, {1, 1, 3, true}, {1, 2, 2, true}}) {
    SCOPED_TRACE(name_of(m));
    v1::RunConfig c = on(m, 7);
    c.mutable_training()->set_micro_batch_size(2);
    const Trace table = run_training(c, m.ranks(), 5);
    c.mutable_plan()->mutable_fusion()->set_mode("forbid");
    const Trace apart = run_training(c, m.ranks(), 5);
    expect_equal(table, apart);
    c.mutable_plan()->mutable_fusion()->set_mode("force");
    const Trace fused = run_training(c, m.ranks(), 5);
    expect_close(fused, apart);
    for (std::size_t i = 0; i < fused.losses.size(); ++i)
      EXPECT_NEAR(fused.losses[i], apart.losses[i], 1e-5 * apart.losses[i]) << "step " << i;
    c.mutable_plan()->set_activation_checkpoint(v1::ACTIVATION_CHECKPOINT_FULL);
    expect_equal(run_training(c, m.ranks(), 5), fused);
    c.mutable_plan()->mutable_fusion()->set_gather_again(true);
    expect_equal(run_training(c, m.ranks(), 5, {2}), fused);
  }
}

TEST_F(MeshRunTest, ResumeOnTheSameMeshIsBitwise) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    for (const MeshSize& m : kMeshes) {
      SCOPED_TRACE(name_of(m));
      v1::RunConfig c = on(m, 7);
      c.mutable_plan()->set_dtype(dtype);
      c.mutable_training()->set_micro_batch_size(1);
      expect_equal(run_training(c, m.ranks(), 4, {2}), run_training(c, m.ranks(), 4));
    }
  }
}

TEST_F(MeshRunTest, ACheckpointOfAnyMeshGoesOnOnAnyOther) {
  const Trace one = run_training(config(), 1, 6);
  std::vector<MeshSize> meshes = kMeshes;
  meshes.push_back({1, 1, 1});
  meshes.push_back({3, 1, 1});
  for (std::size_t i = 0; i < meshes.size(); ++i) {
    const MeshSize& from = meshes[i];
    const test::TempFolder checkpoints;
    const Trace first = go_on(on(from), from.ranks(), 2, checkpoints.path());
    const auto next = [&](const MeshSize& to) {
      SCOPED_TRACE(name_of(from) + " to " + name_of(to));
      const test::TempFolder copy;
      fs::copy(checkpoints.path(), copy.path(), fs::copy_options::recursive);
      std::vector<std::string> notes;
      // Loading alone changes no bit.
      const Trace same = go_on(on(to), to.ranks(), 0, copy.path());
      EXPECT_EQ(same.weights, first.weights);
      Trace both = first;
      const Trace second = go_on(on(to), to.ranks(), 4, copy.path(), &notes);
      both.losses.insert(both.losses.end(), second.losses.begin(), second.losses.end());
      both.norms.insert(both.norms.end(), second.norms.begin(), second.norms.end());
      expect_close(both, one);
      if (name_of(from) != name_of(to)) {
        EXPECT_THAT(notes, Contains(HasSubstr("not bit for bit")));
      }
    };
    for (const std::size_t ahead : {0, 1, 5}) next(meshes[(i + ahead) % meshes.size()]);
  }
}

TEST_F(MeshRunTest, EvaluatesExportsAndGeneratesAsOneRank) {
  const test::TempFolder out;
  double loss = 0.0;
  std::vector<std::int64_t> tokens;
  std::string weights;
  std::vector<MeshSize> meshes = kMeshes;
  meshes.insert(meshes.begin(), {1, 1, 1});
  for (const MeshSize& m : meshes) {
    SCOPED_TRACE(name_of(m));
    testing::run_ranks(m.ranks(), [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, on(m, 5));
      const double mine = mean_loss(run->evaluate(0, 2));
      EXPECT_EQ(mean_loss(run->evaluate(0, 2)), mine);
      v1::SamplingParams params;
      params.set_max_tokens(6);
      params.set_seed(3);
      const auto drawn = draw_all(*run, {.prompt = {'a', 'b'}, .params = params});
      run->export_hf(out.path() / name_of(m), "bfloat16");
      EXPECT_THROW(run->export_hf(out.path() / "x", "int8"), InvalidArgument);
      // The run goes on after all of this.
      Trace trace;
      steps(*run, 1, trace);
      if (world.rank() != 0) {
        EXPECT_TRUE(drawn.empty());
        return;
      }
      std::ifstream in(out.path() / name_of(m) / "model.safetensors", std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(in), {}};
      if (m.ranks() == 1) {
        loss = mine;
        tokens = drawn;
        weights = bytes;
        EXPECT_EQ(drawn.size(), 6u);
      }
      EXPECT_NEAR(mine, loss, 1e-5 * loss);
      EXPECT_EQ(drawn, tokens);
      EXPECT_TRUE(bytes == weights) << "the exported weights differ";
    });
  }
}

TEST_F(MeshRunTest, HoldsItsShareOnly) {
  const auto peak = [&](const MeshSize& m) {
    std::size_t most = 0;
    std::mutex mutex;
    testing::run_ranks(m.ranks(), [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, on(m));
      const std::lock_guard lock(mutex);
      most = std::max(most, context.allocator().stats().peak_bytes_in_use);
    });
    return static_cast<double>(most);
  };
  // Weights, gradients and two moments: nothing is ever whole while the run is made.
  EXPECT_LT(peak({1, 4, 1}), 0.35 * peak({1, 1, 1}));
}

// Collectives take no memory in any step: workspaces, staging, segments that peers read. Tensors
// take theirs in the first one.
TEST_F(MeshRunTest, AllocatesNothingFromTheSystemAfterTheFirstStep) {
  if (testing::test_device() != kCpuDevice) GTEST_SKIP() << "symmetric memory is the host's";
  struct Setting {
    MeshSize mesh;
    const char* fusion;
  };
  for (const auto& [m, fusion] : {Setting{{2, 1, 1}, ""},
                                  {{1, 2, 1}, ""},
                                  {{1, 1, 2, true}, ""},
                                  {{1, 1, 2, true}, "force"},
                                  {{1, 1, 1, false, 2}, ""}}) {
    SCOPED_TRACE(name_of(m) + fusion);
    v1::RunConfig c = on(m, 7);
    c.mutable_training()->set_micro_batch_size(2);
    if (m.cp > 1) c.mutable_plan()->mutable_context_parallel()->set_rotate("pull");
    if (*fusion != 0) c.mutable_plan()->mutable_fusion()->set_mode(fusion);
    testing::run_ranks(m.ranks(), [&](comm::ProcessGroup& world) {
      ExecutionContext::Options options;
      options.symmetric_allocator = comm::make_symmetric_allocator(world);
      ASSERT_TRUE(options.symmetric_allocator);
      ExecutionContext context(options);
      const auto run = create(world, context, c);
      Trace trace;
      struct Taken {
        std::vector<std::uint64_t> by_tensors;
        std::int64_t shared, made;  ///< segments for tensors of all ranks, and for all uses
      };
      const auto taken = [&] {
        // All ranks of the process stand still.
        world.barrier()->wait_host();
        const AllocatorStats own = context.allocator().stats(),
                             shared = context.options().symmetric_allocator->stats();
        Taken all{{own.segments_acquired, own.segment_bytes, shared.segments_acquired,
                   shared.segment_bytes},
                  static_cast<std::int64_t>(shared.segments_acquired),
                  static_cast<std::int64_t>(comm::segments_made())};
        world.all_reduce(make_view(&all.shared, DType::kInt64, {1}), comm::ReduceOp::kSum)
            ->wait_host();
        return all;
      };
      const Taken created = taken();
      steps(*run, 1, trace);
      const Taken first = taken();
      EXPECT_EQ(first.made - created.made, first.shared - created.shared) << "for collectives";
      steps(*run, 4, trace);
      const Taken later = taken();
      EXPECT_EQ(later.by_tensors, first.by_tensors);
      EXPECT_EQ(later.made, first.made);
    });
  }
}

TEST_F(MeshRunTest, ARankWithAnotherPlanIsNamed) {
  testing::run_ranks(3, [&](comm::ProcessGroup& world) {
    v1::RunConfig mine = on({1, 3, 1});
    if (world.rank() == 1)
      mine.mutable_plan()->set_activation_checkpoint(v1::ACTIVATION_CHECKPOINT_FULL);
    testing::TestContext context;
    try {
      create(world, context, mine);
      ADD_FAILURE() << "ranks with different plans went on";
    } catch (const FailedPrecondition& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1"));
      EXPECT_EQ(error.reason(), "PLAN_MISMATCH");
    }
  });
}

}  // namespace
}  // namespace meshloom::train
