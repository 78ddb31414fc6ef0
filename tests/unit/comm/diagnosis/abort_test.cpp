// SPDX-License-Identifier: Apache-2.0
// What ranks throw when a collective meets its deadline: one cause for all, and the rank that is
// waited for in the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/thread_ranks.h"
#include "tests/unit/comm/comm_fixture.h"

namespace meshloom::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::make_group;
using testing::view_of;

/// Text, cause and author of what `wait` throws on this rank.
struct Told {
  std::string text, root_cause, recorded_by, missing;
};

template <typename Wait>
Told hear(Wait&& wait) {
  try {
    wait();
  } catch (const DeadlineExceeded& error) {
    EXPECT_EQ(error.reason(), "COLLECTIVE_TIMEOUT") << error.what();
    const auto& metadata = error.metadata();
    return {error.what(), metadata.at("root_cause"), metadata.at("recorded_by"),
            metadata.at("missing")};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

constexpr SharingMode kModes[] = {SharingMode::kAuto, SharingMode::kNone};

TEST(AbortRecord, AllRanksShowTheSameOneAndTheirOwn) {
  for (const SharingMode mode : kModes) {
    SymmetricOptions symmetric;
    symmetric.sharing = mode;
    meshloom::testing::run_thread_ranks(
        4,
        [](RankRuntime& runtime) {
          const auto group = make_group(runtime, 300ms);
          group->barrier()->wait_host();
          Told told;
          if (group->rank() != 2) {
            std::vector<float> values(100, 1.0f);
            told = hear([&] { group->all_reduce(view_of(values), ReduceOp::kSum)->wait_host(); });
            EXPECT_THAT(told.text,
                        HasSubstr(fmt::format("all_reduce #1 of group 'world' on rank {} of 4",
                                              group->rank())));
            EXPECT_THAT(told.root_cause,
                        HasSubstr("rank 2 has not come to all_reduce #1 of group 'world' (float32, "
                                  "sum, 400 bytes)"));
            EXPECT_THAT(told.root_cause, HasSubstr("its last call: barrier #0 of group 'world'"));
            EXPECT_THAT(told.text, HasSubstr(told.root_cause));
          }
          const auto authors = runtime.bootstrap().exchange(told.recorded_by);
          const auto causes = runtime.bootstrap().exchange(told.root_cause);
          for (const std::size_t r : {1u, 3u}) {
            EXPECT_EQ(authors[r], authors[0]);
            EXPECT_EQ(causes[r], causes[0]);
          }
        },
        100s, symmetric);
  }
}

TEST(AbortRecord, NamesTheRankThatIsWaitedForInTheEnd) {
  meshloom::testing::run_thread_ranks(3, [](RankRuntime& runtime) {
    // Groups that overlap: 0 waits for 1, which waits for 2.
    const auto world = make_group(runtime, 300ms), again = make_group(runtime, 300ms);
    const auto first = world->split({{0, 1}, {2}}, "first");
    const auto second = again->split({{0}, {1, 2}}, "second");
    runtime.bootstrap().barrier();
    if (runtime.rank() < 2) {
      ProcessGroup& group = runtime.rank() == 0 ? *first : *second;
      const Told told = hear([&] { group.barrier()->wait_host(); });
      EXPECT_THAT(told.text, HasSubstr("rank 2 has not come to barrier #0 of group 'second'"));
      if (told.recorded_by == "0") {
        EXPECT_THAT(told.text, HasSubstr("rank 1 has not come to barrier #0 of group 'first', "
                                         "since it waits in barrier #0 of group 'second'"));
      }
    }
    runtime.bootstrap().barrier();
  });
}

}  // namespace
}  // namespace meshloom::comm
