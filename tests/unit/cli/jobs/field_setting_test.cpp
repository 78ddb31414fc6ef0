// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/jobs/field_setting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/cli/exit_code.h"

namespace meshloom::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string field_refusal(const std::string& text) {
  try {
    parse_setting(text);
  } catch (const CliError& error) {
    EXPECT_EQ(error.code(), kUsage);
    return error.what();
  }
  return "";
}

v1::JobSpec with(std::initializer_list<const char*> settings, v1::JobSpec spec = {}) {
  for (const char* text : settings) apply_setting(parse_setting(text), &spec);
  return spec;
}

TEST(FieldSetting, IsTypedByTheSchemaAndReplacesWhatWasThere) {
  const v1::JobSpec spec =
      with({"training.steps=50", "run.training.steps=60", "optimizer.lr=3e-4", "optimizer.type=sgd",
            "overcommit=true", "labels.team=x", "sample.prompt=In the beginning, God",
            "optimizer.decay=[a.*, b]", "optimizer.decay=[c]",
            "data.path="
            "'with # sign'"});
  EXPECT_EQ(spec.run().training().steps(), 60);
  EXPECT_DOUBLE_EQ(spec.run().optimizer().lr(), 3e-4);
  EXPECT_EQ(spec.run().optimizer().type(), v1::OPTIMIZER_TYPE_SGD);
  EXPECT_TRUE(spec.overcommit());
  EXPECT_EQ(spec.labels().at("team"), "x");
  EXPECT_EQ(spec.run().sample().prompt(), "In the beginning, God");
  EXPECT_EQ(spec.run().data().path(), "with # sign");
  EXPECT_THAT(spec.run().optimizer().decay(), ElementsAre("c"));
}

TEST(FieldSetting, AWholeMessageTakesThePlaceOfTheOld) {
  const v1::JobSpec spec =
      with({"mesh={dp: 2, tp: 2}", "mesh={fsdp: 4}", "labels={a: b}"}, with({"labels.c=d"}));
  EXPECT_EQ(spec.run().mesh().dp(), 0);
  EXPECT_EQ(spec.run().mesh().fsdp(), 4);
  EXPECT_EQ(spec.labels_size(), 1);
}

TEST(FieldSetting, RefusalsNameTheNearestAndNoLine) {
  EXPECT_EQ(field_refusal("training.stepz=5"),
            "training.stepz=5: run.training: unknown key \"stepz\"; did you mean \"steps\"? (valid "
            "here: steps, seq_len, micro_batch_size, global_batch_size, max_norm, seed, "
            "deterministic, peak_flops, early_stopping, frozen, watch)");
  EXPECT_THAT(field_refusal("trainig.steps=5"), HasSubstr("did you mean \"training\"?"));
  EXPECT_THAT(field_refusal("training.steps=many"), HasSubstr("many"));
  EXPECT_THAT(field_refusal("training.steps=many"), Not(HasSubstr(":3:")));
  EXPECT_THAT(field_refusal("optimizer.type=adamx"), HasSubstr("adamw"));
  EXPECT_THAT(field_refusal("training.steps"), HasSubstr("FIELD=VALUE"));
  EXPECT_THAT(field_refusal("=5"), HasSubstr("FIELD=VALUE"));
  EXPECT_THAT(field_refusal("a: b=5"), HasSubstr("one line"));
  EXPECT_THAT(field_refusal("training.steps="), HasSubstr("no value"));
  EXPECT_THAT(field_refusal("training.steps.more=1"), HasSubstr("steps"));
}

TEST(FieldSetting, ASweepHasASettingForEachValue) {
  std::vector<std::string> texts;
  for (const FieldSetting& setting : parse_sweep("optimizer.lr=1e-4,3e-4")) {
    EXPECT_EQ(setting.field, "run.optimizer.lr");
    texts.push_back(setting.text);
  }
  EXPECT_THAT(texts, ElementsAre("optimizer.lr=1e-4", "optimizer.lr=3e-4"));
  const auto lists = parse_sweep("optimizer.decay=[a, b],['c,d']");
  ASSERT_EQ(lists.size(), 2u);
  EXPECT_THAT(lists[0].value.run().optimizer().decay(), ElementsAre("a", "b"));
  EXPECT_THAT(lists[1].value.run().optimizer().decay(), ElementsAre("c,d"));
  EXPECT_THROW(parse_sweep("optimizer.lr=1e-4"), CliError);
  EXPECT_THROW(parse_sweep("optimizer.lr=1e-4,"), CliError);
}

}  // namespace
}  // namespace meshloom::cli
