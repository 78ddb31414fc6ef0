// SPDX-License-Identifier: Apache-2.0
// Validations count every token of their data, whatever fills a window, on every mesh.
#include <fstream>

#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const std::vector<MeshSize> kValidatedMeshes = {
    {2, 1, 1},           {4, 1, 1},           {1, 3, 1},           {1, 1, 2, true},
    {1, 1, 1, false, 2}, {1, 1, 1, false, 3}, {2, 1, 1, false, 2}, {1, 2, 2}};

/// Losses and labels of all batches.
LossSum sum_of(const std::vector<LossSum>& batches) {
  LossSum sum;
  for (const LossSum& batch : batches) {
    sum.loss += batch.loss;
    sum.labels += batch.labels;
  }
  return sum;
}

class WholeValidationTest : public RunFixture {
 protected:
  void SetUp() override {
    RunFixture::SetUp();
    folder_.write_text("seven.txt", "in the ");  // less than a window of 16
    folder_.write_text("rest.txt", "and then they went on to another town");  // 2 windows and 4
  }
  v1::RunConfig on(const MeshSize& m, const std::string& data) const {
    v1::RunConfig c = config();
    set_mesh(c, m);
    c.mutable_data()->set_validation_path(data);
    c.mutable_validation()->set_interval(1);
    return c;
  }
  LossSum evaluate(const v1::RunConfig& c, int ranks) const {
    LossSum sum;
    testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const LossSum mine = sum_of(create(world, context, c)->evaluate(0, 1000));
      if (world.rank() == 0) sum = mine;
    });
    return sum;
  }
  /// The newest checkpoint as one that was written before validations counted every token.
  static void make_older(const fs::path& checkpoint) {
    Manifest manifest = read_manifest(checkpoint);
    manifest.validates_all = false;
    std::ofstream(checkpoint / kManifestName) << manifest_to_json(manifest);
  }
};

TEST_F(WholeValidationTest, EveryTokenCountsOnceOnEveryMesh) {
  const std::map<std::string, double> labels = {
      {"seven.txt", 6}, {"rest.txt", 36}, {"text.txt", 3999}};
  for (const auto& [data, expected] : labels) {
    const LossSum one = evaluate(on({}, data), 1);
    EXPECT_EQ(one.labels, expected) << data;
    // The same pairs in the same windows, as a document of its own.
    v1::RunConfig document = on({}, data);
    document.mutable_data()->set_pack_documents(false);
    EXPECT_NEAR(evaluate(document, 1).loss, one.loss, 1e-6 * one.loss) << data;
    for (const MeshSize& m : kValidatedMeshes) {
      const LossSum sum = evaluate(on(m, data), m.ranks());
      EXPECT_EQ(sum.labels, expected) << data;
      EXPECT_NEAR(sum.loss, one.loss, 1e-5 * one.loss) << data;
    }
  }
}

TEST_F(WholeValidationTest, TheEndOfTheDataToo) {
  v1::RunConfig c = config();
  c.mutable_validation()->set_interval(1);
  EXPECT_EQ(evaluate(c, 1).labels, 199) << "of the last 200 tokens";
}

TEST_F(WholeValidationTest, ALimitOfBatchesEndsBeforeTheData) {
  const v1::RunConfig c = on({2, 1, 1}, "text.txt");
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto run = create(world, context, c);
    const auto all = run->evaluate(0, 1000);
    ASSERT_EQ(all.size(), 42u) << "250 samples, 6 at once";
    const auto first = run->evaluate(0, 3);
    ASSERT_EQ(first.size(), 3u);
    EXPECT_EQ(sum_of(first).loss, all[0].loss + all[1].loss + all[2].loss);
  });
}

TEST_F(WholeValidationTest, AMaskedModelIsAskedForEveryToken) {
  folder_.write_text("bert.json", R"({"model_type": "bert", "architectures": ["BertForMaskedLM"],
      "vocab_size": 259, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
      "num_attention_heads": 3, "max_position_embeddings": 16, "type_vocab_size": 2,
      "hidden_act": "gelu", "layer_norm_eps": 1e-12, "initializer_range": 0.1})");
  const auto bert = [&](const MeshSize& m, const std::string& data) {
    v1::RunConfig c = on(m, data);
    c.mutable_model()->set_config("bert.json");
    c.mutable_data()->set_tokenizer("bytes");
    c.mutable_data()->mutable_masked_lm()->set_mask_token(256);
    c.mutable_data()->mutable_masked_lm()->set_probability(1.0);
    c.mutable_data()->mutable_masked_lm()->set_mask_share(0.8);
    return c;
  };
  for (const auto& [data, tokens] :
       std::map<std::string, double>{{"seven.txt", 7}, {"rest.txt", 37}}) {
    const LossSum one = evaluate(bert({}, data), 1);
    EXPECT_EQ(one.labels, tokens) << data;
    for (const MeshSize& m : kValidatedMeshes) {
      const LossSum sum = evaluate(bert(m, data), m.ranks());
      EXPECT_EQ(sum.labels, tokens) << data;
      EXPECT_NEAR(sum.loss, one.loss, 1e-5 * one.loss) << data;
    }
  }
}

TEST_F(WholeValidationTest, AJobThatLeftTheRestOutGoesOnSo) {
  const v1::RunConfig c = on({2, 1, 1}, "rest.txt");
  const test::TempFolder checkpoints;
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto step_and_save = [&] {
      const auto run = create(world, context, c, checkpoints.path());
      run->forward_backward();
      run->optim_step();
      const fs::path saved = run->save_state();
      return std::tuple(sum_of(run->evaluate(0, 9)).labels, run->notes(), saved);
    };
    const auto [all, quiet, first] = step_and_save();
    EXPECT_EQ(all, 36);
    EXPECT_THAT(quiet, ::testing::Not(Contains(HasSubstr("leave out"))));
    world.barrier()->wait_host();
    if (world.rank() == 0) make_older(first);
    world.barrier()->wait_host();
    const auto [whole, told, second] = step_and_save();
    EXPECT_EQ(whole, 32) << "two windows, as its losses before";
    EXPECT_THAT(told, Contains(HasSubstr("validations leave out the last tokens")));
    const auto [still, again, third] = step_and_save();
    EXPECT_EQ(still, 32) << "its own checkpoints keep it so";
    EXPECT_FALSE(read_manifest(third).validates_all);
  });
}

TEST_F(WholeValidationTest, AnotherJobThatBeginsWithItsCheckpointCountsAnew) {
  v1::RunConfig c = on({}, "rest.txt");
  c.mutable_training()->mutable_early_stopping()->set_patience(5);
  const test::TempFolder checkpoints;
  testing::run_ranks(1, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    v1::ValidationProgress progress;
    progress.set_step(1);
    progress.set_best_loss(0.1);
    progress.set_not_better(3);
    const auto run = create(world, context, c, checkpoints.path());
    run->forward_backward();
    run->optim_step();
    const fs::path saved = run->save_state(progress);
    make_older(saved);
    RunOptions options;
    options.folders.data_dir = folder_.path();
    options.folders.resume_from = saved;
    test::LocalJob other(RankResources{&context, &world},
                         resolve_run_config(c, {.world_size = 1, .data_dir = folder_.path()}),
                         options);
    EXPECT_EQ(sum_of(other.evaluate(0, 9)).labels, 36);
    EXPECT_EQ(other.validation_progress().not_better(), 0);
    EXPECT_THAT(other.notes(), Contains(HasSubstr("early stopping begins anew")));
  });
}

}  // namespace
}  // namespace meshloom::train
