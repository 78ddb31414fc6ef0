// SPDX-License-Identifier: Apache-2.0
// Styles of a config, checked against a model without memory or ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/train/config/resolve.h"
#include "daemon/train/run/run.h"
#include "kernels/base/error.h"
#include "tests/unit/train/data_files.h"
#include "tests/unit/train/tiny_model.h"

namespace meshloom::train {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kFields[] = {"transformer.h.*.mlp.c_fc", "transformer.h.*.mlp.c_proj"};

class TensorPlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write_text("config.json", testing::tiny_gpt2_config());
    folder_.write_text("text.txt", std::string(2000, 'a'));
    config_.mutable_model()->set_config("config.json");
    config_.mutable_data()->set_path("text.txt");
    config_.mutable_training()->set_steps(1);
    config_.mutable_training()->set_global_batch_size(2);
    config_.mutable_mesh()->set_tp(2);
    add(kFields[0], "ColwiseParallel");
    add(kFields[1], "RowwiseParallel");
  }
  v1::ParallelStyle& add(const std::string& pattern, const std::string& style) {
    auto& entry = *config_.mutable_plan()->add_styles();
    entry.set_pattern(pattern);
    auto& added = *entry.add_styles();
    added.set_style(style);
    return added;
  }
  std::vector<std::string> warnings() const {
    std::vector<std::string> warnings;
    resolve_run_config(config_, {.world_size = config_.mesh().tp(), .data_dir = folder_.path()},
                       &warnings);
    return warnings;
  }
  /// "FIELD | TEXT" of what is thrown at submission.
  std::string refusal() const {
    try {
      resolve_run_config(config_, {.world_size = config_.mesh().tp(), .data_dir = folder_.path()});
    } catch (const InvalidArgument& error) {
      return error.metadata().at("field") + " | " + error.what();
    }
    return "accepted";
  }

  testing::DataFolder folder_;
  v1::RunConfig config_;
};

TEST_F(TensorPlanTest, ATakenPlanHasNoWarnings) { EXPECT_THAT(warnings(), IsEmpty()); }

TEST_F(TensorPlanTest, APatternThatMatchesNothingWarnsWithNearMisses) {
  add("transformer.h.*.attn.c_atn", "ColwiseParallel");
  EXPECT_THAT(warnings(), ElementsAre(AllOf(HasSubstr("\"transformer.h.*.attn.c_atn\""),
                                            HasSubstr("transformer.h.0.attn.c_attn"))));
}

TEST_F(TensorPlanTest, SaysWhereNothingIsSharded) {
  config_.mutable_plan()->clear_styles();
  add("transformer.h.*.ln_1", "SequenceParallel");
  EXPECT_THAT(warnings(), Contains(HasSubstr("no parameter is sharded")));
}

TEST_F(TensorPlanTest, SaysWhereRanksHaveNoHeads) {
  config_.mutable_plan()->clear_styles();
  config_.mutable_mesh()->set_tp(3);
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("3 ranks share 2 attention heads")));
}

TEST_F(TensorPlanTest, MalformedAndTyingPatternsAreRefused) {
  auto before = config_;
  add("transformer.h.[0-", "ColwiseParallel");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("run.plan.styles | "), HasSubstr("not closed")));
  config_ = before;
  add("transformer.*.0.mlp.c_fc", "ColwiseParallel");
  EXPECT_THAT(refusal(), HasSubstr("equally well"));
  config_ = before;
  add(kFields[0], "RowwiseParallel");
  EXPECT_THAT(refusal(), HasSubstr("twice in the plan"));
}

TEST_F(TensorPlanTest, AStyleThatDoesNotFitItsModuleIsRefused) {
  auto before = config_;
  add("transformer.h.*.ln_1", "ColwiseParallel");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("run.plan.styles | "),
                               HasSubstr("ColwiseParallel of transformer.h.0.ln_1")));
  config_ = before;
  add("transformer.h.*.attn", "SequenceParallel");
  EXPECT_THAT(refusal(), HasSubstr("its sequence cannot be sharded"));
  config_ = before;
  config_.mutable_plan()->mutable_styles(0)->add_styles()->set_style("RowwiseParallel");
  EXPECT_THAT(refusal(), HasSubstr("has spread its parameters already"));
  config_ = before;
  add("transformer.ln_f", "PrepareModuleInput").add_input_layouts("R");
  EXPECT_THAT(refusal(), HasSubstr("1 input layouts, but 0 desired layouts"));
  config_ = before;
  auto& style = *config_.mutable_plan()->mutable_styles(0)->mutable_styles(0);
  style.add_input_layouts("R");
  style.add_input_layouts("R");
  EXPECT_THAT(refusal(), HasSubstr("2 layouts for a module with 1 inputs"));
}

TEST_F(TensorPlanTest, OptionsAndPlacementsThatThereAreNotAreRefused) {
  const auto before = config_;
  const auto field = [&](const auto& change) {
    config_ = before;
    change(*config_.mutable_plan()->mutable_styles(1)->mutable_styles(0));
    const std::string text = refusal();
    return text.substr(0, text.find(' '));
  };
  const std::string path = "run.plan.styles[1].styles[0].";
  EXPECT_EQ(field([](auto& s) { s.set_style("RowWiseParallel"); }), path + "style");
  EXPECT_EQ(field([](auto& s) { s.set_sequence_dim(1); }), path + "sequence_dim");
  EXPECT_EQ(field([](auto& s) { s.set_use_local_input(true); }), path + "use_local_input");
  EXPECT_EQ(field([](auto& s) { s.add_desired_input_layouts("R"); }),
            path + "desired_input_layouts");
  EXPECT_EQ(field([](auto& s) { s.add_output_layouts("S[1]"); }), path + "output_layouts");
  EXPECT_EQ(field([](auto& s) { s.add_output_layouts("S(3)"); }), path + "output_layouts");
  EXPECT_EQ(field([](auto& s) { s.add_output_layouts("S(-4)"); }), path + "output_layouts");
  EXPECT_EQ(field([](auto& s) { s.add_output_layouts("S(-2)"); }), "accepted");
  EXPECT_EQ(field([](auto& s) {
              s.set_style("SequenceParallel");
              s.set_sequence_dim(3);
            }),
            path + "sequence_dim");
}

}  // namespace
}  // namespace meshloom::train
