// SPDX-License-Identifier: Apache-2.0
// Limits: each at its edge, of one owner and of all, and what a refusal says.
#include "daemon/control/access/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/reason_of.h"

namespace meshloom::control {
namespace {

using ::testing::HasSubstr;

TEST(Limits, EachHasTwoFieldsAndDefaults) {
  const v1::LimitConfig whole = with_limit_defaults({});
  const auto* fields = v1::LimitConfig::descriptor();
  EXPECT_EQ(fields->field_count(), 2 * static_cast<int>(kLimitKinds) + 1) << "max_running_seconds";
  const Limits limits;
  for (const LimitRow& row : limit_rows()) {
    for (const char* whose : {"owner_", "total_"}) {
      const auto* field = fields->FindFieldByName(whose + std::string(row.name));
      ASSERT_NE(field, nullptr) << row.name;
      EXPECT_TRUE(whole.GetReflection()->HasField(whole, field));
    }
    EXPECT_LE(limits.of_owner(row.kind), limits.of_all(row.kind)) << row.name;
  }
}

TEST(Limits, AreRefusedAtTheirEdgeByName) {
  for (const LimitRow& row : limit_rows()) {
    v1::LimitConfig config;
    const auto* reflection = config.GetReflection();
    const auto field = [&](const char* whose) {
      return v1::LimitConfig::descriptor()->FindFieldByName(whose + std::string(row.name));
    };
    reflection->SetInt64(&config, field("owner_"), 3);
    reflection->SetInt64(&config, field("total_"), 5);
    const Limits limits(config);
    limits.check(row.kind, "alice", {2, 4});
    EXPECT_EQ(test::reason_of([&] { limits.check(row.kind, "alice", {3, 3}); }), row.reason);
    EXPECT_EQ(test::reason_of([&] { limits.check(row.kind, "alice", {0, 5}); }), row.reason);
    limits.check(row.kind, "", {4, 4});  // of the admins all that there is
    EXPECT_EQ(test::reason_of([&] { limits.check(row.kind, "", {5, 5}); }), row.reason);
    try {
      limits.check(row.kind, "alice", {3, 3}, 7);
      FAIL();
    } catch (const ResourceExhausted& refused) {
      EXPECT_THAT(refused.what(), HasSubstr(std::string("limits.owner_") + row.name));
      EXPECT_THAT(refused.what(), HasSubstr("\"alice\" has 3"));
      EXPECT_THAT(refused.what(), HasSubstr("7 more are asked for and 3 are allowed"));
      EXPECT_EQ(refused.metadata().at("used"), "3");
    }
  }
}

TEST(Limits, RefusesWhatIsNone) {
  v1::LimitConfig negative;
  negative.set_owner_jobs(-1);
  EXPECT_THROW(with_limit_defaults(negative), InvalidArgument);
  v1::LimitConfig no_time;
  no_time.set_max_running_seconds(0);
  EXPECT_THROW(with_limit_defaults(no_time), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::control
