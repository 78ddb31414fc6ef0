// SPDX-License-Identifier: Apache-2.0
// Verbs against jobs: the same bits on the same samples.
#include "daemon/train/run/rank_run.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/data/run_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/train/run/stepped_fixture.h"

namespace meshloom::train {
namespace {

class RankRunTest : public SteppedFixture {
 protected:
  /// A job of the same mesh.
  v1::RunConfig job_config(const WholeMesh& m, std::int64_t batch) const {
    return job_config(stepped_config(m), batch);
  }
  v1::RunConfig job_config(const v1::RunConfig& stepped, std::int64_t batch) const {
    v1::RunConfig c = config(batch);
    *c.mutable_mesh() = stepped.mesh();
    *c.mutable_plan() = stepped.plan();
    c.mutable_training()->set_micro_batch_size(2);
    c.mutable_training()->set_max_norm(0.5);
    c.mutable_lr_scheduler()->set_decay_type(v1::DECAY_TYPE_CONSTANT);
    c.mutable_lr_scheduler()->set_warmup_steps(0);
    return c;
  }

  /// The samples of a global batch of the job, in their order.
  v1::LossBatch samples_of(const v1::RunConfig& resolved, std::int64_t step) const {
    const nn::ModelConfig model = load_model_config(resolved.model(), folder_.path());
    const RunData data = open_run_data(resolved, model, folder_.path());
    const std::int64_t batch = resolved.training().global_batch_size();
    const BatchLoader loader(data.training, {batch, batch, 1}, resolved.training().seed(), true);
    const TokenBatch host = loader.load(step * batch, 0).front();
    const std::int64_t length = resolved.training().seq_len();
    v1::LossBatch result;
    result.set_loss("cross_entropy");
    result.set_reduction(v1::LOSS_REDUCTION_TOKEN_MEAN);
    result.set_tokens(batch * length);
    for (std::int64_t row = 0; row < batch; ++row) {
      v1::Datum& datum = *result.add_data();
      for (std::int64_t t = row * length; t < (row + 1) * length; ++t) {
        datum.add_tokens(static_cast<int>(host.inputs[static_cast<std::size_t>(t)]));
        datum.add_targets(static_cast<int>(host.labels[static_cast<std::size_t>(t)]));
      }
    }
    return result;
  }

  enum class Way { kTokens, kWeightedTokens, kReference };
  v1::LossBatch batch_of(Way way, const v1::RunConfig& resolved, std::int64_t step) const {
    switch (way) {
      case Way::kTokens: return samples_of(resolved, step);
      case Way::kWeightedTokens: return weighted_samples_of(resolved, step);
      case Way::kReference: return reference_of(resolved, step);
    }
    return {};
  }
  /// The same as tokens with weights, and as a reference that the ranks read.
  v1::LossBatch weighted_samples_of(const v1::RunConfig& resolved, std::int64_t step) const {
    v1::LossBatch batch = samples_of(resolved, step);
    for (v1::Datum& datum : *batch.mutable_data())
      for (int t = 0; t < datum.tokens_size(); ++t) datum.add_weights(1.0f);
    return batch;
  }
  v1::LossBatch reference_of(const v1::RunConfig& resolved, std::int64_t step) const {
    v1::LossBatch batch = samples_of(resolved, step);
    v1::DataReference& reference = *batch.mutable_reference();
    *reference.mutable_data() = resolved.data();
    reference.set_seq_len(resolved.training().seq_len());
    reference.set_samples(batch.data_size());
    reference.set_first_sample(step * batch.data_size());
    batch.clear_data();
    return batch;
  }

  Trace run_job(const WholeMesh& m, const v1::RunConfig& c, int count) const {
    return run_training(c, m.ranks(), count);
  }

  Trace run_verbs(const WholeMesh& m, const v1::RunConfig& job, int count, Way way) const {
    v1::RunConfig c = stepped_config(m);
    *c.mutable_plan() = job.plan();
    c.mutable_training()->set_max_norm(0.5);
    const v1::RunConfig resolved =
        resolve_run_config(job, {.world_size = m.ranks(), .data_dir = folder_.path()});
    const test::TempFolder states;
    Trace trace;
    on_mesh(m, c, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
      Trace mine;
      for (int step = 0; step < count; ++step) {
        run.forward_backward(batch_of(way, resolved, step));
        const v1::OptimStepOutput output = run.optim_step({});
        mine.losses.push_back(output.loss());
        mine.norms.push_back(output.grad_norm());
      }
      run->save_state(states.path() / "state", {});
      if (world.rank() != 0) return;
      mine.weights = weights_of(states.path() / "state");
      trace = std::move(mine);
    });
    return trace;
  }
};

TEST_F(RankRunTest, GivesTheBitsOfAJob) {
  for (const WholeMesh& m : kWholeMeshes) {
    SCOPED_TRACE(m.name);
    const v1::RunConfig job = job_config(m, 7);
    const Trace expected = run_job(m, job, 4);
    ASSERT_EQ(expected.losses.size(), 4u);
    expect_equal(run_verbs(m, job, 4, Way::kTokens), expected);
    expect_equal(run_verbs(m, job, 4, Way::kWeightedTokens), expected);
    expect_equal(run_verbs(m, job, 4, Way::kReference), expected);
  }
}

TEST_F(RankRunTest, GivesTheBitsOfAJobInBFloat16AndWithCheckpoints) {
  for (const WholeMesh& m :
       {WholeMesh{}, WholeMesh{"fsdp2_tp2", 1, 2, 1, 2}, WholeMesh{"cp2", 1, 1, 2}}) {
    SCOPED_TRACE(m.name);
    v1::RunConfig c = stepped_config(m);
    c.mutable_plan()->set_dtype("bfloat16");
    c.mutable_plan()->set_activation_checkpoint(v1::ACTIVATION_CHECKPOINT_FULL);
    const v1::RunConfig job = job_config(c, 5);
    expect_equal(run_verbs(m, job, 3, Way::kWeightedTokens), run_job(m, job, 3));
  }
}

}  // namespace
}  // namespace meshloom::train
