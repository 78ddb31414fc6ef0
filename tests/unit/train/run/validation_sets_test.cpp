// SPDX-License-Identifier: Apache-2.0
// Runs that are validated on several sets, and the checkpoints that their losses keep.
#include <nlohmann/json.hpp>

#include "daemon/train/config/resolve.h"
#include "daemon/train/config/validation_progress.h"
#include "daemon/train/files/checkpoint_check.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

using ::testing::ElementsAre;

class ValidationSetsTest : public RunFixture {
 protected:
  void SetUp() override {
    RunFixture::SetUp();
    folder_.write_text("books.txt", std::string(300, 'k') + std::string(300, 'b'));
    folder_.write_text("again.txt", std::string(300, 'k') + std::string(300, 'b'));
  }
  v1::RunConfig with_sets() const {
    v1::RunConfig with = config();
    with.mutable_data()->set_validation_path("again.txt");
    with.mutable_validation()->set_interval(1);
    with.mutable_checkpoint()->set_keep_best(2);
    with.mutable_checkpoint()->set_keep_latest_k(1);
    for (const char* name : {"books", "text"}) {
      v1::ValidationSet& set = *with.mutable_validation()->add_sets();
      set.set_name(name);
      set.set_path(std::string(name) + ".txt");
    }
    return with;
  }
  static v1::ValidationMetrics validation(std::int64_t step, double loss) {
    v1::ValidationMetrics metrics;
    metrics.set_step(step);
    metrics.set_loss(loss);
    return metrics;
  }
  static std::vector<std::int64_t> steps_below(const fs::path& folder) {
    std::vector<std::int64_t> steps;
    for (const CheckpointEntry& entry : list_checkpoints(folder)) steps.push_back(entry.step);
    return steps;
  }
};

TEST_F(ValidationSetsTest, EachIsEvaluatedAsDataOfItsOwn) {
  std::vector<double> of_one;
  for (const int ranks : {1, 2, 3}) {
    testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, with_sets());
      const double own = mean_loss(run->evaluate(0, 3)),
                   books = mean_loss(run->evaluate(0, 3, "books")),
                   text = mean_loss(run->evaluate(0, 3, "text"));
      EXPECT_EQ(books, own) << "the same bytes in another file";
      EXPECT_NE(text, own);
      EXPECT_THROW(run->evaluate(0, 1, "none"), FailedPrecondition);
      EXPECT_TRUE(run->evaluate(1000, 3, "books").empty()) << "the data end before";
      if (world.rank() != 0) return;
      if (of_one.empty()) of_one = {own, text};
      EXPECT_NEAR(own, of_one[0], 1e-5 * own);
      EXPECT_NEAR(text, of_one[1], 1e-5 * text);
    });
  }
}

TEST_F(ValidationSetsTest, TrainingIsTheSameWithAndWithoutThem) {
  const Trace without = run_training(config(), 2, 6);
  v1::RunConfig with = with_sets();
  with.mutable_data()->clear_validation_path();
  expect_equal(run_training(with, 2, 6), without);
}

TEST_F(ValidationSetsTest, TheBestOutliveTheLatest) {
  const test::TempFolder checkpoints;
  const v1::RunConfig with = with_sets();
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto run = create(world, context, with, checkpoints.path());
    v1::ValidationProgress progress;
    const std::vector<double> losses = {3.0, 1.0, 2.0, 4.0, 5.0, 0.5};
    for (std::size_t i = 0; i < losses.size(); ++i) {
      run->forward_backward();
      run->optim_step();
      add_best(with, validation(run->step(), losses[i]), &progress);
      run->save_state(progress);
      if (run->step() == 5 && world.rank() == 0) {
        EXPECT_THAT(steps_below(checkpoints.path()), ElementsAre(2, 3, 5));
      }
    }
    if (world.rank() == 0) {
      EXPECT_THAT(steps_below(checkpoints.path()), ElementsAre(2, 6));
    }
  });
}

