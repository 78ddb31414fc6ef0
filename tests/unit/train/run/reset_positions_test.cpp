// SPDX-License-Identifier: Apache-2.0
// Positions that begin anew at each document: a packed document is as it would be alone.
#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resume_check.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

class ResetPositionsTest : public RunFixture {
 protected:
  void SetUp() override {
    RunFixture::SetUp();
    // Two documents of 8 bytes fill a window of 16.
    std::string text;
    for (int i = 0; i < 300; ++i) text += fmt::format("{:07}\n", i * 7919 % 1000003);
    folder_.write_text("lines.txt", text);
    folder_.write_text("llama.json", R"({"model_type": "llama", "architectures":
        ["LlamaForCausalLM"], "vocab_size": 256, "max_position_embeddings": 16, "hidden_size": 16,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "intermediate_size": 24})");
  }
  v1::RunConfig packed(const MeshSize& m = {}, const char* model = "config.json") const {
    v1::RunConfig c = config();
    c.mutable_model()->set_config(model);
    set_mesh(c, m);
    c.mutable_data()->set_path("lines.txt");
    c.mutable_data()->set_document_end('\n');
    c.mutable_data()->set_document_mask(true);
    c.mutable_data()->set_reset_positions(true);
    c.mutable_validation()->set_interval(1);
    return c;
  }
  double loss_of(const v1::RunConfig& c) const {
    double loss = 0.0;
    testing::run_ranks(1, [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      loss = mean_loss(create(world, context, c)->evaluate(0, 1000));
    });
    return loss;
  }
};

TEST_F(ResetPositionsTest, APackedDocumentHasTheLossThatItHasAlone) {
  v1::RunConfig alone = packed();
  alone.mutable_data()->set_pack_documents(false);
  alone.mutable_data()->set_document_mask(false);
  alone.mutable_data()->set_reset_positions(false);
  const double expected = loss_of(alone);
  EXPECT_NEAR(loss_of(packed()), expected, 1e-6 * expected);
  v1::RunConfig going_on = packed();
  going_on.mutable_data()->set_reset_positions(false);
  EXPECT_GT(std::abs(loss_of(going_on) - expected), 1e-4 * expected)
      << "positions that go on are others to the model";
}

TEST_F(ResetPositionsTest, EveryMeshTrainsAsOneRank) {
  for (const char* model : {"config.json", "llama.json"}) {
    const Trace one = run_training(packed({}, model), 1, 4);
    for (const MeshSize& m :
         {MeshSize{2, 1, 1}, MeshSize{1, 3, 1}, MeshSize{1, 1, 2, true},
          MeshSize{1, 1, 1, false, 2}, MeshSize{1, 1, 1, false, 3}, MeshSize{1, 2, 1, false, 2}})
      expect_close(run_training(packed(m, model), m.ranks(), 4), one);
  }
  v1::RunConfig balanced = packed({1, 1, 1, false, 2});
  balanced.mutable_plan()->mutable_context_parallel()->set_load_balancer("per_document");
  expect_close(run_training(balanced, 2, 4), run_training(packed(), 1, 4));
}

TEST_F(ResetPositionsTest, ResumesBitwise) {
  for (const MeshSize& m : {MeshSize{}, MeshSize{1, 1, 1, false, 2}})
    expect_equal(run_training(packed(m), m.ranks(), 4, {2}), run_training(packed(m), m.ranks(), 4));
}

TEST_F(ResetPositionsTest, ACheckpointOfOtherPositionsIsRefused) {
  const test::TempFolder checkpoints;
  testing::run_ranks(1, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    v1::RunConfig before = packed();
    before.mutable_data()->set_reset_positions(false);
    {
      const auto run = create(world, context, before, checkpoints.path());
      run->forward_backward();
      run->optim_step();
      run->save_state();
    }
    try {
      create(world, context, packed(), checkpoints.path());
      FAIL() << "it went on";
    } catch (const FailedPrecondition& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("data.reset_positions"));
    }
    EXPECT_NO_THROW(create(world, context, before, checkpoints.path()));
  });
}

TEST_F(ResetPositionsTest, WithoutAMaskOrDocumentsItIsRefused) {
  const auto field = [&](const v1::RunConfig& c) {
    try {
      resolve_run_config(c, {.world_size = 1, .data_dir = folder_.path()});
    } catch (const InvalidArgument& error) {
      return error.metadata().at("field");
    }
    return std::string("accepted");
  };
  EXPECT_EQ(field(packed()), "accepted");
  v1::RunConfig c = packed();
  c.mutable_data()->set_document_mask(false);
  EXPECT_EQ(field(c), "run.data.reset_positions");
  c = packed();
  folder_.write_u16("tokens.bin", std::vector<std::uint16_t>(1000, 7));
  c.mutable_data()->set_path("tokens.bin");
  c.mutable_data()->clear_document_end();
  EXPECT_EQ(field(c), "run.data.document_end");
}

}  // namespace
}  // namespace meshloom::train
