// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/operations.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/unit/control/waking.h"

namespace meshloom::control {
namespace {

Operations::Result result_of(std::size_t bytes) {
  auto result = std::make_shared<v1::VerbResult>();
  result->mutable_parameters()->add_parameters()->set_data(std::string(bytes, 'x'));
  return result;
}

std::string operation_name(int i) { return "operations/r/1/" + std::to_string(i); }

TEST(Operations, AResultStaysUntilItWasTold) {
  Operations operations(1 << 20);
  const int many = static_cast<int>(Operations::kKept) + 50;
  for (int i = 0; i < many; ++i) {
    operations.add("r", operation_name(i), "forward");
    operations.succeed(operation_name(i), result_of(10));
  }
  for (int i = 0; i < many; ++i) EXPECT_TRUE(operations.has(operation_name(i))) << i;
  for (int i = 0; i < many; ++i) EXPECT_GT(operations.get(operation_name(i)).result_bytes(), 0);
  operations.add("r", operation_name(many), "forward");
  for (int i = 0; i < 20; ++i) {
    operations.add("r", operation_name(many + 1 + i), "forward");
    operations.fail(operation_name(many + 1 + i), {});
  }
  EXPECT_FALSE(operations.has(operation_name(0)));
  EXPECT_TRUE(operations.has(operation_name(many - 1)));
  EXPECT_EQ(operations.open_of("r"), 1);
}

TEST(Operations, AFailureStaysUntilItWasToldAndIsCounted) {
  Operations operations(200'000);
  v1::ErrorDetails error;
  error.set_message("what went wrong");
  int many = 0;
  try {
    for (;; ++many) {
      operations.add("r", operation_name(many), "forward");
      operations.fail(operation_name(many), error);
    }
  } catch (const ResourceExhausted& refused) {
    EXPECT_EQ(refused.reason(), "RESULTS_FULL");
  }
  EXPECT_GT(many, static_cast<int>(Operations::kKept));
  for (int i = 0; i < many; ++i) EXPECT_TRUE(operations.has(operation_name(i))) << i;
  operations.get(operation_name(0));
  operations.add("r", operation_name(many), "forward");
  EXPECT_FALSE(operations.has(operation_name(0)));
  EXPECT_TRUE(operations.has(operation_name(1)));
}

TEST(Operations, OneThatIsNotKeptAnyMoreDoesNotBegin) {
  Operations operations(1000);
  EXPECT_FALSE(operations.begin(operation_name(0)));
}

TEST(Operations, WhatAnEarlierDaemonHasDoneIsToldOf) {
  Operations operations(1000);
  operations.restore("r", operation_name(0), "save_state", result_of(1));
  EXPECT_EQ(operations.get(operation_name(0)).state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_TRUE(operations.get(operation_name(0)).has_result());
  EXPECT_EQ(operations.open_of("r"), 0);
}

TEST(Operations, WhatIsNotFetchedRefusesNewOnes) {
  Operations operations(1000);
  operations.add("r", operation_name(0), "forward");
  operations.succeed(operation_name(0), result_of(2000));
  try {
    operations.add("r", operation_name(1), "forward");
    FAIL();
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), "RESULTS_FULL");
  }
  EXPECT_TRUE(operations.has(operation_name(0)));
  // What was told makes room.
  operations.get(operation_name(0));
  operations.add("r", operation_name(1), "forward");
  EXPECT_FALSE(operations.has(operation_name(0)));
}

TEST(Operations, WhatWasToldFirstMakesRoomFirstWhateverItsRun) {
  Operations operations(10'000);
  const std::vector<std::string> runs = {"a", "b", "c"};
  for (const std::string& run : runs) {
    operations.add(run, run, "forward");
    operations.succeed(run, result_of(3'000));
  }
  for (const char* run : {"b", "c", "a"}) operations.get(run);
  operations.add("d", "d", "forward");
  // Not only when a verb is taken: what ends makes room for itself.
  operations.succeed("d", result_of(3'000));
  EXPECT_FALSE(operations.has("b"));
  EXPECT_TRUE(operations.has("c") && operations.has("a"));
  // What somebody waits for stays.
  operations.watch("c", {});
  operations.add("e", "e", "forward");
  operations.succeed("e", result_of(3'000));
  EXPECT_TRUE(operations.has("c"));
  EXPECT_FALSE(operations.has("a"));
  EXPECT_TRUE(operations.has("d") && operations.has("e")) << "they were not told";
}

TEST(Operations, AClientThatFetchesIsNeverRefusedHoweverLargeItsResults) {
  constexpr std::size_t kLarge = Operations::kInlineBytes + 1;
  Operations operations(10 * kLarge);
  for (int i = 0; i < 40; ++i) {
    operations.add("r", operation_name(i), "forward");
    operations.succeed(operation_name(i), result_of(kLarge));
    operations.get(operation_name(i));  // tells nothing of a large one
    ASSERT_NE(operations.serialised(operation_name(i)), nullptr);
    operations.mark_delivered(operation_name(i));
  }
  EXPECT_TRUE(operations.has(operation_name(31)));
  EXPECT_FALSE(operations.has(operation_name(29)));
  operations.close_run("r");
  operations.forget_run("r");
  EXPECT_FALSE(operations.has(operation_name(39)));
  operations.add("s", operation_name(40), "forward");
}

TEST(Operations, OutcomesOfAClosedRunMakeRoomUnlessSomebodyWaits) {
  Operations operations(10'000);
  for (int i = 0; i < 3; ++i) operations.add("r", operation_name(i), "forward");
  operations.succeed(operation_name(0), result_of(6'000));
  operations.close_run("r");
  operations.when_ended(operation_name(2), {});
  operations.succeed(operation_name(1), result_of(6'000));
  EXPECT_FALSE(operations.has(operation_name(0)));
  EXPECT_TRUE(operations.has(operation_name(1)));
  operations.add("s", "s", "forward");
  operations.succeed("s", result_of(6'000));
  EXPECT_FALSE(operations.has(operation_name(1)));
  EXPECT_TRUE(operations.has("s"));
  EXPECT_TRUE(operations.is_open(operation_name(2)));
}

TEST(Operations, OneThatHasBegunIsNotCancelled) {
  Operations operations(1000);
  operations.add("r", operation_name(0), "forward");
  EXPECT_TRUE(operations.begin(operation_name(0)));
  EXPECT_THROW(operations.cancel(operation_name(0)), FailedPrecondition);
  operations.add("r", operation_name(1), "forward");
  EXPECT_EQ(operations.cancel(operation_name(1)).state(), v1::OPERATION_STATE_CANCELLED);
  EXPECT_EQ(operations.cancel(operation_name(1)).state(), v1::OPERATION_STATE_CANCELLED);
  EXPECT_FALSE(operations.begin(operation_name(1)));
  operations.succeed(operation_name(1), result_of(1));
  EXPECT_EQ(operations.get(operation_name(1)).state(), v1::OPERATION_STATE_CANCELLED);
}

TEST(Operations, ALargeResultIsNotTakenAlong) {
  Operations operations(std::size_t{1} << 30);
  operations.add("r", operation_name(0), "get_parameters");
  operations.succeed(operation_name(0), result_of(Operations::kInlineBytes + 1));
  const v1::Operation seen = operations.get(operation_name(0));
  EXPECT_FALSE(seen.has_result());
  EXPECT_GT(seen.result_bytes(), static_cast<std::int64_t>(Operations::kInlineBytes));
  EXPECT_EQ(operations.result(operation_name(0)), nullptr) << "it would lie in memory twice";
  const auto bytes = operations.serialised(operation_name(0));
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(static_cast<std::int64_t>(bytes->size()), seen.result_bytes());
  EXPECT_EQ(operations.serialised(operation_name(0)), bytes) << "each reader has a copy of its own";
  v1::VerbResult read;
  ASSERT_TRUE(read.ParseFromString(*bytes));
  EXPECT_EQ(read.parameters().parameters(0).data().size(), Operations::kInlineBytes + 1);
}

TEST(Operations, OutcomesAreCountedAsTheyLieInMemory) {
  // Many small messages: 2 bytes each on the wire, and many times that in memory.
  const auto outputs = [] {
    auto result = std::make_shared<v1::VerbResult>();
    for (int i = 0; i < 1000; ++i) result->mutable_loss()->add_outputs();
    return result;
  };
  Operations operations(16 << 10);
  operations.add("r", operation_name(0), "forward");
  operations.succeed(operation_name(0), outputs());
  EXPECT_LT(operations.get(operation_name(0), false).result_bytes(), 4096);
  EXPECT_THROW(operations.add("r", operation_name(1), "forward"), ResourceExhausted);
  operations.get(operation_name(0));
  operations.add("r", operation_name(1), "forward");
  EXPECT_FALSE(operations.has(operation_name(0)));
}

TEST(Operations, WhoOnlyLooksIsNotTold) {
  Operations operations(1000);
  operations.add("r", operation_name(0), "forward");
  operations.succeed(operation_name(0), result_of(2000));
  EXPECT_EQ(
      operations.get(operation_name(0), false).result().parameters().parameters(0).data().size(),
      2000u);
  EXPECT_THROW(operations.add("r", operation_name(1), "forward"), ResourceExhausted);
  EXPECT_TRUE(operations.has(operation_name(0)));
}

TEST(Operations, AWaiterThatWasCalledHoldsNothing) {
  Operations operations(1000);
  operations.add("r", operation_name(0), "forward");
  operations.add("r", operation_name(1), "forward");
  bool kept = false;
  const auto look = [&](int i) {
    return when_woken([&, i] { kept = operations.has(operation_name(i)); });
  };
  const auto first = look(0), second = look(1);
  operations.when_ended(operation_name(0), first);
  operations.when_ended(operation_name(1), second);
  // Nobody forgets these waiters: whoever waited has gone while the operation ended.
  operations.close_run("r");
  operations.succeed(operation_name(0), result_of(2000));
  EXPECT_TRUE(kept) << "while it is being called the operation stays";
  kept = false;
  operations.cancel(operation_name(1));
  EXPECT_TRUE(kept);
  operations.add("s", "s", "forward");
  EXPECT_FALSE(operations.has(operation_name(0)));
}

TEST(Operations, WaitersAreCalledOnce) {
  Operations operations(1000);
  int called = 0;
  operations.add("r", operation_name(0), "forward");
  const auto one = when_woken([&] { ++called; });
  const auto hundred = when_woken([&] { called += 100; });
  operations.when_ended(operation_name(0), one);
  const auto forgotten = operations.when_ended(operation_name(0), hundred);
  operations.forget_waiter(operation_name(0), forgotten);
  operations.succeed(operation_name(0), result_of(1));
  operations.fail(operation_name(0), {});
  EXPECT_EQ(called, 1);
  EXPECT_EQ(operations.when_ended(operation_name(0), one), 0);
  EXPECT_EQ(called, 2);
}

}  // namespace
}  // namespace meshloom::control
