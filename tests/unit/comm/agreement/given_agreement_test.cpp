// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/agreement/given_agreement.h"

#include <gmock/gmock.h>

#include <string>

#include "kernels/base/error.h"
#include "tests/support/thread_ranks.h"

namespace meshloom::comm {
namespace {

using ::testing::HasSubstr;

TEST(CheckAgreement, TextsThatDifferAfterWhatIsShownAreToldApart) {
  testing::run_ranks(3, [](ProcessGroup& world) {
    const std::string same(600, 'x');
    EXPECT_NO_THROW(check_agreement("shard", {same, ""}, world));
    const std::string mine = same + (world.rank() == 2 ? "y" : "z");
    try {
      check_agreement("shard", {mine, ""}, world);
      ADD_FAILURE() << "different texts were taken for equal";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("shard: rank 0 gives " + std::string(488, 'x')));
      EXPECT_THAT(error.what(), HasSubstr("; rank 2 gives xxx"));
    }
  });
}

TEST(CheckAgreement, AnErrorOfOneRankIsThrownByAll) {
  testing::run_ranks(3, [](ProcessGroup& world) {
    try {
      check_agreement("shard", {"even", world.rank() == 1 ? "shard: dim 3 of 2" : ""}, world);
      ADD_FAILURE() << "an error was passed over";
    } catch (const InvalidArgument& error) {
      EXPECT_STREQ(error.what(), "shard: on rank 1: dim 3 of 2");
    }
  });
}

TEST(CheckSameText, NamesTheRanksThatDiffer) {
  testing::run_ranks(4, [](ProcessGroup& world) {
    EXPECT_NO_THROW(check_same_text(world, "the plan", "same"));
    try {
      check_same_text(world, "the plan", world.rank() % 2 == 1 ? "other" : "same");
      ADD_FAILURE() << "different texts were taken for equal";
    } catch (const FailedPrecondition& error) {
      EXPECT_THAT(error.what(), HasSubstr("the plan of ranks 1, 3 is not that of rank 0"));
    }
  });
}

}  // namespace
}  // namespace meshloom::comm
