// SPDX-License-Identifier: Apache-2.0
// Symmetric memory among ranks that are threads, by each way of sharing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/thread_ranks.h"
#include "tests/unit/comm/symm_mem/symmetric_body.h"

namespace meshloom::comm {
namespace {

using ::testing::HasSubstr;
using testing::SymmetricCheck;

SymmetricOptions options_of(SharingMode mode) {
  SymmetricOptions options;
  options.sharing = mode;
  options.timeout = std::chrono::seconds(20);
  return options;
}

std::ptrdiff_t open_descriptors() {
  namespace fs = std::filesystem;
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

class SymmetricThreads
    : public ::testing::TestWithParam<std::tuple<int, SharingMode, SymmetricCheck>> {};

TEST_P(SymmetricThreads, Check) {
  const auto& [world_size, mode, check] = GetParam();
  const std::ptrdiff_t before = open_descriptors();
  meshloom::testing::run_thread_ranks(world_size,
                                      [&, mode = mode, check = check](RankRuntime& runtime) {
                                        check.run(runtime, options_of(mode));
                                        runtime.bootstrap().barrier();
                                      });
  EXPECT_EQ(open_descriptors(), before);
}

std::string name_of(const ::testing::TestParamInfo<SymmetricThreads::ParamType>& test) {
  const char* modes[] = {"auto", "fd_folder", "socket", "none"};
  return fmt::format("{}_{}_{}", std::get<2>(test.param).name,
                     modes[static_cast<int>(std::get<1>(test.param))], std::get<0>(test.param));
}

INSTANTIATE_TEST_SUITE_P(Auto, SymmetricThreads,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8),
                                            ::testing::Values(SharingMode::kAuto),
                                            ::testing::ValuesIn(testing::kSymmetricChecks)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Forced, SymmetricThreads,
                         ::testing::Combine(::testing::Values(3),
                                            ::testing::Values(SharingMode::kFdFolder,
                                                              SharingMode::kSocket),
                                            ::testing::ValuesIn(testing::kSymmetricChecks)),
                         name_of);

TEST(SymmetricThreads, ShareOneMappingOfASegment) {
  std::vector<void*> addresses(3);
  meshloom::testing::run_ranks(3, [&](ProcessGroup& group) {
    HostSymmetricMemory memory;
    HostSymmetricGroup& symmetric = testing::enable_on_host(memory, group);
    const auto segment = memory.make_segment(4096);
    addresses[static_cast<std::size_t>(group.rank())] = segment->data();
    const auto buffer =
        symmetric.rendezvous(make_view(segment->data(), DType::kUInt8, Shape{4096}));
    symmetric.barrier(0);
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(buffer->view(r, Shape{1}, DType::kUInt8).data,
                addresses[static_cast<std::size_t>(r)]);
      EXPECT_EQ(symmetric.sharing(r), r == group.rank() ? Sharing::kNone : Sharing::kSameProcess);
    }
    EXPECT_THAT(symmetric.summary(), HasSubstr("by same process, watched by its process"));
    symmetric.barrier(0);
  });
}

TEST(SymmetricThreads, MoreRanksThanASocketQueues) {
  meshloom::testing::run_thread_ranks(16, [](RankRuntime& runtime) {
    testing::check_peer_views(runtime, options_of(SharingMode::kSocket));
    runtime.bootstrap().barrier();
  });
}

TEST(SymmetricThreads, OneRankWithoutAWayTurnsItOffForAll) {
  meshloom::testing::run_ranks(3, [](ProcessGroup& group) {
    HostSymmetricMemory memory(
        options_of(group.rank() == 1 ? SharingMode::kNone : SharingMode::kAuto));
    SymmetricGroup& symmetric = memory.enable(group);
    EXPECT_FALSE(symmetric.enabled());
    EXPECT_THAT(symmetric.why_not(), HasSubstr("rank 1: no way to the memory of rank 0: sharing is "
                                               "turned off"));
    EXPECT_THAT(symmetric.summary(), HasSubstr("off: rank 1"));
    for (int way = 0; way < 4; ++way) try {
        if (way == 0) symmetric.put_signal(0, 0);
        if (way == 1) symmetric.barrier(0);
        if (way == 2) symmetric.workspace(10);
        if (way == 3) symmetric.rendezvous({});
        ADD_FAILURE() << "nothing was thrown by way " << way;
      } catch (const FailedPrecondition& error) {
        EXPECT_EQ(error.reason(), "SYMM_MEM_UNAVAILABLE");
        EXPECT_THAT(error.what(), HasSubstr("turned off"));
      }
  });
}

TEST(SymmetricThreads, RanksThatDifferInChannelsAreRefused) {
  meshloom::testing::run_ranks(2, [](ProcessGroup& group) {
    SymmetricOptions options;
    options.channels = 4 + group.rank();
    HostSymmetricMemory memory(options);
    EXPECT_THROW(memory.enable(group), InvalidArgument);
    EXPECT_EQ(memory.enabled(group), nullptr);
  });
}

}  // namespace
}  // namespace meshloom::comm
