// SPDX-License-Identifier: Apache-2.0
// What a job does beside its steps: what is refused, and with which field.
#include "daemon/train/config/resolve_services.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "daemon/train/config/resolve.h"
#include "daemon/train/data/run_data.h"
#include "daemon/train/run/run.h"
#include "tests/unit/train/data_files.h"
#include "tests/unit/train/tiny_model.h"

namespace meshloom::train {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ResolveServicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write_text("config.json", testing::tiny_gpt2_config());
    folder_.write_text("text.txt", std::string(2000, 'a'));
    folder_.write_text("books.txt", std::string(500, 'b'));
    folder_.write_text("short.txt", "c");
  }

  v1::RunConfig config() const {
    v1::RunConfig config;
    config.mutable_model()->set_config("config.json");
    config.mutable_data()->set_path("text.txt");
    config.mutable_training()->set_steps(10);
    config.mutable_training()->set_global_batch_size(6);
    config.mutable_validation()->set_interval(5);
    return config;
  }
  static void add_set(v1::RunConfig& config, const std::string& name, const std::string& path) {
    v1::ValidationSet& set = *config.mutable_validation()->add_sets();
    set.set_name(name);
    set.set_path(path);
  }
  v1::RunConfig resolve(const v1::RunConfig& given, std::vector<std::string>* warnings = nullptr) {
    return resolve_run_config(given, {.world_size = 1, .data_dir = folder_.path()}, warnings);
  }
  /// "FIELD: ..." of the refusal of a config that `change` has made another.
  std::string refused(const std::function<void(v1::RunConfig&)>& change) {
    v1::RunConfig changed = config();
    change(changed);
    try {
      resolve(changed);
    } catch (const Error& error) {
      const auto field = error.metadata().find("field");
      EXPECT_NE(field, error.metadata().end()) << error.what();
      const std::string text = error.what();
      EXPECT_TRUE(field == error.metadata().end() || text.starts_with(field->second)) << text;
      return text;
    }
    return "accepted";
  }

  testing::DataFolder folder_;
};

TEST_F(ResolveServicesTest, ADefaultConfigSaysNothingOfThem) {
  const v1::RunConfig resolved = resolve(config());
  EXPECT_FALSE(resolved.training().has_early_stopping());
  EXPECT_FALSE(resolved.checkpoint().has_last());
  EXPECT_EQ(resolved.checkpoint().keep_best(), 0);
  EXPECT_THAT(resolved.validation().sets(), IsEmpty());
  EXPECT_TRUE(resolved.metrics().tensorboard());
  EXPECT_EQ(resolved.metrics().interval(), 1);
  EXPECT_THAT(resolved.training().watch(), IsEmpty());
}

TEST_F(ResolveServicesTest, RefusesMetricsAndConditionsThatCannotBe) {
  EXPECT_THAT(refused([](v1::RunConfig& c) { c.mutable_metrics()->set_interval(0); }),
              HasSubstr("run.metrics.interval: must be above 0, got 0"));
  EXPECT_EQ(refused([](v1::RunConfig& c) { c.mutable_metrics()->set_tensorboard(false); }),
            "accepted");
  const auto with = [&](const std::function<void(v1::WatchCondition&)>& set) {
    return refused([&](v1::RunConfig& c) {
      c.mutable_training()->add_watch()->set_loss_above(5.0);
      set(*c.mutable_training()->add_watch());
    });
  };
  EXPECT_EQ(with([](auto& watch) { watch.set_loss_above(0.0); }), "accepted");
  EXPECT_EQ(with([](auto& watch) { watch.set_tokens_per_second_below(0.5); }), "accepted");
  EXPECT_THAT(with([](auto& watch) { watch.set_cancel(true); }),
              HasSubstr("run.training.watch[1]: has 0 limits, expected one of loss_above"));
  EXPECT_THAT(with([](auto& watch) {
                watch.set_loss_above(1.0);
                watch.set_grad_norm_above(1.0);
              }),
              HasSubstr("run.training.watch[1]: has 2 limits"));
  EXPECT_THAT(with([](auto& watch) { watch.set_grad_norm_above(-1.0); }),
              HasSubstr("run.training.watch[1].grad_norm_above: must be in"));
  EXPECT_THAT(with([](auto& watch) { watch.set_loss_above(NAN); }),
              HasSubstr("run.training.watch[1].loss_above: must be in"));
  for (const double share : {0.0, 1.0, -0.5, 2.0})
    EXPECT_THAT(with([&](auto& watch) { watch.set_tokens_per_second_below(share); }),
                HasSubstr("run.training.watch[1].tokens_per_second_below: must be above 0"));
  EXPECT_THAT(refused([](v1::RunConfig& c) {
                for (int i = 0; i < 17; ++i) c.mutable_training()->add_watch()->set_loss_above(i);
              }),
              HasSubstr("run.training.watch: has 17 entries, at most 16"));
}

TEST_F(ResolveServicesTest, ValidationSetsAreOpenedByName) {
  v1::RunConfig given = config();
  add_set(given, "books", "books.txt");
  const v1::RunConfig resolved = resolve(given);
  const RunData data =
      open_run_data(resolved, nn::parse_hf_config(testing::tiny_gpt2_config()), folder_.path());
  ASSERT_EQ(data.validation_sets.size(), 1u);
  EXPECT_EQ(data.validation_sets[0]->tokens(), 500);
}

