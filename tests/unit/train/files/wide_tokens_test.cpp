// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/wide_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/base/philox.h"
#include "tests/unit/train/data_files.h"

namespace meshloom::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Halves = std::vector<std::uint16_t>;

/// What a file of ids of `halves` x 16 bits holds, little endian or the other way round.
Halves in_halves(std::int64_t count, std::size_t halves, std::uint32_t vocab_size,
                 bool big_endian = false) {
  const PhiloxStream random{7, 0};
  Halves values;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<std::uint32_t>(random.at(static_cast<std::uint64_t>(i)) %
                                               std::uint64_t{vocab_size});
    Halves parts(halves, 0);
    parts[0] = static_cast<std::uint16_t>(id);
    parts[1] = static_cast<std::uint16_t>(id >> 16);
    if (big_endian) std::reverse(parts.begin(), parts.end());
    values.insert(values.end(), parts.begin(), parts.end());
  }
  return values;
}

class WideTokensTest : public ::testing::Test {
 protected:
  std::string refused(const Halves& values, std::int64_t most_high = 0) const {
    try {
      const auto path = folder_.write_u16("tokens.bin", values);
      refuse_wide_tokens(TokenStream::open(path, TokenFormat::kNanogpt), most_high);
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.reason(), "TOKENS_TOO_WIDE");
      return error.what();
    }
    return "accepted";
  }

  testing::DataFolder folder_;
};

TEST_F(WideTokensTest, IdsOf32And64BitsAreRefusedByName) {
  EXPECT_THAT(refused(in_halves(1188, 2, 300)),
              AllOf(HasSubstr("tokens.bin"), HasSubstr("of the 2376 that were looked at is 0"),
                    HasSubstr("32 bits"), HasSubstr("uint16"), HasSubstr("20240801")));
  EXPECT_THAT(refused(in_halves(100'000, 2, 50'257)), HasSubstr("of the 4096 that"));
  EXPECT_THAT(refused(in_halves(5000, 4, 50'257)), HasSubstr("64 bits"));
  EXPECT_THAT(refused(in_halves(5000, 2, 50'257, true)), HasSubstr("32 bits"));
  // Format given or found, in a folder too.
  folder_.write_u16("shards/a.bin", Halves(100, 7));
  folder_.write_u16("shards/b.bin", in_halves(200, 2, 300));
  try {
    TokenStream::open(folder_.path() / "shards", TokenFormat::kAuto);
    FAIL() << "b.bin was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("b.bin"));
  }
}

TEST_F(WideTokensTest, UpperHalvesOfALargeVocabularyAreToldByItsSize) {
  const Halves wide = in_halves(5000, 2, 151'936);
  EXPECT_EQ(refused(wide), "accepted") << "nothing says that 1 and 2 are no tokens";
  EXPECT_THAT(refused(wide, (151'936 - 1) / kNarrowVocabulary), HasSubstr("at most 2"));
  EXPECT_EQ(refused(in_halves(5000, 2, 151'936), 1), "accepted") << "some are more than 1";
}

TEST_F(WideTokensTest, RightIdsPass) {
  const PhiloxStream random{3, 1};
  for (const std::uint64_t vocab : {2, 3, 256, 50'257, 65'536}) {
    for (const int size : {2, 10, 63, 64, 65, 4095, 4097, 50'000}) {
      Halves values;
      for (int i = 0; i < size; ++i)
        values.push_back(
            static_cast<std::uint16_t>(random.at(static_cast<std::uint64_t>(i)) % vocab));
      EXPECT_EQ(refused(values), "accepted") << vocab << " ids, " << size;
      if (vocab > 1000) {
        EXPECT_EQ(refused(values, 2), "accepted") << vocab << " ids, " << size;
      }
    }
  }
  EXPECT_EQ(refused(Halves(4000, 0)), "accepted") << "padding alone";
  Halves padded(4000, 0);
  for (std::size_t i = 0; i < 31; ++i) padded[2 * i] = 5;
  EXPECT_EQ(refused(padded), "accepted") << "too few to tell";
  // One that is not 0 where it is looked at says that they are tokens.
  Halves one = in_halves(1000, 2, 300);
  one[1001] = 9;
  EXPECT_EQ(refused(one), "accepted");
}

}  // namespace
}  // namespace meshloom::train
