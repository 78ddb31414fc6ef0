// SPDX-License-Identifier: Apache-2.0
#include "planner/placement.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

TEST(Placement, ReadsAndPrints) {
  for (const char* text : {"R", "S(0)", "S(12)", "S(-1)", "P(sum)", "P(avg)", "P(max)", "P(min)"})
    EXPECT_EQ(to_string(parse_placement(text)), text);
  EXPECT_EQ(parse_placement("P"), Placement::partial_of(PartialOp::kSum));
  const Placement list[] = {Placement::replicate(), Placement::shard(1)};
  EXPECT_EQ(to_string(std::span(list)), "[R, S(1)]");
}

TEST(Placement, RefusesOtherTextAndNamesIt) {
  for (const char* text : {"", "r", "Q(0)", "S", "S()", "S(a)", "S(1", "S(1)x", "S(99999999999)",
                           "P()", "P(mean)", "R(0)"}) {
    try {
      parse_placement(text);
      FAIL() << text << " was taken";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(fmt::format("'{}'", text)), std::string::npos)
          << error.what();
    }
  }
}

TEST(Placement, NormalizesDims) {
  const Placements got = normalize_placements({Placement::shard(-1), Placement::replicate()}, 3);
  EXPECT_EQ(got[0], Placement::shard(2));
  EXPECT_THROW(normalize_placements({Placement::shard(3)}, 3), InvalidArgument);
  EXPECT_THROW(normalize_placements({Placement::shard(-4)}, 3), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::planner
