// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/philox.h"

#include <gtest/gtest.h>

namespace meshloom {
namespace {

// The known answers that the authors of Philox publish with Random123 (kat_vectors, philox 4x32
// 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  constexpr std::uint32_t kOnes = 0xffffffffu;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxBlock{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(
      philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
      (PhiloxBlock{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, StreamNamesEveryBit) {
  const PhiloxStream stream{0x299f31d0a4093822ull, 0x0370734413198a2eull};
  EXPECT_EQ(stream.block(0x85a308d3243f6a88ull),
            (PhiloxBlock{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(stream.at(i), stream.block(i / 4)[i % 4]);
}

TEST(Philox, UniformIsInTheUnitInterval) {
  EXPECT_EQ(philox_uniform(0), 0.0f);
  EXPECT_LT(philox_uniform(0xffffffffu), 1.0f);
  EXPECT_EQ(philox_uniform(0x80000000u), 0.5f);
}

}  // namespace
}  // namespace meshloom
