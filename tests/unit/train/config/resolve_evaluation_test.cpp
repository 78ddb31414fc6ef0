// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/resolve_evaluation.h"

#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

class ResolveEvaluationTest : public RunFixture {
 protected:
  /// As a request on a file makes it.
  v1::RunConfig request(const std::string& data) const {
    v1::RunConfig config;
    config.mutable_model()->set_config("config.json");
    config.mutable_plan()->set_dtype("float32");
    config.mutable_data()->set_path(data);
    config.mutable_data()->set_validation_path(data);
    config.mutable_training()->set_global_batch_size(8);
    config.mutable_optimizer()->set_type(v1::OPTIMIZER_TYPE_SGD);
    return config;
  }
  v1::RunConfig resolve(const v1::RunConfig& config, int ranks = 1) const {
    return resolve_evaluation_config(config,
                                     {.world_size = ranks,
                                      .data_dir = folder_.path(),
                                      .model_folder = {},
                                      .named_tokenizer = {}},
                                     {});
  }
  std::string refused(const v1::RunConfig& config) const {
    try {
      resolve(config);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(ResolveEvaluationTest, ABatchIsAtMostAllSamples) {
  folder_.write_text("three.txt", std::string(40, 'x'));  // 39 labels: 16, 16 and 7
  v1::RunConfig config = request("three.txt");
  config.mutable_training()->set_global_batch_size(1'000'000);
  const v1::RunConfig resolved = resolve(config, 2);
  EXPECT_EQ(resolved.training().global_batch_size(), 3);
  EXPECT_EQ(resolved.training().micro_batch_size(), 2);
  EXPECT_EQ(resolved.training().steps(), 0);
  EXPECT_EQ(resolve(request("text.txt")).training().global_batch_size(), 8);
  // That of a job stays, so that its losses are the job's to the bit; the data may have fewer.
  config.mutable_training()->set_global_batch_size(12);
  config.mutable_training()->set_micro_batch_size(6);
  const v1::RunConfig of_job = resolve(config, 2);
  EXPECT_EQ(of_job.training().global_batch_size(), 12);
  EXPECT_EQ(of_job.training().micro_batch_size(), 6);
  EXPECT_EQ(resolve(config, 4).training().micro_batch_size(), 3) << "more ranks than it had";
}

TEST_F(ResolveEvaluationTest, ATextShorterThanASampleIsOne) {
  folder_.write_text("two.txt", "ab");
  EXPECT_EQ(resolve(request("two.txt")).training().global_batch_size(), 1);
  folder_.write_text("one.txt", "a");
  EXPECT_EQ(refused(request("one.txt")),
            "run.data.validation_path: 1 tokens hold nothing to predict");
  v1::RunConfig of_job = request("text.txt");
  of_job.mutable_data()->clear_validation_path();
  of_job.mutable_data()->set_validation_split(0.0);
  EXPECT_EQ(refused(of_job),
            "run.data.path: is needed: the 0 tokens that the job validates on hold nothing to "
            "predict");
}

TEST_F(ResolveEvaluationTest, ItsRunEvaluatesAndTrainsNothing) {
  folder_.write_text("short.txt", "in the ");
  testing::run_ranks(3, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    RunOptions options;
    options.folders.data_dir = folder_.path();
    test::LocalJob run(RankResources{&context, &world}, resolve(request("short.txt"), 3), options);
    const auto losses = run.evaluate(0, 10);
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_EQ(losses[0].labels, 6);
    EXPECT_THROW(run.forward_backward(), FailedPrecondition);
  });
}

}  // namespace
}  // namespace meshloom::train
