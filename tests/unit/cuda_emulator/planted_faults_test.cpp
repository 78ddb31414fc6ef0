// SPDX-License-Identifier: Apache-2.0
// Faults of kernels: each is found, with its place, and its clean twin passes with every seed.
#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "tests/unit/cuda_emulator/emulated_memory.h"
#include "tests/unit/cuda_emulator/planted_kernels.h"

// Launches need it, and the tests have nothing else of the backend.
namespace meshloom::kernels::cuda {
void check_launch(cudaError_t error, const char*) { testing::check(error); }
}  // namespace meshloom::kernels::cuda

namespace meshloom::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// The kernels as one level of optimisation compiles them.
struct Level {
  const char* name;
  decltype(&optimised::row_sums) row_sums;
  decltype(&optimised::transpose) transpose;
  decltype(&optimised::add_one) add_one;
  decltype(&optimised::number) number;
  decltype(&optimised::count_blocks) count_blocks;
  decltype(&optimised::warp_calls) warp_calls;
  decltype(&optimised::read_by_many) read_by_many;
};

void PrintTo(const Level& level, std::ostream* out) { *out << level.name; }

#define MESHLOOM_LEVEL(NAME)                                                                 \
  Level {                                                                                    \
#NAME, NAME::row_sums, NAME::transpose, NAME::add_one, NAME::number, NAME::count_blocks, \
        NAME::warp_calls, NAME::read_by_many                                                 \
  }

constexpr int kSeeds = 5;

class PlantedFaultsTest : public ::testing::TestWithParam<Level> {
 protected:
  void TearDown() override { EXPECT_EQ(only_fault(), ""); }

  /// The text of the fault that the work of `body` meets, with each of the seeds.
  void expect_fault(const std::function<void(cudaStream_t)>& body,
                    const ::testing::Matcher<std::string>& expected) {
    for (int seed = 1; seed <= kSeeds; ++seed) {
      emulator::set_seed(static_cast<std::uint64_t>(seed));
      TestStream stream;
      try {
        body(stream);
        stream.finish();
        ADD_FAILURE() << "nothing was found, seed " << seed;
      } catch (const std::runtime_error& error) {
        EXPECT_THAT(error.what(), expected) << "seed " << seed;
      }
      emulator::take_faults();
    }
  }

  void expect_row_sums(Planted planted, const std::string& expected, const char* place) {
    expect_fault(
        [&](cudaStream_t stream) {
          const DeviceArray<float> in(ramp(3 * 260), stream), out(3);
          GetParam().row_sums(out.data(), in.data(), 3, 260, planted, stream);
          check(cudaStreamSynchronize(stream));
        },
        AllOf(HasSubstr(expected), HasSubstr("thread ("), HasSubstr("block ("),
              ContainsRegex(place)));
  }

  void expect_transpose(Planted planted, const std::string& expected) {
    expect_fault(
        [&](cudaStream_t stream) {
          const DeviceArray<float> in(ramp(50 * 70), stream), out(50 * 70);
          GetParam().transpose(out.data(), in.data(), 50, 70, planted, stream);
          check(cudaStreamSynchronize(stream));
        },
        AllOf(HasSubstr(expected), HasSubstr("transpose_kernel"),
              ContainsRegex("planted_kernels.cu:[0-9]+")));
  }
};

INSTANTIATE_TEST_SUITE_P(Levels, PlantedFaultsTest,
                         ::testing::Values(MESHLOOM_LEVEL(unoptimised), MESHLOOM_LEVEL(optimised)),
                         [](const auto& level) { return std::string(level.param.name); });

TEST_P(PlantedFaultsTest, CleanKernelsGiveTheSameWithEverySeed) {
  std::vector<float> first;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    emulator::set_seed(static_cast<std::uint64_t>(seed));
    const TestStream stream;
    const std::vector<float> values = ramp(50 * 72);
    const DeviceArray<float> in(values, stream), sums(50), turned(50 * 72);
    GetParam().row_sums(sums.data(), in.data(), 50, 72, Planted::kNothing, stream);
    GetParam().transpose(turned.data(), in.data(), 50, 72, Planted::kNothing, stream);
    std::vector<float> got = sums.values(stream);
    for (std::size_t row = 0; row < 50; ++row) {
      float sum = 0;
      for (std::size_t c = 0; c < 72; ++c) sum += values[row * 72 + c];
      EXPECT_EQ(got[row], sum);
    }
    const std::vector<float> back = turned.values(stream);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(back[i % 72 * 50 + i / 72], values[i]) << i;
    got.insert(got.end(), back.begin(), back.end());
    if (seed == 1) first = got;
    EXPECT_EQ(got, first) << "seed " << seed;
  }
}

TEST_P(PlantedFaultsTest, FindsAMissingBarrier) {
  expect_row_sums(Planted::kMissingBarrier, "shared memory", "planted_kernels.cu:[0-9]+");
}

TEST_P(PlantedFaultsTest, FindsAReadPastTheEnd) {
  expect_row_sums(Planted::kReadPastEnd,
                  "memory that is not allocated: read of 4 bytes at byte 3120 of an allocation of "
                  "3120 bytes on cuda:0, by thread (3, 0, 0) of block (2, 0, 0)",
                  "planted_kernels.cu:33");
}

