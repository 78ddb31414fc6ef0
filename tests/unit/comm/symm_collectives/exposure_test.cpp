// SPDX-License-Identifier: Apache-2.0
// Views that ranks read in each other's memory.
#include "daemon/comm/exposure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "daemon/comm/mesh/local_bootstrap.h"
#include "daemon/comm/symm_mem/symmetric_memory.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/comm/comm_fixture.h"
#include "tests/unit/comm/process_ranks.h"

namespace meshloom::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::make_group;
using testing::run_process_ranks;

constexpr auto kKind = CollectiveKind::kAllToAll;
constexpr std::int64_t kRows = 5, kWidth = 7;

/// What `rank` has at element i in a round.
float value(int rank, int round, std::int64_t i) {
  return static_cast<float>(rank * 1000 + round * 100 + static_cast<int>(i));
}

std::int64_t rows_of(int rank) { return rank % kRows + 1; }

/// Every second row of some memory that peers can read, and a tensor of other memory, which has no
/// elements on rank 0.
class Shown {
 public:
  explicit Shown(ProcessGroup& group)
      : rank_(group.rank()),
        piece_(group.symmetric_memory()->allocate(kElements * sizeof(float))),
        plain_(static_cast<std::size_t>(3 * rank_)) {}

  void write(int round) {
    for (std::int64_t i = 0; i < kElements; ++i) floats()[i] = value(rank_, round, i);
    for (std::size_t i = 0; i < plain_.size(); ++i)
      plain_[i] = -value(rank_, round, static_cast<std::int64_t>(i));
  }
  std::vector<TensorView> views() {
    TensorView rows = make_view(floats() + kWidth, DType::kFloat32, {rows_of(rank_), kWidth});
    rows.strides = {2 * kWidth, 1};
    return {rows, testing::view_of(plain_)};
  }

  static void expect(std::span<const TensorView> seen, int rank, int round) {
    ASSERT_EQ(seen.size(), 2u);
    ASSERT_EQ(seen[0].shape, (Shape{rows_of(rank), kWidth}));
    ASSERT_EQ(seen[1].shape, Shape{3 * rank});
    for (std::int64_t r = 0; r < rows_of(rank); ++r)
      for (std::int64_t i = 0; i < kWidth; ++i)
        ASSERT_EQ(seen[0].as<float>()[r * seen[0].stride(0) + i],
                  value(rank, round, (2 * r + 1) * kWidth + i))
            << "of rank " << rank << " in round " << round;
    for (std::int64_t i = 0; i < seen[1].numel(); ++i)
      ASSERT_EQ(seen[1].as<float>()[i], -value(rank, round, i));
  }

 private:
  static constexpr std::int64_t kElements = 2 * kRows * kWidth;

  float* floats() { return reinterpret_cast<float*>(piece_.get()); }

  int rank_;
  std::shared_ptr<std::byte> piece_;
  std::vector<float> plain_;
};

/// Two exposures at once, written over as soon as they are done; ranks run at different speeds, and
/// other collectives go on meanwhile.
void check_rounds(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  if (group->size() == 1) {
    float x = 0;
    const TensorView view = make_view(&x, DType::kFloat32, {1});
    EXPECT_EQ(expose(*group, kKind, {&view, 1}, 0), nullptr);
    return;
  }
  Shown first(*group), second(*group);
  constexpr int kRounds = 30;
  for (int round = 0; round < kRounds; ++round) {
    first.write(round);
    second.write(round + 1);
    const auto a = expose(*group, kKind, first.views(), 12);
    const auto b = expose(*group, CollectiveKind::kAllGather, second.views(), 8);
    float sum = 1.0f;
    const WorkPtr reduced =
        group->all_reduce(make_view(&sum, DType::kFloat32, {1}), ReduceOp::kSum);
    if ((round + group->rank()) % 5 == 0) std::this_thread::sleep_for(1ms);
    for (int step = 0; step < group->size(); ++step) {
      const int peer = (group->rank() + step) % group->size();
      ASSERT_NO_FATAL_FAILURE(Shown::expect(b->of(peer), peer, round + 1));
      ASSERT_NO_FATAL_FAILURE(Shown::expect(a->of(peer), peer, round));
    }
    reduced->wait_host();
    EXPECT_EQ(sum, static_cast<float>(group->size()));
    b->release();
    if (round % 2 == 0) a->release();
    a->wait_host();
    b->wait_host();
  }
  const CommCounter counter = group->counter("all_to_all");
  EXPECT_EQ(counter.calls, static_cast<std::uint64_t>(kRounds));
  EXPECT_EQ(counter.bytes_sent, static_cast<std::uint64_t>(12 * kRounds));
  EXPECT_EQ(counter.bytes_staged, static_cast<std::uint64_t>(12 * group->rank() * kRounds));
}

