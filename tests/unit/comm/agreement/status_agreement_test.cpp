// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/agreement/status_agreement.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <new>

#include "daemon/comm/failure.h"
#include "kernels/base/device.h"
#include "kernels/base/error.h"
#include "tests/support/thread_ranks.h"

namespace meshloom::comm {
namespace {

TEST(StatusAgreement, AllThrowTheLowestFailingRanksError) {
  for (const int ranks : {1, 2, 5})
    testing::run_ranks(ranks, [&](ProcessGroup& world) {
      EXPECT_NO_THROW(run_agreed(world, [] {}));
      const int failing = ranks / 2;
      try {
        run_agreed(world, [&] {
          if (world.rank() >= failing)
            throw NotFound(fmt::format("rank {} found nothing", world.rank()), "NOTHING",
                           {{"path", "x"}});
        });
        ADD_FAILURE() << "rank " << world.rank() << " went on";
      } catch (const NotFound& error) {
        EXPECT_EQ(std::string(error.what()), fmt::format("rank {} found nothing", failing));
        EXPECT_EQ(error.reason(), "NOTHING");
        EXPECT_EQ(error.metadata().at("path"), "x");
      }
      // The ranks are still in step.
      EXPECT_NO_THROW(run_agreed(world, [] {}));
    });
}

template <typename Thrown, typename Expected>
void expect_round_trip(const Thrown& thrown) {
  const std::string text = encode_error(std::make_exception_ptr(thrown), 3);
  try {
    rethrow_encoded(text);
  } catch (const Expected& error) {
    EXPECT_EQ(error.metadata().at("rank"), "3");
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "came back as another type: " << error.what();
  }
}

TEST(StatusAgreement, EveryKindOfErrorComesBackAsItself) {
  expect_round_trip<InvalidArgument, InvalidArgument>(InvalidArgument("a"));
  expect_round_trip<DataLoss, DataLoss>(DataLoss("a"));
  expect_round_trip<ResourceExhausted, ResourceExhausted>(ResourceExhausted("a"));
  expect_round_trip<NumericError, NumericError>(NumericError("a"));
  expect_round_trip<Unimplemented, Unimplemented>(Unimplemented("a"));
  expect_round_trip<FailedPrecondition, FailedPrecondition>(FailedPrecondition("a"));
  expect_round_trip<InternalError, InternalError>(
      InternalError("bytes that are no UTF-8: \xff\xfe"));
  expect_round_trip<std::bad_alloc, ResourceExhausted>(std::bad_alloc());
  expect_round_trip<std::filesystem::filesystem_error, FailedPrecondition>(
      std::filesystem::filesystem_error("a", std::make_error_code(std::errc::permission_denied)));
  expect_round_trip<std::out_of_range, InternalError>(std::out_of_range("a"));
}

TEST(StatusAgreement, WhatFollowsABrokenCollectiveEndsTheGroupAsTheBreakDoes) {
  EXPECT_TRUE(ends_the_group(std::make_exception_ptr(DeadlineExceeded("a"))));
  EXPECT_TRUE(ends_the_group(std::make_exception_ptr(GroupBroken("a"))));
  EXPECT_FALSE(ends_the_group(std::make_exception_ptr(FailedPrecondition("a", "GROUP_POISONED"))));
}

TEST(StatusAgreement, ADeviceThatHasFailedEndsTheGroupToo) {
  EXPECT_FALSE(ends_the_group(std::make_exception_ptr(InternalError("a"))));
  EXPECT_TRUE(ends_the_group(std::make_exception_ptr(InternalError("a", kDeviceFailed))));
}

}  // namespace
}  // namespace meshloom::comm
