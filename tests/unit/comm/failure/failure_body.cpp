// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/comm/failure/failure_body.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "tests/unit/comm/comm_fixture.h"

namespace meshloom::comm::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kTimeout = 60s;

std::unique_ptr<ProcessGroup> split_whole(ProcessGroup& world, const std::string& name) {
  std::vector<int> all;
  for (int r = 0; r < world.size(); ++r) all.push_back(r);
  return world.split({all}, name);
}

/// What a rank that fails throws itself.
struct OwnFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// How run_and_recover() ended on this rank.
struct Ending {
  FailureDomain::Recovery recovery;
  std::string heard;  ///< empty on a rank that failed itself
  std::chrono::duration<double> waited{};
};

/// Runs `body` and recovers; all ranks call it.
template <typename Body>
Ending run_and_recover(RankRuntime& runtime, ProcessGroup& world, Body&& body) {
  // A rank may be past a collective, and fail, while others are still inside it.
  runtime.bootstrap().barrier();
  Ending ending;
  FailureDomain& failures = *world.failures();
  std::string mine;
  try {
    body();
    ADD_FAILURE() << "rank " << world.rank() << " came to the end";
  } catch (const OwnFailure& error) {
    mine = error.what();
    failures.raise(mine);
  } catch (const PeerFailed& error) {
    ending.heard = error.what();
  }
  const auto start = Clock::now();
  ending.recovery = failures.recover(mine);
  ending.waited = Clock::now() - start;
  return ending;
}

/// A step of collectives on two groups, of all kinds and sizes, some of them in flight together.
class Step {
 public:
  Step(ProcessGroup& world, ProcessGroup& part) : world_(world), part_(part) {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      buffers_[i].assign(kSizes[i % kSizes.size()], 1.0f);
    gathered_.resize(buffers_[2].size() * static_cast<std::size_t>(world.size()));
  }

  static constexpr int kPlaces = 10;

  /// Throws OwnFailure at `place` where that is below kPlaces.
  void run(int place, const std::string& text) {
    int at = 0;
    const auto pass = [&] {
      if (at++ == place) throw OwnFailure(text);
    };
    pass();
    world_.all_reduce(view_of(buffers_[0]), ReduceOp::kMax)->wait_host();
    pass();
    const WorkPtr first = world_.all_reduce(view_of(buffers_[1]), ReduceOp::kMax);
    pass();
    const WorkPtr second = part_.all_reduce(view_of(buffers_[3]), ReduceOp::kMax);
    pass();
    const WorkPtr third = gather();
    pass();
    second->wait_host();
    pass();
    first->wait_host();
    pass();
    third->wait_host();
    pass();
    part_.broadcast(view_of(buffers_[4]), part_.size() - 1)->wait_host();
    pass();
    part_.barrier()->wait_host();
    pass();
    world_.all_reduce(view_of(buffers_[5]), ReduceOp::kMax)->wait_host();
  }

  /// Marks every buffer; later they must still hold the mark.
  void mark() {
    for (auto& buffer : buffers_) std::fill(buffer.begin(), buffer.end(), -7.0f);
    std::fill(gathered_.begin(), gathered_.end(), -7.0f);
  }
  void expect_marks() const {
    for (const auto& buffer : buffers_)
      EXPECT_EQ(buffer, std::vector<float>(buffer.size(), -7.0f)) << "written to afterwards";
    EXPECT_EQ(gathered_, std::vector<float>(gathered_.size(), -7.0f)) << "written to afterwards";
  }

 private:
  static constexpr std::array<std::size_t, 3> kSizes = {10, 400'000, 30'000};

  WorkPtr gather() {
    std::vector<TensorView> outputs;
    const auto n = static_cast<std::int64_t>(buffers_[2].size());
    for (int r = 0; r < world_.size(); ++r)
      outputs.push_back(make_view(gathered_.data() + r * n, DType::kFloat32, {n}));
    return world_.all_gather(outputs, view_of(buffers_[2]));
  }

  ProcessGroup& world_;
  ProcessGroup& part_;
  std::array<std::vector<float>, 6> buffers_;
  std::vector<float> gathered_;
};

}  // namespace

