// SPDX-License-Identifier: Apache-2.0
// Estimates of h100 beside throughput that others have published of the same model and mesh.
#include <gtest/gtest.h>

#include "daemon/nn/models/presets.h"
#include "daemon/plan/plan_query.h"

namespace meshloom::plan {
namespace {

struct PublishedRun {
  const char* what;
  const char* preset;
  int dp, fsdp;
  std::int64_t seq_len, micro_batch;
  v1::ActivationCheckpoint checkpoint;
  double tokens_per_second;  ///< of a GPU
};

constexpr PublishedRun kRuns[] = {
    // torchtitan, benchmarks/llama3_h100_202412: compiled, bfloat16, selective checkpointing of
    // every second product, which is between none and all of a layer.
    {"torchtitan, 8 GPUs", "llama3_8b", 1, 8, 8192, 2, v1::ACTIVATION_CHECKPOINT_SELECTIVE, 6667},
    {"torchtitan, 8 GPUs", "llama3_8b", 1, 8, 8192, 2, v1::ACTIVATION_CHECKPOINT_NONE, 6667},
    {"torchtitan, 128 GPUs", "llama3_8b", 1, 128, 8192, 2, v1::ACTIVATION_CHECKPOINT_SELECTIVE,
     6514},
};

v1::PlanEstimate estimate(const PublishedRun& run) {
  v1::PlanQuery query;
  query.set_cluster_name("h100");
  query.mutable_mesh()->set_dp(run.dp);
  query.mutable_mesh()->set_fsdp(run.fsdp);
  query.mutable_plan()->set_dtype("bfloat16");
  query.mutable_plan()->set_activation_checkpoint(run.checkpoint);
  query.set_seq_len(run.seq_len);
  query.set_micro_batch_size(run.micro_batch);
  query.set_global_batch_size(run.micro_batch * run.dp * run.fsdp);
  return estimate_plan(nn::preset_config(run.preset), query);
}

TEST(PublishedRuns, OfH100AreWithinAQuarterOfTheEstimate) {
  for (const PublishedRun& run : kRuns) {
    const v1::PlanEstimate told = estimate(run);
    const double each = told.seconds().tokens_per_second() / static_cast<double>(told.ranks());
    EXPECT_GT(each, 0.75 * run.tokens_per_second) << run.what;
    EXPECT_LT(each, 1.25 * run.tokens_per_second) << run.what;
  }
}

TEST(PublishedRuns, MfuIsAShareOfTheDensePeak) {
  const v1::PlanEstimate told = estimate(kRuns[1]);
  // 6 flops a parameter without the embedding, and those of causal attention, over 989 TFLOP/s.
  const double flops = 6.0 * (8.03e9 - 0.525e9) + 3.0 * 32 * 2 * 4096.0 * 8192;
  const double each = told.seconds().tokens_per_second() / 8.0;
  EXPECT_NEAR(told.seconds().mfu(), each * flops / 989e12, 0.01);
  EXPECT_LT(told.seconds().mfu(), 0.5) << "nobody has published more of this model in bfloat16";
}

}  // namespace
}  // namespace meshloom::plan
