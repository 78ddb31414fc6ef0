// SPDX-License-Identifier: Apache-2.0
// Fragments of the tensor cores, element by element against a second description of them, and
// copies that land at a wait.
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "tests/unit/cuda_emulator/emulated_memory.h"
#include "tests/unit/cuda_emulator/tensor_core_kernels.h"

namespace meshloom::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kSide = 16;

// Small whole numbers: exact in bfloat16, and so are their products' sums in float32.
std::vector<std::uint16_t> random_matrix(std::mt19937& random) {
  std::vector<std::uint16_t> matrix(kSide * kSide);
  for (std::uint16_t& element : matrix) {
    const auto value = static_cast<float>(static_cast<int>(random() % 31) - 15);
    element = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  }
  return matrix;
}

float value_of(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::vector<std::uint16_t> transposed(const std::vector<std::uint16_t>& matrix) {
  std::vector<std::uint16_t> result(matrix.size());
  for (int r = 0; r < kSide; ++r)
    for (int c = 0; c < kSide; ++c) result[c * kSide + r] = matrix[r * kSide + c];
  return result;
}

// CUTLASS describes a fragment by strides: a lane (lane % 4, lane / 4) and a value's bits give an
// index into the matrix in column order.
struct FragmentStrides {
  int lane[2];
  int value[3];

  int index(int thread, int v) const {
    int at = thread % 4 * lane[0] + thread / 4 * lane[1];
    for (int bit = 0; bit < 3; ++bit) at += (v >> bit & 1) * value[bit];
    return at;
  }
};
constexpr FragmentStrides kA{{32, 1}, {16, 8, 128}};  // of [16, 16]
constexpr FragmentStrides kB{{16, 1}, {8, 64, 0}};    // of [8 columns, 16] in column order
constexpr FragmentStrides kC{{32, 1}, {16, 8, 0}};    // of [16, 8]

std::uint16_t half_of(std::uint32_t word, int half) {
  return static_cast<std::uint16_t>(half == 0 ? word : word >> 16);
}

class TensorCoreTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(only_fault(), ""); }

  Fragments shown(CopyWait wait) {
    TestStream stream;
    const DeviceArray<std::uint16_t> a(a_, stream), b(b_, stream), bt(transposed(b_), stream);
    const DeviceArray<Fragments> out(1);
    show_fragments(out.data(), a.data(), bt.data(), b.data(), wait, stream);
    const std::vector<Fragments> fragments = out.values(stream);
    stream.finish();
    return fragments[0];
  }

  std::string fault_of(CopyWait wait) {
    try {
      shown(wait);
    } catch (const std::runtime_error& error) {
      emulator::take_faults();
      return error.what();
    }
    return "";
  }

  std::mt19937 random_{7};
  std::vector<std::uint16_t> a_ = random_matrix(random_), b_ = random_matrix(random_);
};

TEST_F(TensorCoreTest, FragmentsHoldTheElementsThatTheirStridesName) {
  const Fragments f = shown(CopyWait::kAll);
  for (int lane = 0; lane < 32; ++lane) {
    for (int v = 0; v < 8; ++v) {
      const int at = kA.index(lane, v);
      EXPECT_EQ(half_of(f.a[lane][v / 2], v % 2), a_[at % kSide * kSide + at / kSide])
          << "a: lane " << lane << ", value " << v;
    }
    for (int v = 0; v < 4; ++v)
      for (int part = 0; part < 2; ++part) {
        const int at = kB.index(lane, v), column = part * 8 + at % 8, row = at / 8;
        EXPECT_EQ(half_of(f.b[lane][part * 2 + v / 2], v % 2), b_[row * kSide + column])
            << "b: lane " << lane << ", value " << v << " of part " << part;
        EXPECT_EQ(half_of(f.same_b[lane][part * 2 + v / 2], v % 2), b_[row * kSide + column])
            << "b by transposed loads: lane " << lane << ", value " << v << " of part " << part;
      }
  }
}

TEST_F(TensorCoreTest, ProductsAreThoseOfTheMatrices) {
  const Fragments f = shown(CopyWait::kAll);
  for (int lane = 0; lane < 32; ++lane)
    for (int v = 0; v < 4; ++v)
      for (int part = 0; part < 2; ++part) {
        const int at = kC.index(lane, v), row = at % kSide, column = part * 8 + at / kSide;
        float sum = 0.0f;
        for (int k = 0; k < kSide; ++k)
          sum += value_of(a_[row * kSide + k]) * value_of(b_[k * kSide + column]);
        EXPECT_EQ(f.c[lane][part][v], sum) << "row " << row << ", column " << column;
      }
}

TEST_F(TensorCoreTest, CopiesLandAtTheWaitNoEarlier) {
  EXPECT_THAT(fault_of(CopyWait::kNone), HasSubstr("never written"));
  EXPECT_THAT(fault_of(CopyWait::kFirstGroup), HasSubstr("never written"));
}

TEST_F(TensorCoreTest, EveryLaneMultiplies) {
  TestStream stream;
  const DeviceArray<float> out(32);
  multiply_without_all_lanes(out.data(), stream);
  EXPECT_THROW(stream.finish(), std::runtime_error);
  EXPECT_THAT(only_fault(), HasSubstr("names lane"));
}

}  // namespace
}  // namespace meshloom::testing
