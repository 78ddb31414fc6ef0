// SPDX-License-Identifier: Apache-2.0
// What is not given is left out of requests, and a 0 that is given arrives as 0 or is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/cli/jobs/field_setting.h"
#include "daemon/cli/plans/plan_options.h"
#include "daemon/cli/runs/loss_options.h"
#include "daemon/cli/sampling/sampling_options.h"
#include "daemon/plan/plan_query.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

using ::testing::HasSubstr;

v1::SamplingParams params_of(const std::string& line) {
  CLI::App app;
  SamplingOptions options;
  add_sampling_options(app, options);
  app.parse("--prompt a " + line);
  return options.params();
}

TEST(ZeroValues, OfSamplingParametersArrive) {
  const v1::SamplingParams plain = params_of("");
  EXPECT_FALSE(plain.has_max_tokens());
  EXPECT_FALSE(plain.has_temperature());
  const v1::SamplingParams zero = params_of("--max-tokens 0 --temperature 0");
  EXPECT_TRUE(zero.has_max_tokens()) << "the daemon refuses it";
  EXPECT_EQ(zero.max_tokens(), 0);
  EXPECT_TRUE(zero.has_temperature());
}

v1::LossBatch batch_of(const std::string& line) {
  CLI::App app;
  LossOptions options;
  add_loss_options(app, options);
  app.parse("--data text.txt " + line);
  return options.batch();
}

TEST(ZeroValues, OfBatchesAreLeftOutOrRefused) {
  const v1::LossBatch plain = batch_of("");
  EXPECT_FALSE(plain.reference().has_seq_len());
  EXPECT_FALSE(plain.has_micro_batch_size());
  EXPECT_THROW(batch_of("--seq 0"), CLI::ValidationError);
  EXPECT_THROW(batch_of("--micro-batch 0"), CLI::ValidationError);
}

v1::PlanQuery query_of(const std::string& line) {
  CLI::App app;
  PlanOptions options;
  add_work_options(app, options);
  add_machine_options(app, options);
  app.parse(line);
  return make_query(options);
}

TEST(ZeroValues, OfPlanQueriesAreLeftOutOrRefused) {
  const v1::PlanQuery plain = query_of("");
  EXPECT_FALSE(plain.has_seq_len());
  EXPECT_FALSE(plain.has_micro_batch_size());
  EXPECT_FALSE(plain.has_global_batch_size());
  EXPECT_FALSE(plain.has_memory_limit_bytes());
  EXPECT_FALSE(plain.has_mesh());
  EXPECT_EQ(query_of("--global-batch 8").global_batch_size(), 8);
  for (const char* option : {"--seq", "--micro-batch", "--global-batch", "--flops"})
    EXPECT_THROW(query_of(std::string(option) + " 0"), CLI::ValidationError) << option;
  const v1::PlanQuery none = query_of("--memory 0GB");
  ASSERT_TRUE(none.has_memory_limit_bytes());
  try {
    plan::query_memory_limit(none, plan::query_machine(none), 1);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("memory_limit_bytes: must be above 0, got 0"));
  }
}

TEST(ZeroValues, OfSettingsTakeThePlaceOfWhatTheJobSays) {
  v1::JobSpec spec;
  spec.mutable_run()->mutable_optimizer()->set_lr(1e-3);
  spec.mutable_run()->mutable_checkpoint()->set_keep_latest_k(3);
  apply_setting(parse_setting("optimizer.lr=0"), &spec);
  apply_setting(parse_setting("checkpoint.keep_latest_k=0"), &spec);
  EXPECT_TRUE(spec.run().optimizer().has_lr());
  EXPECT_EQ(spec.run().optimizer().lr(), 0.0);
  EXPECT_TRUE(spec.run().checkpoint().has_keep_latest_k());
  EXPECT_EQ(spec.run().checkpoint().keep_latest_k(), 0);
}

}  // namespace
}  // namespace meshloom::cli
