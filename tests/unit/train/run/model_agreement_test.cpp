// SPDX-License-Identifier: Apache-2.0
// Runs of a folder whose output head is not the embedding, though its config.json ties them.
#include "daemon/train/run/model_agreement.h"

#include <algorithm>
#include <list>

#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resume_check.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/files/hf_folder.h"
#include "daemon/train/run/sampler.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbedding = "transformer.wte.weight";

class ModelAgreementTest : public RunFixture {
 protected:
  void SetUp() override {
    RunFixture::SetUp();
    const auto world = testing::make_single_world();
    testing::TestContext context;
    create(*world, context, config())->export_hf(folder_.path() / "hf", "float32");
  }

  v1::RunConfig from_folder(const MeshSize& m = {}) const {
    v1::RunConfig c = config();
    c.mutable_model()->clear_config();
    c.mutable_model()->set_hf_folder("hf");
    c.mutable_training()->set_micro_batch_size(1);
    set_mesh(c, m);
    return c;
  }
  /// Puts a head with other values beside the embedding of the folder.
  void add_head() const {
    const fs::path path = folder_.path() / "hf/model.safetensors";
    const auto file = SafetensorsFile::open(path);
    std::vector<NamedView> tensors;
    for (const SafetensorsEntry& entry : file->entries())
      tensors.push_back({entry.name, file->view(entry)});
    const TensorView embedding = file->view(kEmbedding);
    std::vector<float> head(embedding.as<const float>(),
                            embedding.as<const float>() + numel(embedding.shape));
    std::reverse(head.begin(), head.end());
    tensors.push_back({kHead, make_view(head.data(), DType::kFloat32, embedding.shape)});
    write_safetensors(folder_.path() / "new.safetensors", tensors);
    fs::rename(folder_.path() / "new.safetensors", path);
  }
  /// Its values in the folder that it began with, before the first step.
  double first_loss(const v1::RunConfig& c, std::vector<std::string>* notes = nullptr) const {
    double loss = 0.0;
    testing::run_ranks(mesh_layout_size(c), [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, c);
      const std::vector<LossSum> mine = run->evaluate(0, 2);
      if (world.rank() != 0) return;
      loss = mean_loss(mine);
      if (notes) *notes = run->notes();
    });
    return loss;
  }
  static int mesh_layout_size(const v1::RunConfig& c) {
    const auto size = [](int n) { return std::max(n, 1); };
    return size(c.mesh().dp()) * size(c.mesh().fsdp()) * size(c.mesh().cp()) * size(c.mesh().tp());
  }
  nn::ModelConfig model_of(const fs::path& checkpoint) const {
    return nn::parse_hf_config(read_manifest(checkpoint).model_config);
  }
};

TEST_F(ModelAgreementTest, TheHeadIsKeptOnEveryMeshWithANote) {
  const double tied = first_loss(from_folder());
  add_head();
  std::vector<std::string> notes, warnings;
  const double untied = first_loss(from_folder(), &notes);
  EXPECT_GT(std::abs(untied - tied), 0.01);
  EXPECT_THAT(notes, Contains(HasSubstr(kHead)));
  resolve_run_config(from_folder(), {.world_size = 1, .data_dir = folder_.path()}, &warnings);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr(kHead)));
  EXPECT_FALSE(load_model_config(from_folder().model(), folder_.path()).tie_word_embeddings);
  for (const MeshSize& m : {MeshSize{2, 1, 1}, MeshSize{1, 2, 1}, MeshSize{1, 1, 2}})
    EXPECT_NEAR(first_loss(from_folder(m)), untied, 1e-5 * untied)
        << m.dp << ' ' << m.fsdp << ' ' << m.tp;
}

TEST_F(ModelAgreementTest, CheckpointsAndExportsAreUntiedAndGoneOnFrom) {
  add_head();
  const Trace whole = run_training(from_folder(), 1, 4);
  const Trace in_parts = run_training(from_folder(), 1, 4, {2});
  expect_equal(in_parts, whole);
  EXPECT_TRUE(whole.weights.contains(std::string("model.") + kHead));

  const test::TempFolder checkpoints;
  const auto world = testing::make_single_world();
  testing::TestContext context;
  const auto run = create(*world, context, from_folder(), checkpoints.path());
  const fs::path saved = run->save_state();
  EXPECT_FALSE(model_of(saved).tie_word_embeddings);
  run->export_hf(folder_.path() / "out", "float32");
  EXPECT_FALSE(HfFolder::open(folder_.path() / "out").config().tie_word_embeddings);
  const SampleStart start{.prompt = {'a', 'b'}, .params = {}};
  const auto drawn = draw_all(*run, start);
  const auto of_folder = Sampler::load({}, folder_.path() / "hf");
  EXPECT_EQ(draw_all(*of_folder, start), drawn);
  EXPECT_THAT(of_folder->prompt_limits().notes, ElementsAre(HasSubstr(kHead)));
  EXPECT_EQ(draw_all(*Sampler::load({}, saved), start), drawn);

  // The folder is not needed any more, whatever is in it.
  fs::remove(folder_.path() / "hf/model.safetensors");
  const auto again = create(*world, context, from_folder(), checkpoints.path());
  EXPECT_EQ(again->evaluate(0, 2)[0].loss, run->evaluate(0, 2)[0].loss);
}

TEST_F(ModelAgreementTest, WhatWasTrainedTiedStaysTied) {
  // As a checkpoint of a version that took the embedding for the head.
  const test::TempFolder checkpoints;
  const auto world = testing::make_single_world();
  testing::TestContext context;
  fs::path saved;
  double loss = 0.0;
  {
    const auto run = create(*world, context, from_folder(), checkpoints.path());
    Trace trace;
    steps(*run, 2, trace);
    saved = run->save_state();
    loss = mean_loss(run->evaluate(0, 2));
  }
  add_head();
  const auto own = create(*world, context, from_folder(), checkpoints.path());
  EXPECT_EQ(own->step(), 2);
  EXPECT_EQ(mean_loss(own->evaluate(0, 2)), loss);
  EXPECT_THAT(own->notes(), Contains(HasSubstr("stays tied")));
  EXPECT_TRUE(model_of(saved).tie_word_embeddings);

  v1::RunConfig next = from_folder();
  next.mutable_checkpoint()->set_resume_from("of another job");
  std::vector<std::string> warnings;
  v1::RunConfig resolved =
      resolve_run_config(next, {.world_size = 1, .data_dir = folder_.path()}, &warnings);
  EXPECT_THAT(warnings, IsEmpty());
  resolve_resume_from(next, &resolved, saved, {folder_.path()});
  RunOptions options;
  options.folders.data_dir = folder_.path();
  options.folders.resume_from = saved;
  const test::LocalJob resumed({&context, world.get()}, resolved, options);
  EXPECT_EQ(resumed.step(), 2);
  EXPECT_THAT(resumed.notes(), Contains(HasSubstr("stays tied")));
}

}  // namespace
}  // namespace meshloom::train
