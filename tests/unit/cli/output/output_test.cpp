// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/output/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshloom::cli {
namespace {

std::string printed(const v1::Job& job) {
  testing::internal::CaptureStdout();
  print_job(job, {});
  return testing::internal::GetCapturedStdout();
}

v1::SetLoss set_loss(const std::string& set, double loss) {
  v1::SetLoss result;
  result.set_set(set);
  result.set_loss(loss);
  result.set_perplexity(2.0);
  return result;
}

TEST(Output, AJobShowsItsFirstAndItsLastValidation) {
  v1::Job job;
  job.mutable_first_validation()->set_loss(5.5);
  *job.mutable_first_validation()->add_sets() = set_loss("news", 5.25);
  job.mutable_last_validation()->set_step(60);
  job.mutable_last_validation()->set_loss(2.5);
  *job.mutable_last_validation()->add_sets() = set_loss("news", 2.25);
  const std::string text = printed(job);
  EXPECT_THAT(text, testing::HasSubstr("loss 5.5000 at step 0, 2.5000 at step 60\n"));
  EXPECT_THAT(text, testing::HasSubstr("news: loss 5.2500 at step 0, 2.2500 at step 60, "));
}

TEST(Output, TheOnlyValidationIsShownOnce) {
  v1::Job job;
  for (v1::ValidationMetrics* of :
       {job.mutable_first_validation(), job.mutable_last_validation()}) {
    of->set_step(80);
    of->set_loss(2.5);
    *of->add_sets() = set_loss("news", 2.25);
  }
  const std::string text = printed(job);
  EXPECT_THAT(text, testing::HasSubstr("validation  loss 2.5000 at step 80\n"));
  EXPECT_THAT(text, testing::HasSubstr("news: loss 2.2500 at step 80, perplexity 2.00\n"));
}

TEST(Output, DigitsAreGroupedAndOneThingHasNoS) {
  EXPECT_EQ(grouped_digits(999), "999");
  EXPECT_EQ(grouped_digits(1000), "1,000");
  EXPECT_EQ(grouped_digits(4404412), "4,404,412");
  EXPECT_EQ(plural(1, "rank"), "1 rank");
  EXPECT_EQ(plural(2048, "token"), "2,048 tokens");
}

}  // namespace
}  // namespace meshloom::cli
