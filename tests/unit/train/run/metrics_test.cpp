// SPDX-License-Identifier: Apache-2.0
// What a step tells of itself.
#include <gtest/gtest.h>

#include "daemon/nn/models/model_config.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

class MetricsTest : public RunFixture {
 protected:
  /// Documents of 8 bytes, two of which fill a window.
  v1::RunConfig on_lines(const MeshSize& m = {}) {
    folder_.write_text("lines.txt", [] {
      std::string text;
      for (int i = 0; i < 300; ++i) text += "1234567\n";
      return text;
    }());
    v1::RunConfig c = config();
    set_mesh(c, m);
    c.mutable_data()->set_path("lines.txt");
    c.mutable_data()->set_document_end('\n');
    c.mutable_training()->set_peak_flops(1e9);
    return c;
  }
  /// Operations of the first step, all ranks together.
  double flops_of(const v1::RunConfig& c, int ranks) {
    double flops = 0.0;
    testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, c);
      run->forward_backward();
      const v1::StepMetrics metrics = run->optim_step();
      const double seconds = static_cast<double>(metrics.tokens()) / metrics.tokens_per_second();
      if (world.rank() == 0) flops = metrics.mfu() * seconds * 1e9 * ranks;
    });
    return flops;
  }
};

TEST_F(MetricsTest, MfuIsAShareOfThePeakThatTheConfigNames) {
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    v1::RunConfig c = config();
    testing::TestContext context;
    const auto step = [&] {
      const auto run = create(world, context, c);
      run->forward_backward();
      return run->optim_step();
    };
    EXPECT_FALSE(step().has_mfu());
    c.mutable_training()->set_peak_flops(1e9);
    const v1::StepMetrics metrics = step();
    const double flops = nn::flops_per_token(nn::parse_hf_config(testing::tiny_gpt2_config()),
                                             testing::kTinyContext);
    EXPECT_NEAR(metrics.mfu(), metrics.tokens_per_second() * flops / 2e9, 1e-6 * metrics.mfu());
    EXPECT_GT(metrics.mfu(), 0.0);
  });
}

TEST_F(MetricsTest, PaddingAndKeysOfOtherDocumentsAreNoWork) {
  const nn::ModelConfig model = nn::parse_hf_config(testing::tiny_gpt2_config());
  const nn::ModelFlops flops = nn::model_flops(model);
  const auto work = [&](double tokens, double pairs) {
    return tokens * flops.per_token + pairs * flops.per_pair;
  };
  // 6 samples of 16 positions.
  v1::RunConfig c = on_lines();
  EXPECT_NEAR(flops_of(c, 1), work(6 * 16, 6 * 128), 1.0);
  c.mutable_data()->set_document_mask(true);
  EXPECT_NEAR(flops_of(c, 1), work(6 * 16, 12 * 32), 1.0) << "12 documents of 8";
  c.mutable_data()->set_document_mask(false);
  c.mutable_data()->set_pack_documents(false);
  EXPECT_NEAR(flops_of(c, 1), work(6 * 7, 6 * 24.5), 1.0) << "of each the last token is a label";
}

TEST_F(MetricsTest, WorkOfSeveralRanksIsCountedOnce) {
  for (const bool mask : {false, true}) {
    v1::RunConfig one = on_lines();
    one.mutable_data()->set_document_mask(mask);
    const double expected = flops_of(one, 1);
    for (const MeshSize& m : {MeshSize{4, 1, 1}, MeshSize{1, 1, 2}, MeshSize{1, 1, 1, false, 2},
                              MeshSize{2, 1, 1, false, 2}}) {
      v1::RunConfig c = on_lines(m);
      c.mutable_data()->set_document_mask(mask);
      EXPECT_NEAR(flops_of(c, m.ranks()), expected, 1e-6 * expected);
    }
  }
}

}  // namespace
}  // namespace meshloom::train