TEST_P(PlantedFaultsTest, FindsAWrongMask) {
  expect_row_sums(Planted::kWrongMask, "mask 0x0000ffff", "planted_kernels.cu:17");
}

TEST_P(PlantedFaultsTest, FindsAMisalignedVector) {
  expect_row_sums(Planted::kMisalignedVector, "a misaligned address", "planted_kernels.cu:30");
}

TEST_P(PlantedFaultsTest, FindsARaceInABlock) {
  expect_transpose(Planted::kRace, "a race in a block");
}

TEST_P(PlantedFaultsTest, FindsABarrierThatNotAllReach) {
  expect_transpose(Planted::kUnreachedBarrier, "a barrier that not all threads reach");
}

TEST_P(PlantedFaultsTest, FindsAReadOfWhatNobodyWrote) {
  expect_fault(
      [&](cudaStream_t stream) {
        const DeviceArray<float> in(200), out(200);
        check(cudaMemsetAsync(in.data(), 0, 199 * sizeof(float), stream));
        GetParam().add_one(out.data(), in.data(), 200, stream);
        check(cudaStreamSynchronize(stream));
      },
      AllOf(HasSubstr("memory that was never written: read of 4 bytes at byte 796"),
            HasSubstr("thread (71, 0, 0) of block (1, 0, 0)")));
}

TEST_P(PlantedFaultsTest, FindsTwoBlocksOnOneByte) {
  expect_fault(
      [&](cudaStream_t stream) {
        const DeviceArray<int> sum({0}, stream);
        GetParam().count_blocks(sum.data(), false, stream);
        check(cudaStreamSynchronize(stream));
      },
      HasSubstr("a race between blocks"));
  const TestStream stream;
  const DeviceArray<int> sum({0}, stream);
  GetParam().count_blocks(sum.data(), true, stream);
  EXPECT_EQ(sum.values(stream).front(), 8);
}

TEST_P(PlantedFaultsTest, FindsAWriteOfWhatAnotherBlockReads) {
  expect_fault(
      [&](cudaStream_t stream) {
        const DeviceArray<float> in({3.0f}, stream), out(8);
        GetParam().read_by_many(out.data(), in.data(), 5, stream);
        check(cudaStreamSynchronize(stream));
      },
      HasSubstr("a race between blocks"));
  const TestStream stream;
  const DeviceArray<float> in({3.0f}, stream), out(8);
  GetParam().read_by_many(out.data(), in.data(), -1, stream);
  EXPECT_EQ(out.values(stream), std::vector<float>(8, 3.0f));
}

TEST_P(PlantedFaultsTest, FindsFreedMemory) {
  expect_fault(
      [&](cudaStream_t stream) {
        const DeviceArray<float> out(128);
        float* freed = nullptr;
        {
          const DeviceArray<float> in(ramp(128), stream);
          freed = in.data();
        }
        GetParam().add_one(out.data(), freed, 128, stream);
        check(cudaStreamSynchronize(stream));
      },
      HasSubstr("memory that is not allocated: read of 4 bytes at freed memory of cuda:0"));
}

TEST_P(PlantedFaultsTest, FindsMemoryOfTheHost) {
  expect_fault(
      [&](cudaStream_t stream) {
        const DeviceArray<float> out(128);
        const std::vector<float> in = ramp(128);
        GetParam().add_one(out.data(), in.data(), 128, stream);
        check(cudaStreamSynchronize(stream));
      },
      HasSubstr("memory of the host: read of 4 bytes"));
}

TEST_P(PlantedFaultsTest, RefusesLaunchesBeyondTheLimits) {
  const TestStream stream;
  const DeviceArray<float> out(128);
  const auto refusal = [&](int threads, std::size_t shared, bool allow) -> std::string {
    try {
      GetParam().number(out.data(), 128, threads, shared, allow, stream);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(1056, 8 << 10, true), HasSubstr("blocks of (1056, 1, 1) threads"));
  EXPECT_THAT(refusal(0, 8 << 10, true), HasSubstr("blocks of (0, 1, 1) threads"));
  EXPECT_THAT(refusal(128, 49 << 10, false),
              HasSubstr("50176 bytes of dynamic shared memory, expected at most 49152"));
  EXPECT_THAT(refusal(128, 228 << 10, true), HasSubstr("expected at most 232448"));
  EXPECT_EQ(refusal(128, 49 << 10, true), "");
  EXPECT_EQ(out.values(stream)[127], 127.0f);
}

TEST_P(PlantedFaultsTest, WarpCallsGiveWhatLanesOfAGroupHold) {
  const TestStream stream;
  const DeviceArray<int> out(32 * 8);
  GetParam().warp_calls(out.data(), stream);
  const std::vector<int> got = out.values(stream);
  for (int lane = 0; lane < 32; ++lane) {
    const std::vector<int> mine(got.begin() + lane * 8, got.begin() + lane * 8 + 8);
    const int next = lane % 16 == 15 ? lane : lane + 1;
    EXPECT_THAT(
        mine, ::testing::ElementsAre(5, lane < 3 ? lane : lane - 3, lane > 28 ? lane : lane + 3,
                                     lane ^ 7, static_cast<int>(0xaaaaaaaau), 7, 11, 2 * next + 1))
        << lane;
  }
}

}  // namespace
}  // namespace meshloom::testing
