// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/sample_packing.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace meshloom::train {
namespace {

using Samples = std::vector<std::vector<std::int64_t>>;

TEST(SamplePacking, FillsSamplesBestFitDecreasing) {
  const std::vector<std::int64_t> lengths = {3, 9, 7, 1, 10, 2};
  // 10; 9 with 1; 7 with 3; 2.
  EXPECT_EQ(pack_texts(lengths, 10), (Samples{{0, 2}, {1, 3}, {4}, {5}}));
  EXPECT_EQ(pack_texts({}, 10), Samples());
}

TEST(SamplePacking, HasEveryTextOnceAndFitsAndIsDense) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::int64_t> lengths(1 + random() % 400);
    for (auto& length : lengths)
      length = 1 + static_cast<std::int64_t>(random() % (round < 25 ? 40 : 100));
    const Samples samples = pack_texts(lengths, 100);
    std::vector<int> seen(lengths.size());
    const std::int64_t all = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    for (const auto& sample : samples) {
      std::int64_t used = 0;
      for (const std::int64_t text : sample) {
        used += lengths[static_cast<std::size_t>(text)];
        ++seen[static_cast<std::size_t>(text)];
      }
      EXPECT_LE(used, 100);
      EXPECT_GT(used, 0);
    }
    EXPECT_EQ(seen, std::vector<int>(lengths.size(), 1));
    // Best fit decreasing takes at most 11/9 of the least, and a sample more.
    EXPECT_LE(static_cast<std::int64_t>(samples.size()),
              (all * 11 / 9 + 99) / 100 + all / 100 / 4 + 4);
    EXPECT_EQ(pack_texts(lengths, 100), samples);
  }
}

}  // namespace
}  // namespace meshloom::train