class Exposures : public ::testing::TestWithParam<int> {};

TEST_P(Exposures, AreReadInPlaceByThreads) {
  meshloom::testing::run_thread_ranks(GetParam(), check_rounds);
}

TEST_P(Exposures, AreReadInPlaceByProcesses) { run_process_ranks(GetParam(), check_rounds); }

INSTANTIATE_TEST_SUITE_P(Ranks, Exposures, ::testing::Values(1, 2, 3, 5, 8));

TEST(Exposure, IsNotMadeWhereMemoryIsNotShared) {
  SymmetricOptions symmetric;
  symmetric.sharing = SharingMode::kNone;
  const int result = run_local_ranks(
      2,
      [](RankRuntime& runtime) {
        const auto group = make_group(runtime);
        float x = 0;
        const TensorView view = make_view(&x, DType::kFloat32, {1});
        EXPECT_EQ(expose(*group, kKind, {&view, 1}, 0), nullptr);
        return ::testing::Test::HasFailure() ? 1 : 0;
      },
      100s, symmetric);
  EXPECT_EQ(result, 0);
}

// A rank that is late keeps those alone waiting who read of it.
TEST(Exposure, WaitsForTheRankThatIsRead) {
  std::atomic<bool> was_read{false};
  meshloom::testing::run_thread_ranks(3, [&](RankRuntime& runtime) {
    const auto group = make_group(runtime);
    Shown shown(*group);
    shown.write(0);
    while (group->rank() == 2 && !was_read) std::this_thread::yield();
    const auto exposure = expose(*group, kKind, shown.views(), 0);
    if (group->rank() == 0) {
      Shown::expect(exposure->of(1), 1, 0);
      was_read = true;
    }
    exposure->wait_host();
  });
}

// Between the last peer's coming and its own release a rank computes, for as long as it likes.
TEST(Exposure, ItsDeadlineCountsWaitingAlone) {
  meshloom::testing::run_thread_ranks(2, [](RankRuntime& runtime) {
    const auto group = make_group(runtime, 300ms);
    Shown shown(*group);
    shown.write(0);
    const auto exposure = expose(*group, kKind, shown.views(), 0);
    const int peer = 1 - group->rank();
    exposure->of(peer);
    const auto end = Clock::now() + 900ms;
    while (Clock::now() < end) {
      exposure->poll();
      std::this_thread::sleep_for(5ms);
    }
    Shown::expect(exposure->of(peer), peer, 0);
    exposure->wait_host();
  });
}

TEST(Exposure, TheDeadlineNamesWhoDoesNotComeOrRelease) {
  for (const bool comes : {false, true}) {
    const int result = run_local_ranks(3, [comes](RankRuntime& runtime) {
      const auto group = make_group(runtime, 300ms);
      Shown shown(*group);
      shown.write(0);
      std::unique_ptr<Exposure> exposure;
      if (comes || group->rank() != 2) exposure = expose(*group, kKind, shown.views(), 0);
      if (group->rank() == 2) {
        if (exposure) exposure->of(0);
        std::this_thread::sleep_for(1500ms);
        std::_Exit(0);
      }
      try {
        if (comes) exposure->of(2);
        exposure->wait_host();
        ADD_FAILURE() << "rank 2 was not waited for";
      } catch (const DeadlineExceeded& error) {
        EXPECT_EQ(error.reason(), "COLLECTIVE_TIMEOUT");
        EXPECT_THAT(error.what(), HasSubstr("all_to_all #0"));
        EXPECT_THAT(error.what(), HasSubstr("missing rank 2"));
      }
      return ::testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(result, 0) << comes;
  }
}

TEST(Exposure, IsNoAllToAllAndHasAsManyViewsEverywhere) {
  for (const bool moves : {false, true}) {
    meshloom::testing::run_thread_ranks(2, [moves](RankRuntime& runtime) {
      const auto group = make_group(runtime);
      Shown shown(*group);
      shown.write(0);
      std::vector<TensorView> views = shown.views();
      std::vector<float> data(2);
      const TensorView parts[] = {make_view(&data[0], DType::kFloat32, {1}),
                                  make_view(&data[1], DType::kFloat32, {1})};
      try {
        if (moves && group->rank() == 1) {
          group->all_to_all(parts, parts)->wait_host();
        } else {
          if (group->rank() == 1) views.pop_back();
          expose(*group, kKind, views, 0)->wait_host();
        }
        ADD_FAILURE() << "the ranks are in different collectives";
      } catch (const InternalError& error) {
        EXPECT_EQ(error.reason(), "COLLECTIVE_MISMATCH");
      } catch (const PeerFailed&) {
      }
    });
  }
}

}  // namespace
}  // namespace meshloom::comm
