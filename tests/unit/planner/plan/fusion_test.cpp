// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/fusion.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

TEST(FusionPlan, ModesHaveNames) {
  for (const FusionMode mode : {FusionMode::kAuto, FusionMode::kForce, FusionMode::kForbid})
    EXPECT_EQ(find_fusion_mode(to_string(mode)), mode);
  EXPECT_EQ(find_fusion_mode("forced"), std::nullopt);
}

TEST(FusionPlan, TheBestPatternDecides) {
  const FusionPlan plan{
      .mode = FusionMode::kForce,
      .choices = {{"h.*.mlp", FusionMode::kForbid}, {"h.3.mlp", FusionMode::kAuto}}};
  EXPECT_EQ(fusion_mode(plan, "h.0.attn"), FusionMode::kForce);
  EXPECT_EQ(fusion_mode(plan, "h.0.mlp"), FusionMode::kForbid);
  EXPECT_EQ(fusion_mode(plan, "h.3.mlp"), FusionMode::kAuto);
  EXPECT_THROW(fusion_mode({.choices = {{"h.?", {}}, {"?.0", {}}}}, "h.0"), InvalidArgument);
}

// Partial products of fewer rows may be summed otherwise: no table may choose that.
TEST(FusionTable, NeverChangesBits) {
  EXPECT_FALSE(fusion_ever_pays(FusedProduct::kScatter));
  for (const FusedProduct product : {FusedProduct::kGather, FusedProduct::kScatter})
    for (std::int64_t bytes = 1; bytes < (std::int64_t{1} << 40); bytes *= 2)
      if (fusion_pays(product, bytes)) {
        EXPECT_TRUE(fusion_ever_pays(product)) << bytes;
      }
}

}  // namespace
}  // namespace meshloom::planner