TEST_F(ValidationSetsTest, AResumeOnAnotherMeshKnowsWhatWasCounted) {
  const test::TempFolder checkpoints;
  const v1::RunConfig with = with_sets();
  v1::ValidationProgress progress;
  progress.set_step(1);
  progress.set_best_loss(0.1);
  progress.set_not_better(3);
  add_best(with, validation(1, 0.1), &progress);
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto run = create(world, context, with, checkpoints.path());
    EXPECT_EQ(run->validation_progress().ByteSizeLong(), 0u);
    run->forward_backward();
    run->optim_step();
    run->save_state(progress);
  });
  testing::run_ranks(3, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto run = create(world, context, with, checkpoints.path());
    EXPECT_EQ(run->validation_progress().SerializeAsString(), progress.SerializeAsString());
  });
}

TEST_F(ValidationSetsTest, AValidationThatIsMadeUpForIsAddedToItsCheckpoint) {
  const test::TempFolder checkpoints;
  const v1::RunConfig with = with_sets();
  testing::run_ranks(1, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    {
      const auto run = create(world, context, with, checkpoints.path());
      run->forward_backward();
      run->optim_step();
      run->save_state();
    }
    const auto weights = weights_of(checkpoints / "step-1");
    const auto run = create(world, context, with, checkpoints.path());
    EXPECT_EQ(run->validation_progress().ByteSizeLong(), 0u);
    v1::ValidationProgress progress;
    add_best(with, validation(1, 0.1), &progress);
    EXPECT_EQ(run->save_state(progress), checkpoints / "step-1");
    EXPECT_THAT(read_validation_progress(checkpoints / "step-1"), ::testing::HasSubstr("0.1"));
    EXPECT_EQ(weights_of(checkpoints / "step-1"), weights);
    EXPECT_NO_THROW(verify_files(checkpoints / "step-1", read_manifest(checkpoints / "step-1")));
    EXPECT_EQ(create(world, context, with, checkpoints.path())->validation_progress().best_size(),
              1);
  });
}

TEST_F(ValidationSetsTest, AnotherJobTakesOverWhatItCountsAlike) {
  const test::TempFolder checkpoints;
  v1::RunConfig with = with_sets();
  with.mutable_training()->mutable_early_stopping()->set_patience(5);
  v1::ValidationProgress progress;
  progress.set_step(1);
  progress.set_best_loss(0.1);
  progress.set_not_better(3);
  add_best(with, validation(1, 0.1), &progress);
  testing::run_ranks(1, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto run = create(world, context, with, checkpoints.path());
    run->forward_backward();
    run->optim_step();
    run->save_state(progress);
    const auto begun_with_it = [&](const v1::RunConfig& other) {
      RunOptions options;
      options.folders.data_dir = folder_.path();
      options.folders.resume_from = checkpoints / "step-1";
      return std::make_unique<test::LocalJob>(
          RankResources{&context, &world},
          resolve_run_config(other, {.world_size = 1, .data_dir = folder_.path()}), options);
    };
    const auto alike = begun_with_it(with)->validation_progress();
    EXPECT_EQ(alike.not_better(), 3);
    EXPECT_EQ(alike.best_size(), 0) << "these are in the other job's folder";
    v1::RunConfig less_patient = with;
    less_patient.mutable_training()->mutable_early_stopping()->set_patience(2);
    EXPECT_EQ(begun_with_it(less_patient)->validation_progress().not_better(), 0)
        << "it would end before its first step";
    v1::RunConfig by_books = with;
    by_books.mutable_training()->mutable_early_stopping()->set_validation_set("books");
    const auto other = begun_with_it(by_books);
    EXPECT_EQ(other->validation_progress().not_better(), 0);
    EXPECT_THAT(other->notes(),
                ::testing::Contains(::testing::HasSubstr("early stopping begins anew")));
  });
}

}  // namespace
}  // namespace meshloom::train
