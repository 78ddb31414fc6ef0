// SPDX-License-Identifier: Apache-2.0
// Fused operations when a rank fails inside one or does not come, and in several groups at once.
#include <gmock/gmock.h>

#include "daemon/comm/symm_mem/fused/fused_matmul.h"
#include "daemon/comm/symm_mem/fused/low_contention.h"
#include "daemon/comm/symm_mem/fused/pipeline.h"
#include "kernels/base/error.h"
#include "tests/unit/comm/symm_mem/fused/fused_fixture.h"

namespace meshloom::comm {
namespace {

using namespace std::chrono_literals;
using testing::expect_equal;
using testing::FusedRank;
using ::testing::HasSubstr;
using testing::numbers;
using testing::part_of;
using testing::product_tensor;

struct OwnFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void expect_products(FusedRank& rank, int splits) {
  const Tensor a = numbers(rank.context, {11, 7}, DType::kFloat32, 1, true);
  const Tensor b = numbers(rank.context, {7, 5}, DType::kFloat32, 2, true);
  const Tensor y = product_tensor(a, b);
  expect_equal(
      fused_all_gather_matmul(rank.group, part_of(a, 0, rank), {&b, 1}, 0, {splits}).products[0], y,
      "gathered");
  expect_equal(fused_matmul_reduce_scatter(rank.group, part_of(a, 1, rank), part_of(b, 0, rank),
                                           ReduceOp::kSum, 0, {splits}),
               part_of(y, 0, rank), "scattered");
}

TEST(FusedFailure, TheOthersHearOfItAndTheGroupGoesOn) {
  meshloom::testing::run_thread_ranks(3, [](RankRuntime& runtime) {
    const auto world = runtime.make_world_group();
    if (world->failures() == nullptr) return;
    HostSymmetricMemory memory;
    ExecutionContext context;
    FusedRank rank{context, memory.enable(*world), world->rank(), world->size()};
    for (int round = 0; round < 24; ++round) {
      const bool fails = rank.rank == round % 3;
      const int call_that_fails = round % 4;  // 3: none of them, after the operation
      int calls = 0;
      const auto maybe_fail = [&] {
        if (fails && calls++ == call_that_fails) throw OwnFailure("broken on purpose");
      };
      runtime.bootstrap().barrier();
      std::string mine;
      try {
        if (round % 2 == 0) {
          const Tensor shard = full(context, {4, 3}, 1.0, DType::kFloat32);
          gather_and_consume(context, rank.group, shard.view(),
                             [&](const TensorView&, int) { maybe_fail(); });
        } else {
          produce_and_exchange(
              rank.group, {7, 3}, 0, DType::kFloat32, [&](int, const TensorView&) { maybe_fail(); },
              [](std::span<const TensorView>) {});
        }
        if (fails) throw OwnFailure("broken afterwards");
        world->barrier()->wait_host();
        ADD_FAILURE() << "rank " << rank.rank << " came to the end";
      } catch (const OwnFailure& error) {
        mine = error.what();
        world->failures()->raise(mine);
      } catch (const PeerFailed& error) {
        EXPECT_EQ(error.failure().rank, round % 3);
      }
      world->failures()->recover(mine);
      expect_products(rank, round % 3);
    }
    runtime.bootstrap().barrier();
  });
}

TEST(FusedFailure, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  meshloom::testing::run_ranks(3, [](ProcessGroup& world) {
    SymmetricOptions options;
    options.timeout = 100ms;
    HostSymmetricMemory memory(options);
    SymmetricGroup& group = memory.enable(world);
    ExecutionContext context;
    FusedRank rank{context, group, world.rank(), world.size()};
    // The workspace is there already, so that the wait is one for signals.
    expect_products(rank, 0);
    world.barrier()->wait_host();
    if (rank.rank == 2) return;
    try {
      low_contention_all_gather(group, full(context, {4, 3}, 1.0, DType::kFloat32));
      ADD_FAILURE() << "it ended without rank 2";
    } catch (const DeadlineExceeded& error) {
      EXPECT_THAT(error.what(), HasSubstr("barrier on channel 0 of group 'world'"));
      EXPECT_THAT(error.what(), HasSubstr("2"));
    }
  });
}

TEST(FusedGroups, OverlappingGroupsDoNotMix) {
  meshloom::testing::run_ranks(4, [](ProcessGroup& world) {
    const auto rows = world.split({{0, 1}, {2, 3}}, "rows");
    const auto columns = world.split({{0, 2}, {1, 3}}, "columns");
    HostSymmetricMemory memory;
    ExecutionContext context;
    for (int round = 0; round < 15; ++round)
      for (ProcessGroup* group : {&world, rows.get(), columns.get()}) {
        FusedRank rank{context, memory.enable(*group), group->rank(), group->size()};
        expect_products(rank, round % 4);
      }
    world.barrier()->wait_host();
  });
}

TEST(FusedGroups, WithoutSymmetricMemoryTheReasonIsGiven) {
  meshloom::testing::run_ranks(2, [](ProcessGroup& world) {
    SymmetricOptions options;
    options.sharing = SharingMode::kNone;
    HostSymmetricMemory memory(options);
    ExecutionContext context;
    try {
      low_contention_all_gather(memory.enable(world), full(context, {4}, 1.0, DType::kFloat32));
      ADD_FAILURE() << "nothing was refused";
    } catch (const FailedPrecondition& error) {
      EXPECT_EQ(error.reason(), "SYMM_MEM_UNAVAILABLE");
      EXPECT_THAT(error.what(), HasSubstr("sharing is turned off"));
    }
  });
}

}  // namespace
}  // namespace meshloom::comm
