// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/gradient_window.h"

#include <gtest/gtest.h>

namespace meshloom::train {
namespace {

v1::LossBatch reduced(v1::LossReduction reduction, std::int64_t tokens = 0) {
  v1::LossBatch batch;
  batch.set_reduction(reduction);
  batch.set_tokens(tokens);
  return batch;
}

TEST(GradientWindow, TheMeanLossIsOverTheTargetsThatCountHoweverItIsReduced) {
  // Two calls, of which 6 and 2 targets count and the losses are 30 and 10.
  const auto mean_of = [](const v1::LossBatch& batch, double loss) {
    GradientWindow window;
    window.add(batch, 1, 6);
    window.add(batch, 1, 2);
    EXPECT_EQ(window.counted(), 8);
    return window.mean_of(loss);
  };
  EXPECT_DOUBLE_EQ(mean_of(reduced(v1::LOSS_REDUCTION_UNSPECIFIED), 40.0), 5.0);
  EXPECT_DOUBLE_EQ(mean_of(reduced(v1::LOSS_REDUCTION_SUM), 40.0), 5.0);
  EXPECT_DOUBLE_EQ(mean_of(reduced(v1::LOSS_REDUCTION_TOKEN_MEAN), 5.0), 5.0);
  EXPECT_DOUBLE_EQ(mean_of(reduced(v1::LOSS_REDUCTION_TOKEN_MEAN, 16), 2.5), 5.0);
}

}  // namespace
}  // namespace meshloom::train