TEST_F(ResolveServicesTest, RefusesSetsThatAreWrong) {
  const auto with = [&](const std::string& name, const std::string& path) {
    return refused([&](v1::RunConfig& c) { add_set(c, name, path); });
  };
  EXPECT_THAT(with("Books", "books.txt"), HasSubstr("run.validation.sets[0].name: \"Books\""));
  EXPECT_THAT(with("", "books.txt"), HasSubstr("run.validation.sets[0].name"));
  EXPECT_THAT(with("books", ""), HasSubstr("run.validation.sets[0].path: \"\" is empty"));
  EXPECT_THAT(with("books", "none.txt"), HasSubstr("run.validation.sets[0].path"));
  EXPECT_THAT(with("books", "../books.txt"), HasSubstr("run.validation.sets[0].path"));
  EXPECT_THAT(with("books", "short.txt"),
              HasSubstr("run.validation.sets[0].path: 1 tokens hold nothing"));
  EXPECT_THAT(refused([&](v1::RunConfig& c) {
                add_set(c, "books", "books.txt");
                add_set(c, "books", "text.txt");
              }),
              HasSubstr("run.validation.sets[1].name: \"books\" is the name of two sets"));
  EXPECT_THAT(refused([&](v1::RunConfig& c) {
                add_set(c, "books", "books.txt");
                c.mutable_validation()->set_interval(0);
              }),
              HasSubstr("run.validation.sets: are given"));
}

TEST_F(ResolveServicesTest, RefusesEarlyStoppingThatCannotBe) {
  const auto with = [&](const std::function<void(v1::EarlyStoppingConfig&, v1::RunConfig&)>& set) {
    return refused([&](v1::RunConfig& c) {
      add_set(c, "books", "books.txt");
      v1::EarlyStoppingConfig& stopping = *c.mutable_training()->mutable_early_stopping();
      stopping.set_patience(2);
      set(stopping, c);
    });
  };
  EXPECT_EQ(with([](auto&, auto&) {}), "accepted");
  EXPECT_EQ(with([](auto& stopping, auto&) { stopping.set_validation_set("books"); }), "accepted");
  EXPECT_THAT(with([](auto& stopping, auto&) { stopping.set_patience(0); }),
              HasSubstr("run.training.early_stopping.patience: must be at least 1, got 0"));
  EXPECT_THAT(with([](auto& stopping, auto&) { stopping.set_min_delta(-0.5); }),
              HasSubstr("run.training.early_stopping.min_delta"));
  EXPECT_THAT(with([](auto& stopping, auto&) { stopping.set_validation_set("boks"); }),
              HasSubstr("run.training.early_stopping.validation_set: \"boks\" is none of "
                        "run.validation.sets, did you mean \"books\"?"));
  EXPECT_THAT(with([](auto&, v1::RunConfig& c) {
                c.mutable_validation()->set_interval(0);
                c.mutable_validation()->clear_sets();
              }),
              HasSubstr("run.training.early_stopping: needs validations"));
}

TEST_F(ResolveServicesTest, RefusesBestCheckpointsThatCannotBe) {
  EXPECT_EQ(refused([](v1::RunConfig& c) { c.mutable_checkpoint()->set_keep_best(1); }),
            "accepted");
  EXPECT_THAT(refused([](v1::RunConfig& c) { c.mutable_checkpoint()->set_keep_best(-1); }),
              HasSubstr("run.checkpoint.keep_best: must be at least 0, got -1"));
  EXPECT_THAT(refused([](v1::RunConfig& c) {
                c.mutable_checkpoint()->set_keep_best(1);
                c.mutable_validation()->set_interval(0);
              }),
              HasSubstr("run.checkpoint.keep_best: needs validations"));
  EXPECT_THAT(refused([](v1::RunConfig& c) {
                c.mutable_checkpoint()->set_keep_best(1);
                c.mutable_checkpoint()->set_validation_set("books");
              }),
              HasSubstr("run.checkpoint.validation_set: \"books\" is none of"));
  EXPECT_THAT(refused([](v1::RunConfig& c) { c.mutable_checkpoint()->set_validation_set("a"); }),
              HasSubstr("run.checkpoint.validation_set: says whose losses"));
}

TEST_F(ResolveServicesTest, WarnsWhereNoWeightsAreKept) {
  v1::RunConfig given = config();
  given.mutable_checkpoint()->set_last(false);
  std::vector<std::string> warnings;
  resolve(given, &warnings);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("lost when the job ends"));
  given.mutable_checkpoint()->set_keep_best(1);
  warnings.clear();
  resolve(given, &warnings);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(ResolveServicesTest, RefusesSamplesThatCannotBeDrawn) {
  const auto with = [&](const std::function<void(v1::SampleConfig&)>& set) {
    return refused([&](v1::RunConfig& c) { set(*c.mutable_sample()); });
  };
  EXPECT_EQ(with([](auto& sample) {
              sample.set_interval(5);
              sample.add_prompts("ab");
              sample.add_prompts("cd");
            }),
            "accepted");
  EXPECT_THAT(with([](auto& sample) { sample.set_interval(5); }),
              HasSubstr("run.sample.prompts: are needed to draw samples every 5 steps"));
  EXPECT_THAT(with([](auto& sample) { sample.set_interval(-5); }),
              HasSubstr("run.sample.interval: must be at least 0, got -5"));
  EXPECT_THAT(with([](auto& sample) {
                sample.add_prompts("ab");
                sample.add_prompts("");
              }),
              HasSubstr("run.sample.prompts[1]: is empty"));
  EXPECT_THAT(with([](auto& sample) { sample.add_prompts(std::string(500, 'a')); }),
              HasSubstr("run.sample.prompts[0]: 500 tokens are more than the model's context"));
  EXPECT_THAT(with([](auto& sample) {
                for (int i = 0; i < 16; ++i) sample.add_prompts("ab");
              }),
              HasSubstr("run.sample.prompts: must be at most 15, got 16"));
}

}  // namespace
}  // namespace meshloom::train