void check_a_failure_frees_those_who_wait(RankRuntime& runtime) {
  const auto world = make_group(runtime, kTimeout);
  if (world->size() == 1) {
    EXPECT_EQ(world->failures(), nullptr);
    return;
  }
  expect_sums(*world, 10);
  const std::uint64_t epoch = world->failures()->epoch();
  const int failing = 1;
  const auto start = Clock::now();
  const Ending end = run_and_recover(runtime, *world, [&] {
    if (world->rank() == failing) throw OwnFailure("token 99 of rank 1's shard");
    expect_sums(*world, 100'000);
  });
  EXPECT_LT(Clock::now() - start, kTimeout / 3);
  if (world->rank() != failing) {
    EXPECT_NE(end.heard.find("rank 1 failed: token 99 of rank 1's shard"), std::string::npos)
        << end.heard;
    EXPECT_NE(end.heard.find("all_reduce #"), std::string::npos) << end.heard;
    EXPECT_NE(end.heard.find("(after all_reduce #"), std::string::npos) << end.heard;
  }
  for (int r = 0; r < world->size(); ++r)
    EXPECT_EQ(end.recovery.reports.at(static_cast<std::size_t>(r)),
              r == failing ? "token 99 of rank 1's shard" : "");
  EXPECT_FALSE(end.recovery.in_step);
  EXPECT_EQ(world->failures()->epoch(), epoch + 1);
  expect_sums(*world, 10);
  expect_sums(*world, 100'000);
}

void check_failures_at_random_places(RankRuntime& runtime, int rounds) {
  const auto world = make_group(runtime, kTimeout);
  if (world->size() == 1) return;
  std::mt19937 draw(1234);  // the same on all ranks
  std::mt19937 delay(99 + runtime.rank());
  std::unique_ptr<Step> before;  // of the last round: must not be written to any more
  std::unique_ptr<ProcessGroup> ended;
  for (int round = 0; round < rounds; ++round) {
    std::unique_ptr<ProcessGroup> part;
    std::unique_ptr<Step> step;
    const int failing = static_cast<int>(draw() % static_cast<unsigned>(world->size()));
    const int place = static_cast<int>(draw() % Step::kPlaces);
    const std::string text = "round " + std::to_string(round) + " place " + std::to_string(place);
    const auto start = Clock::now();
    const Ending end = run_and_recover(runtime, *world, [&] {
      part = split_whole(*world, "part");
      step = std::make_unique<Step>(*world, *part);
      // Else a rank that is past the split may fail while others are inside it.
      runtime.bootstrap().barrier();
      if (delay() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delay() % 3000));
      step->run(world->rank() == failing ? place : Step::kPlaces, text);
    });
    EXPECT_LT(Clock::now() - start, kTimeout / 3) << text;
    // Over MPI a transfer that was dropped on the way to the catch is told first.
    EXPECT_TRUE(world->rank() == failing || end.heard.find(text) != std::string::npos ||
                end.heard.find("dropped before it was done") != std::string::npos)
        << end.heard;
    EXPECT_EQ(end.recovery.reports.at(static_cast<std::size_t>(failing)), text);
    EXPECT_THROW(part->barrier(), FailedPrecondition) << text;
    step->mark();
    expect_sums(*world, 50'000);
    if (before) before->expect_marks();
    before = std::move(step);
    ended = std::move(part);
  }
}

void check_a_failure_frees_other_groups(RankRuntime& runtime) {
  const auto world = make_group(runtime, kTimeout);
  if (world->size() != 4) return;
  const auto tp = world->split({{0, 1}, {2, 3}}, "tp");
  const auto dp = world->split({{0, 2}, {1, 3}}, "dp");
  const auto start = Clock::now();
  std::vector<float> values(300'000, 1.0f);
  const Ending end = run_and_recover(runtime, *world, [&] {
    if (world->rank() <= 1) runtime.bootstrap().barrier();
    if (world->rank() == 1) throw OwnFailure("disk full");
    expect_sums(*tp, 1000);
    EXPECT_NE(world->rank(), 0) << "its peer is not there";
    runtime.bootstrap().barrier();
    dp->all_reduce(view_of(values), ReduceOp::kSum)->wait_host();
  });
  EXPECT_LT(Clock::now() - start, kTimeout / 3);
  if (world->rank() != 1) {
    EXPECT_NE(end.heard.find("rank 1 failed: disk full"), std::string::npos) << end.heard;
    EXPECT_NE(end.heard.find(world->rank() == 0 ? "group 'tp'" : "group 'dp'"), std::string::npos)
        << end.heard;
  }
  EXPECT_THROW(tp->barrier(), FailedPrecondition);
  EXPECT_THROW(dp->barrier(), FailedPrecondition);
  const auto again = world->split({{0, 1}, {2, 3}}, "tp");
  expect_sums(*again, 100'000);
  expect_sums(*world, 100'000);
}

void check_a_failure_that_all_share_changes_nothing(RankRuntime& runtime) {
  const auto world = make_group(runtime, kTimeout);
  if (world->size() == 1) return;
  const auto part = split_whole(*world, "part");
  expect_sums(*part, 1000);
  const Ending end = run_and_recover(
      runtime, *world, [&] { throw OwnFailure("r" + std::to_string(world->rank())); });
  EXPECT_TRUE(end.recovery.in_step);
  EXPECT_EQ(end.recovery.reports.back(), "r" + std::to_string(world->size() - 1));
  expect_sums(*part, 1000);
  expect_sums(*part, 100'000);
  expect_sums(*world, 10);
}

void check_two_ranks_fail_at_once(RankRuntime& runtime) {
  const auto world = make_group(runtime, kTimeout);
  if (world->size() < 3) return;
  for (int round = 0; round < 20; ++round) {
    const Ending end = run_and_recover(runtime, *world, [&] {
      if (world->rank() != 1) throw OwnFailure("round " + std::to_string(round));
      expect_sums(*world, 1000);
    });
    EXPECT_EQ(end.recovery.reports[1], "");
    EXPECT_EQ(end.recovery.reports[0], "round " + std::to_string(round));
    EXPECT_EQ(end.recovery.reports[2], "round " + std::to_string(round));
    expect_sums(*world, 1000);
  }
}

void check_ranks_that_are_behind_finish(RankRuntime& runtime) {
  const auto world = make_group(runtime, kTimeout);
  if (world->size() < 3) return;
  std::vector<std::vector<int>> parts = {{0}, {}};
  for (int r = 1; r < world->size(); ++r) parts[1].push_back(r);
  for (int round = 0; round < 20; ++round) {
    const auto others = world->split(parts, "others");
    runtime.bootstrap().barrier();
    world->failures()->begin_verb();
    // Rank 0 is through with this verb at once and fails in the next one, while the others work.
    if (world->rank() != 0) {
      if (world->rank() == 1) std::this_thread::sleep_for(3ms);
      expect_sums(*others, 100'000);
    }
    world->failures()->begin_verb();
    Ending end;
    try {
      if (world->rank() == 0) throw OwnFailure("early");
      expect_sums(*world, 1000);
      ADD_FAILURE() << "rank 0 was not there";
    } catch (const OwnFailure& error) {
      world->failures()->raise(error.what());
    } catch (const PeerFailed& error) {
      end.heard = error.what();
    }
    end.recovery = world->failures()->recover(world->rank() == 0 ? "early" : "");
    EXPECT_EQ(end.recovery.reports[0], "early");
    EXPECT_FALSE(end.recovery.in_step) << "rank 0 was a verb ahead";
    EXPECT_TRUE(world->rank() == 0 || end.heard.find("early") != std::string::npos) << end.heard;
  }
}

void check_ranks_that_wait_for_nothing_can_join(RankRuntime& runtime) {
  const auto world = make_group(runtime, kTimeout);
  if (world->size() == 1) return;
  FailureDomain& failures = *world->failures();
  int told = 0;
  failures.on_raise([&](std::uint64_t epoch, const Failure& failure) {
    ++told;
    EXPECT_EQ(epoch, failures.epoch());
    EXPECT_EQ(failure.rank, 0);
  });
  if (world->rank() == 0) failures.raise("too late");
  const FailureDomain::Recovery end = failures.recover(world->rank() == 0 ? "too late" : "");
  EXPECT_TRUE(end.in_step);
  EXPECT_EQ(end.reports[0], "too late");
  EXPECT_EQ(told, world->rank() == 0 ? 1 : 0);
  failures.on_raise({});
  expect_sums(*world, 100);
}

void check_long_reports(RankRuntime& runtime) {
  const auto world = make_group(runtime, kTimeout);
  if (world->size() == 1) return;
  const auto report = [](int rank) {
    return std::string(static_cast<std::size_t>(rank) * 9'000, static_cast<char>('a' + rank));
  };
  world->failures()->raise(report(world->rank()));
  const auto end = world->failures()->recover(report(world->rank()));
  for (int r = 0; r < world->size(); ++r)
    EXPECT_EQ(end.reports[static_cast<std::size_t>(r)], report(r));
  expect_sums(*world, 100);
}

void check_all_failures(RankRuntime& runtime) {
  check_a_failure_frees_those_who_wait(runtime);
  check_failures_at_random_places(runtime, 30);
  check_a_failure_frees_other_groups(runtime);
  check_a_failure_that_all_share_changes_nothing(runtime);
  check_two_ranks_fail_at_once(runtime);
  check_ranks_that_are_behind_finish(runtime);
  check_ranks_that_wait_for_nothing_can_join(runtime);
  check_long_reports(runtime);
}

}  // namespace meshloom::comm::testing
