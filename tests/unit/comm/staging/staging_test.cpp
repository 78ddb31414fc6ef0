// SPDX-License-Identifier: Apache-2.0
// Groups with a device: all that holds for host memory holds for that of a device whose work runs
// late, and what staging alone has to keep.
#include "daemon/comm/staging/staging_algorithms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "kernels/base/error.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/comm/collectives/collectives_body.h"
#include "tests/unit/comm/collectives/soak_body.h"
#include "tests/unit/comm/comm_fixture.h"
#include "tests/unit/comm/failure/failure_body.h"
#include "tests/unit/comm/mismatch_body.h"
#include "tests/unit/comm/staging/device_runtime.h"

namespace meshloom::comm {
namespace {

using namespace std::chrono_literals;
using testing::Check;
using testing::DeviceRuntime;
using ::testing::HasSubstr;
using testing::RankDevice;

constexpr Check kChecks[] = {
    {"all_reduce_is_in_rank_order", testing::check_all_reduce_is_in_rank_order},
    {"soak", testing::check_soak},
    {"failure_frees_those_who_wait", testing::check_a_failure_frees_those_who_wait},
    {"failures_at_random_places",
     [](RankRuntime& runtime) { testing::check_failures_at_random_places(runtime, 30); }},
    {"failure_frees_other_groups", testing::check_a_failure_frees_other_groups},
    {"failure_that_all_share", testing::check_a_failure_that_all_share_changes_nothing},
    {"two_ranks_fail", testing::check_two_ranks_fail_at_once},
    {"ranks_that_are_behind_finish", testing::check_ranks_that_are_behind_finish},
    {"collectives_that_differ", testing::check_collectives_that_differ},
    {"many_that_differ", testing::check_many_that_differ},
};

class StagedRanks : public ::testing::TestWithParam<std::tuple<int, Check>> {};

TEST_P(StagedRanks, Collectives) {
  const auto& [world_size, check] = GetParam();
  const auto run = check.run;
  meshloom::testing::run_thread_ranks(world_size, [run](RankRuntime& runtime) {
    DeviceRuntime on_device(runtime);
    run(on_device);
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, StagedRanks,
    ::testing::Combine(::testing::Values(2, 3),
                       ::testing::ValuesIn(testing::checks_on_any_hosts(kChecks))),
    [](const ::testing::TestParamInfo<StagedRanks::ParamType>& test) {
      return std::string(std::get<1>(test.param).name) + "_" +
             std::to_string(std::get<0>(test.param));
    });

/// Values in device memory.
class DeviceValues {
 public:
  DeviceValues(RankDevice& device, std::vector<float> values)
      : device_(device),
        count_(static_cast<std::int64_t>(values.size())),
        storage_(device.memory().allocate(values.size() * sizeof(float))) {
    if (count_ > 0)
      device.device().backend->copy_from_host(device.context(), view(), testing::view_of(values));
  }
  TensorView view() const {
    return make_view(storage_->data(), DType::kFloat32, {count_}, device_.device().device);
  }
  TensorView view(std::int64_t first, std::int64_t count) const {
    return rows_of(view(), first, count);
  }
  std::vector<float> read() const {
    std::vector<float> values(static_cast<std::size_t>(count_));
    if (count_ > 0)
      device_.device().backend->copy_to_host(device_.context(), testing::view_of(values), view());
    return values;
  }

 private:
  RankDevice& device_;
  std::int64_t count_;
  std::shared_ptr<Storage> storage_;
};

/// Runs body(group, device, runtime) on ranks with a device each.
template <typename Body>
void run_staged(int ranks, const Body& body, std::chrono::milliseconds timeout = 20s) {
  meshloom::testing::run_thread_ranks(ranks, [&](RankRuntime& runtime) {
    RankDevice device(runtime.rank());
    GroupOptions options;
    options.timeout = timeout;
    options.device = device.device();
    const auto group = runtime.make_world_group(options);
    body(*group, device, runtime);
    runtime.bootstrap().barrier();
  });
}

TEST(Staging, HostAndDeviceMemoryTakeTurnsInOneGroup) {
  run_staged(3, [](ProcessGroup& group, RankDevice& device, RankRuntime&) {
    const float mine = static_cast<float>(group.rank() + 1);
    const DeviceValues first(device, {mine, 2 * mine}), last(device, {10 * mine});
    std::vector<float> host = {100 * mine};
    // All in flight at once: the one in between must not overtake the first.
    const WorkPtr a = group.all_reduce(first.view(), ReduceOp::kSum);
    const WorkPtr b = group.all_reduce(testing::view_of(host), ReduceOp::kSum);
    const WorkPtr c = group.all_reduce(last.view(), ReduceOp::kSum);
    c->wait_host();
    b->wait_host();
    a->wait_host();
    EXPECT_EQ(first.read(), (std::vector<float>{6, 12}));
    EXPECT_EQ(host, (std::vector<float>{600}));
    EXPECT_EQ(last.read(), (std::vector<float>{60}));
  });
}

TEST(Staging, BeginsBehindTheWorkOfTheStreamAndBeforeWhatComesLater) {
  run_staged(2, [](ProcessGroup& group, RankDevice& device, RankRuntime&) {
    const DeviceValues x(device, {1, 1, 1});
    kernels::Backend& backend = *device.device().backend;
    backend.unary(device.context(), kernels::UnaryOp::kMul, x.view(), x.view(), 3.0);
    group.all_reduce(x.view(), ReduceOp::kSum)->enqueue_wait(device.device().stream->get());
    backend.unary(device.context(), kernels::UnaryOp::kMul, x.view(), x.view(), 10.0);
    EXPECT_EQ(x.read(), (std::vector<float>{60, 60, 60}));
  });
}

TEST(Staging, AnotherStreamWaitsOnTheDevice) {
  run_staged(2, [](ProcessGroup& group, RankDevice& device, RankRuntime&) {
    const DeviceValues x(device, {1, 2});
    kernels::Backend& backend = *device.device().backend;
    const auto other = backend.make_stream(device.device().device);
    group.all_reduce(x.view(), ReduceOp::kSum)->enqueue_wait(other->get());
    // Refused by the device if nothing orders the two streams.
    backend.unary({{}, other->get(), nullptr}, kernels::UnaryOp::kMul, x.view(), x.view(), 2.0);
    std::vector<float> values(2);
    backend.copy_to_host({{}, other->get(), nullptr}, testing::view_of(values), x.view());
    EXPECT_EQ(values, (std::vector<float>{4, 8}));
  });
}

TEST(Staging, CopiesNeighboursAtOnceAndCountsWhatItStaged) {
  run_staged(3, [](ProcessGroup& group, RankDevice& device, RankRuntime&) {
    // Parts of 0, 5 and 10 elements, next to each other; the input is one of them.
    const std::int64_t begin[] = {0, 0, 5, 15};
    std::vector<float> values(15, 0.0f);
    for (std::int64_t i = begin[group.rank()]; i < begin[group.rank() + 1]; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);
    const DeviceValues x(device, values);
    std::vector<TensorView> parts;
    for (int r = 0; r < 3; ++r) parts.push_back(x.view(begin[r], begin[r + 1] - begin[r]));
    const auto own = static_cast<std::size_t>(group.rank());
    auto& fenced = meshloom::testing::fenced_device(device.device().device.index);
    fenced.reset_counts();
    group.reset_counters();
    group.all_gather(parts, parts[own])->wait_host();
    const auto counts = fenced.counts();
    EXPECT_LE(counts.waits, 1);
    EXPECT_EQ(counts.copies_from_host, 1) << "the parts of rank 1 and 2 are neighbours";
    std::vector<float> expected(15);
    for (std::size_t i = 0; i < 15; ++i) expected[i] = static_cast<float>(i + 1);
    EXPECT_EQ(x.read(), expected);
    // Its own part out, those of the others back, beside what symmetric memory stages.
    const std::uint64_t staged = group.counter("all_gather").bytes_staged;
    EXPECT_GE(staged, 15 * sizeof(float));
    EXPECT_LE(staged, 2 * 15 * sizeof(float));
  });
}

TEST(Staging, RefusesBuffersInTwoMemoriesAndThoseOfAnotherDevice) {
  run_staged(2, [](ProcessGroup& group, RankDevice& device, RankRuntime&) {
    const DeviceValues x(device, {1, 2});
    std::vector<float> host(2);
    const auto error_of = [](const auto& call) {
      try {
        call();
      } catch (const InvalidArgument& error) {
        return std::string(error.what());
      }
      return std::string("no error");
    };
    const std::vector<TensorView> mixed = {testing::view_of(host), testing::view_of(host)};
    const std::string own = to_string(device.device().device);
    EXPECT_THAT(error_of([&] { group.all_gather(mixed, x.view()); }),
                HasSubstr("outputs is in the memory of cpu, input in that of " + own));
    TensorView other = x.view();
    other.device.index = 7;
    EXPECT_THAT(error_of([&] { group.all_reduce(other, ReduceOp::kSum); }),
                HasSubstr("data is in the memory of cuda:7, this group takes host memory or that "
                          "of " +
                          own));
    // A refusal leaves the group as it was.
    testing::expect_sums(group, 3);
  });
}

TEST(Staging, AGroupOfOneCopiesOnTheDevice) {
  RankDevice device(0);
  GroupOptions options;
  options.device = device.device();
  const auto group = make_single_process_group(options);
  const DeviceValues x(device, {1, 2}), y(device, {0, 0});
  const TensorView out = y.view();
  auto& fenced = meshloom::testing::fenced_device(0);
  fenced.reset_counts();
  group->all_gather({&out, 1}, x.view())->wait_host();
  EXPECT_EQ(fenced.counts().waits, 0);
  EXPECT_EQ(y.read(), (std::vector<float>{1, 2}));
  std::vector<float> host = {1}, copy = {0};
  const TensorView to = testing::view_of(copy);
  group->all_gather({&to, 1}, testing::view_of(host))->wait_host();
  EXPECT_EQ(copy, host);
  TensorView foreign = x.view();
  foreign.device.index = 1;
  EXPECT_THROW(group->all_reduce(foreign, ReduceOp::kSum), InvalidArgument);
}

TEST(Staging, NothingOfAGroupThatWasGivenUpIsWrittenLater) {
  run_staged(2, [](ProcessGroup& group, RankDevice& device, RankRuntime&) {
    const DeviceValues x(device, std::vector<float>(100'000, 1.0f));
    FailureDomain& failures = *group.failures();
    float sum = 1.0f;
    try {
      const WorkPtr work = group.all_reduce(x.view(), ReduceOp::kSum);
      if (group.rank() == 0) {
        failures.raise("InternalError: on purpose");
        EXPECT_THROW(work->wait_host(), PeerFailed);
      } else {
        work->wait_host();
        sum = 2.0f;  // it was done before rank 0 failed
      }
    } catch (const PeerFailed&) {
    }
    failures.recover("");
    // Whatever still came would be seen here.
    EXPECT_EQ(x.read(), std::vector<float>(100'000, sum));
    const DeviceValues y(device, std::vector<float>(100'000, 3.0f));
    group.all_reduce(y.view(), ReduceOp::kSum)->wait_host();
    EXPECT_EQ(y.read(), std::vector<float>(100'000, 6.0f));
  });
}

TEST(Staging, ARankThatOnlyReceivesTakesNoMoreMemory) {
  run_staged(2, [](ProcessGroup& group, RankDevice& device, RankRuntime&) {
    const DeviceValues x(device, std::vector<float>(1 << 20, 1.0f));  // 4 MiB
    auto& fenced = meshloom::testing::fenced_device(device.device().device.index);
    const std::size_t before = fenced.pinned_bytes();
    for (int i = 0; i < 40; ++i) group.broadcast(x.view(), 0)->wait_host();
    // Without reuse it were 160 MiB; how soon the device comes to the copies is drawn.
    EXPECT_LE(fenced.pinned_bytes() - before, std::size_t{96} << 20);
    EXPECT_EQ(x.read(), std::vector<float>(1 << 20, 1.0f));
  });
}

TEST(Staging, BuffersInSegmentsOfTheirOwnAreCopiedOneByOne) {
  run_staged(2, [](ProcessGroup& group, RankDevice& device, RankRuntime&) {
    // Each fills a segment, and segments may be neighbours.
    constexpr std::int64_t kCount = (2 << 20) / sizeof(float);
    const float mine = static_cast<float>(group.rank() + 1);
    const DeviceValues x(device, std::vector<float>(kCount, mine));
    const DeviceValues a(device, std::vector<float>(kCount, 0.0f)),
        b(device, std::vector<float>(kCount, 0.0f));
    const std::vector<TensorView> parts = {a.view(), b.view()};
    group.all_gather(parts, x.view())->wait_host();
    EXPECT_EQ(a.read(), std::vector<float>(kCount, 1.0f));
    EXPECT_EQ(b.read(), std::vector<float>(kCount, 2.0f));
  });
}

TEST(Staging, APartGroupLivesOnWhenItsParentHasEnded) {
  meshloom::testing::run_thread_ranks(2, [](RankRuntime& runtime) {
    RankDevice device(runtime.rank());
    GroupOptions options;
    options.device = device.device();
    auto world = runtime.make_world_group(options);
    const auto part = world->split({{0, 1}}, "part");
    const DeviceValues x(device, {1, 2, 3});
    world->all_reduce(x.view(), ReduceOp::kSum)->wait_host();
    world.reset();
    part->all_reduce(x.view(), ReduceOp::kSum)->wait_host();
    EXPECT_EQ(x.read(), (std::vector<float>{4, 8, 12}));
    runtime.bootstrap().barrier();
  });
}

TEST(Staging, AGroupOfOneOrdersAnotherStreamToo) {
  RankDevice device(0);
  GroupOptions options;
  options.device = device.device();
  const auto group = make_single_process_group(options);
  const DeviceValues x(device, {1, 2});
  kernels::Backend& backend = *device.device().backend;
  const auto other = backend.make_stream(device.device().device);
  backend.unary(device.context(), kernels::UnaryOp::kMul, x.view(), x.view(), 3.0);
  group->all_reduce(x.view(), ReduceOp::kSum)->enqueue_wait(other->get());
  std::vector<float> values(2);
  backend.copy_to_host({{}, other->get(), nullptr}, testing::view_of(values), x.view());
  EXPECT_EQ(values, (std::vector<float>{3, 6}));
}

TEST(Staging, TheDeadlineNamesTheRankThatIsMissing) {
  run_staged(
      2,
      [](ProcessGroup& group, RankDevice& device, RankRuntime& runtime) {
        const DeviceValues x(device, {1, 2});
        runtime.bootstrap().barrier();
        if (group.rank() == 0) {
          try {
            group.all_reduce(x.view(), ReduceOp::kSum)->wait_host();
            ADD_FAILURE() << "an all_reduce without rank 1 came to an end";
          } catch (const DeadlineExceeded& error) {
            EXPECT_THAT(error.what(), HasSubstr("missing rank 1"));
          }
        }
        runtime.bootstrap().barrier();
      },
      200ms);
}

TEST(Staging, TheDeadlineNamesTheDeviceThatDoesNotCome) {
  run_staged(
      2,
      [](ProcessGroup& group, RankDevice& device, RankRuntime& runtime) {
        const DeviceValues x(device, {1, 2});
        auto& fenced = meshloom::testing::fenced_device(device.device().device.index);
        fenced.set_stalled(group.rank() == 1);
        runtime.bootstrap().barrier();
        try {
          group.all_reduce(x.view(), ReduceOp::kSum)->wait_host();
          ADD_FAILURE() << "an all_reduce without the device of rank 1 came to an end";
        } catch (const DeadlineExceeded& error) {
          EXPECT_THAT(error.what(), HasSubstr("missing rank 1"));
          if (group.rank() == 1) {
            EXPECT_THAT(error.what(), HasSubstr("rank 1: its cuda:1 has not come to this call"));
          }
        }
        fenced.set_stalled(false);
        runtime.bootstrap().barrier();
      },
      200ms);
}

}  // namespace
}  // namespace meshloom::comm
