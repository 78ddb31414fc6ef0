// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/optim/parameter_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/unit/train/tiny_model.h"

namespace meshloom::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kNames = {"transformer.wte.weight", "transformer.h.0.ln_1.weight",
                                         "transformer.h.0.attn.c_attn.weight",
                                         "transformer.h.1.ln_1.weight"};

class ParameterGroupsTest : public ::testing::Test {
 protected:
  /// The text of a refusal, which begins with its field.
  std::string refused() const {
    try {
      check_parameter_patterns(config_, model_);
    } catch (const InvalidArgument& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(error.metadata().at("field")));
      return error.what();
    }
    return "accepted";
  }
  std::string refused_frozen(const std::vector<std::string>& patterns) {
    config_.mutable_training()->clear_frozen();
    for (const std::string& pattern : patterns) config_.mutable_training()->add_frozen(pattern);
    return refused();
  }
  std::string refused_groups(const std::vector<std::string>& patterns) {
    config_.mutable_optimizer()->clear_groups();
    for (const std::string& pattern : patterns)
      config_.mutable_optimizer()->add_groups()->set_pattern(pattern);
    return refused();
  }

  v1::RunConfig config_;
  nn::ModelConfig model_ = nn::parse_hf_config(testing::tiny_gpt2_config());
};

TEST_F(ParameterGroupsTest, AModulesPatternStandsForAllBelowIt) {
  v1::TrainingConfig training;
  training.add_frozen("transformer.h.0");
  EXPECT_THAT(choose_frozen(training, model_, kNames), ElementsAre(false, true, true, false));
  training.set_frozen(0, "transformer.h.*.ln_1");
  EXPECT_THAT(choose_frozen(training, model_, kNames), ElementsAre(false, true, false, true));
  training.set_frozen(0, "transformer.h.1.ln_1.weight");
  EXPECT_THAT(choose_frozen(training, model_, kNames), ElementsAre(false, false, false, true));
  training.set_frozen(0, "transformer.*");
  training.add_frozen("transformer");
  EXPECT_THROW(choose_frozen(training, model_, kNames), InvalidArgument);
}

TEST_F(ParameterGroupsTest, RefusesWhatNamesNothingOrEverything) {
  EXPECT_EQ(refused_frozen({"transformer.wte"}), "accepted");
  EXPECT_THAT(refused_frozen({"transformer.wte", "transformer.h.0.attn.c_atn.weight"}),
              HasSubstr("run.training.frozen[1]: pattern \"transformer.h.0.attn.c_atn.weight\" "
                        "matches nothing; near misses: transformer.h.0.attn.c_attn.weight"));
  EXPECT_THAT(refused_frozen({"transformer.h.9"}), HasSubstr("run.training.frozen[0]"));
  EXPECT_THAT(refused_frozen({"transformer.h.[0"}), HasSubstr("run.training.frozen[0]"));
  EXPECT_THAT(
      refused_frozen({"lm_head"}),
      HasSubstr("run.training.frozen[0]: lm_head.weight is tied to transformer.wte.weight"));
  EXPECT_THAT(refused_frozen({"transformer"}), HasSubstr("run.training.frozen: names all"));
}

TEST_F(ParameterGroupsTest, RefusesGroupsThatOverlapOrAreFrozen) {
  EXPECT_EQ(refused_groups({"transformer.wte", "transformer.h.0"}), "accepted");
  EXPECT_THAT(refused_groups({"transformer.h.*", "transformer.h.0.ln_1.bias"}),
              HasSubstr("run.optimizer.groups[1].pattern: \"transformer.h.0.ln_1.bias\" and "
                        "\"transformer.h.*\" of groups[0] both name transformer.h.0.ln_1.bias"));
  EXPECT_THAT(refused_groups({"transformer.wty.weight"}),
              HasSubstr("run.optimizer.groups[0].pattern: pattern \"transformer.wty.weight\" "
                        "matches nothing; near misses: transformer.wte.weight"));
  refused_frozen({"transformer.h.0"});
  EXPECT_THAT(refused_groups({"transformer.h.0.ln_1"}),
              HasSubstr("run.optimizer.groups[0].pattern: all that it names is frozen"));
  EXPECT_EQ(refused_groups({"transformer.h.*"}), "accepted") << "the other layers are trained";
}

TEST_F(ParameterGroupsTest, AnLrOfItsOwnIsAFactorOfTheOptimizers) {
  v1::OptimizerConfig config;
  config.set_lr(0.5);
  config.add_groups()->set_lr(0.25);
  config.add_groups()->set_lr_factor(3.0);
  config.add_groups()->set_weight_decay(0.0);
  const auto groups = make_parameter_groups(config);
  EXPECT_EQ(groups[0].lr_factor, 0.5);
  EXPECT_EQ(groups[1].lr_factor, 3.0);
  EXPECT_EQ(groups[2].lr_factor, 1.0);
  EXPECT_EQ(groups[2].weight_decay, 0.0);
  EXPECT_FALSE(groups[0].weight_decay.has_value());
}

}  // namespace
}  // namespace meshloom::train
