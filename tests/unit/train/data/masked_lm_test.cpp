// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/masked_lm.h"

#include <gtest/gtest.h>

#include <map>

#include "daemon/train/data/dataset.h"

namespace meshloom::train {
namespace {

constexpr std::int64_t kMask = 1000;

std::vector<std::int64_t> tokens(std::size_t length) {
  std::vector<std::int64_t> all(length);
  for (std::size_t i = 0; i < length; ++i) all[i] = static_cast<std::int64_t>(i % 90);
  return all;
}

struct Masked {
  std::vector<std::int64_t> inputs, labels;
  std::int64_t counted = 0;
  bool operator==(const Masked&) const = default;
};

Masked mask(const MaskedLmOptions& options, const std::vector<std::int64_t>& sample,
            std::uint64_t seed, std::int64_t place) {
  Masked m{sample, sample};
  m.counted = mask_sample(options, seed, place, m.inputs, m.labels);
  return m;
}

TEST(MaskedLm, SharesAreThoseOfTheOptions) {
  const MaskedLmOptions options{.vocab_size = 1001, .mask_token = kMask};
  const auto sample = tokens(200'000);
  const Masked m = mask(options, sample, 7, 3);
  std::int64_t chosen = 0, masked = 0, random = 0, kept = 0;
  std::map<std::int64_t, int> drawn;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    if (m.labels[i] == kIgnoredLabel) {
      EXPECT_EQ(m.inputs[i], sample[i]);
      continue;
    }
    EXPECT_EQ(m.labels[i], sample[i]);
    ++chosen;
    if (m.inputs[i] == kMask) {
      ++masked;
    } else if (m.inputs[i] == sample[i]) {
      ++kept;
    } else {
      ++random;
      ++drawn[m.inputs[i]];
      EXPECT_LT(m.inputs[i], options.vocab_size);
      EXPECT_GE(m.inputs[i], 0);
    }
  }
  EXPECT_EQ(m.counted, chosen);
  // Five standard deviations of a binomial count.
  EXPECT_NEAR(static_cast<double>(chosen), 30'000, 800);
  EXPECT_NEAR(static_cast<double>(masked) / static_cast<double>(chosen), 0.8, 0.012);
  EXPECT_NEAR(static_cast<double>(random) / static_cast<double>(chosen), 0.1, 0.009);
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(chosen), 0.1, 0.009);
  EXPECT_GT(drawn.size(), 900u) << "random tokens come from the whole vocabulary";
}

TEST(MaskedLm, IsDrawnBySeedPlaceAndPosition) {
  const MaskedLmOptions options{.vocab_size = 1001, .mask_token = kMask};
  const auto sample = tokens(500);
  EXPECT_EQ(mask(options, sample, 7, 3), mask(options, sample, 7, 3));
  EXPECT_NE(mask(options, sample, 7, 3), mask(options, sample, 8, 3));
  EXPECT_NE(mask(options, sample, 7, 3), mask(options, sample, 7, 4));
}

TEST(MaskedLm, PaddingAndSpecialTokensAreNeverChosenAndEverySampleHasALabel) {
  MaskedLmOptions options{.vocab_size = 1001, .mask_token = kMask};
  options.probability = 0.02;
  options.special_tokens = {0, 5};
  for (std::int64_t place = 0; place < 300; ++place) {
    Masked m{tokens(12), tokens(12)};
    std::fill(m.labels.begin() + 8, m.labels.end(), kIgnoredLabel);
    m.counted = mask_sample(options, 1, place, m.inputs, m.labels);
    EXPECT_GE(m.counted, 1);
    for (const std::size_t s : {0, 5, 8, 9, 10, 11}) {
      EXPECT_EQ(m.labels[s], kIgnoredLabel);
      EXPECT_EQ(m.inputs[s], static_cast<std::int64_t>(s));
    }
  }
  std::vector<std::int64_t> inputs = {5, 0, 5}, labels = inputs;
  EXPECT_EQ(mask_sample(options, 1, 0, inputs, labels), 0);
}

}  // namespace
}  // namespace meshloom::train
