// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/enum_names.h"

#include <gtest/gtest.h>

#include "v1/config.pb.h"
#include "v1/job.pb.h"

namespace meshloom::base {
namespace {

TEST(EnumNames, AreTheValuesWithoutPrefix) {
  EXPECT_EQ(enum_spelling(*v1::JobState_descriptor()->FindValueByNumber(v1::JOB_STATE_SUCCEEDED)),
            "succeeded");
  EXPECT_EQ(find_enum_value(*v1::DecayType_descriptor(), "wsd")->number(), v1::DECAY_TYPE_WSD);
  EXPECT_EQ(find_enum_value(*v1::DecayType_descriptor(), "unspecified"), nullptr);
  EXPECT_EQ(enum_choices(*v1::OptimizerType_descriptor()),
            (std::vector<std::string>{"adamw", "adam", "sgd"}));
}

}  // namespace
}  // namespace meshloom::base
