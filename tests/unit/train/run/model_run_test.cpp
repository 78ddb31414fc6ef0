// SPDX-License-Identifier: Apache-2.0
// The verbs of a ModelRun as a caller without a job uses them.
#include "daemon/train/run/model_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "daemon/train/config/resolve.h"
#include "daemon/train/data/data_feed.h"
#include "daemon/train/data/run_data.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/run/in_step.h"
#include "kernels/backend_table.h"
#include "kernels/base/error.h"
#include "tests/bench/profiling_backend.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

using ::testing::HasSubstr;

class ModelRunTest : public RunFixture {
 protected:
  v1::RunConfig on(const MeshSize& m) const {
    v1::RunConfig c = config(7);
    c.mutable_training()->set_micro_batch_size(1);
    set_mesh(c, m);
    c.mutable_debug()->set_check_replicas(true);
    return resolve_run_config(c, {.world_size = m.ranks(), .data_dir = folder_.path()});
  }

  /// A run with what feeds it.
  struct Fed {
    std::unique_ptr<DataFeed> feed;
    std::unique_ptr<ModelRun> run;
    std::int64_t batch_size = 0, position = 0;

    BatchCall next(comm::ProcessGroup& world) {
      FedBatch fed = feed->training_batch(position, world, run->mesh().leads_samples());
      position += batch_size;
      return {.micro_batches = std::move(fed.micro_batches),
              .scale = 1.0f / static_cast<float>(fed.labels),
              .dropout = true,
              .last = true};
    }
  };
  Fed make(comm::ProcessGroup& world, ExecutionContext& context, const v1::RunConfig& c) const {
    auto mesh = std::make_unique<RunMesh>(world, mesh_layout(c.mesh()));
    const nn::ModelConfig model = load_model_config(c.model(), folder_.path());
    Fed fed;
    fed.batch_size = c.training().global_batch_size();
    fed.feed =
        std::make_unique<DataFeed>(c, open_run_data(c, model, folder_.path()), model, mesh->data());
    RankResources resources{&context, &world};
    fed.run = std::make_unique<ModelRun>(resources, c, model, std::move(mesh));
    std::vector<std::string> notes;
    fed.run->initialize(folder_.path(), {}, resources.files(), &notes);
    return fed;
  }

  /// Three steps; each global batch at once, or one micro batch a call and no last one.
  Trace train(const MeshSize& m, bool announced) const {
    const v1::RunConfig c = on(m);
    Trace trace;
    testing::run_ranks(m.ranks(), [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      Fed fed = make(world, context, c);
      for (int i = 0; i < 3; ++i) {
        const BatchCall step = fed.next(world);
        if (announced) {
          fed.run->forward_backward(step);
        } else {
          for (const TokenBatch& micro : step.micro_batches)
            fed.run->forward_backward(
                {.micro_batches = {micro}, .scale = step.scale, .dropout = true});
        }
        const StepResult result = fed.run->optim_step(1e-2, 1.0);
        EXPECT_EQ(fed.run->step(), i + 1);
        if (world.rank() != 0) continue;
        trace.losses.push_back(result.loss);
        trace.norms.push_back(result.norm);
      }
    });
    return trace;
  }
};

TEST_F(ModelRunTest, TheLastMicroBatchNeedNotBeAnnounced) {
  for (const MeshSize& m : {MeshSize{}, MeshSize{2, 1, 1}, MeshSize{1, 2, 1}, MeshSize{2, 2, 1},
                            MeshSize{1, 1, 2}, MeshSize{1, 1, 2, true}, MeshSize{1, 2, 2, true}}) {
    SCOPED_TRACE(fmt::format("dp{} fsdp{} tp{}", m.dp, m.fsdp, m.tp));
    const Trace announced = train(m, true), open = train(m, false);
    ASSERT_EQ(open.losses.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(open.losses[i], announced.losses[i], 1e-6);
      EXPECT_NEAR(open.norms[i], announced.norms[i], 1e-6 * announced.norms[i]);
    }
  }
}

/// Copies from the device to the host since the last call.
std::int64_t reads(kernels::ProfilingBackend& backend) {
  std::int64_t calls = 0;
  for (const auto& [key, profile] : backend.take())
    if (key.second == "copy_to_host") calls += profile.calls;
  return calls;
}

TEST_F(ModelRunTest, AStepReadsTheDeviceOnce) {
  for (const MeshSize& m : {MeshSize{}, MeshSize{2, 1, 1}, MeshSize{1, 2, 1}, MeshSize{2, 2, 1},
                            MeshSize{1, 1, 2}, MeshSize{1, 1, 2, true}, MeshSize{1, 2, 2, true}}) {
    SCOPED_TRACE(fmt::format("dp{} fsdp{} tp{}", m.dp, m.fsdp, m.tp));
    v1::RunConfig c = on(m);
    c.mutable_debug()->set_check_replicas(false);
    testing::run_ranks(m.ranks(), [&](comm::ProcessGroup& world) {
      kernels::ProfilingBackend backend(kernels::backend_for(kCpuDevice));
      ExecutionContext::Options options;
      options.backend = &backend;
      ExecutionContext context(options);
      Fed fed = make(world, context, c);
      for (int i = 0; i < 2; ++i) {
        const BatchCall step = fed.next(world);
        reads(backend);
        fed.run->forward_backward(step);
        EXPECT_EQ(reads(backend), 0) << "forward_backward";
        fed.run->optim_step(1e-2, 1.0);
        EXPECT_EQ(reads(backend), 1) << "optim_step";
      }
    });
  }
}

/// A micro batch as validation has it, or (with log-probs) as a client sends it.
BatchCall call_of(const TokenBatch& batch, bool log_probs) {
  return {.micro_batches = {batch}, .log_probs = log_probs};
}

TEST_F(ModelRunTest, ABatchThatIsOnlyEvaluatedReadsTheDeviceOnce) {
  for (const MeshSize& m : {MeshSize{}, MeshSize{2, 1, 1}, MeshSize{1, 2, 1}, MeshSize{1, 1, 2},
                            MeshSize{1, 2, 2, true}, MeshSize{1, 1, 1, false, 2}}) {
    SCOPED_TRACE(fmt::format("dp{} fsdp{} tp{} cp{}", m.dp, m.fsdp, m.tp, m.cp));
    const v1::RunConfig c = on(m);
    testing::run_ranks(m.ranks(), [&](comm::ProcessGroup& world) {
      kernels::ProfilingBackend backend(kernels::backend_for(kCpuDevice));
      ExecutionContext::Options options;
      options.backend = &backend;
      ExecutionContext context(options);
      Fed fed = make(world, context, c);
      const TokenBatch batch = fed.next(world).micro_batches.front();
      BatchCall call = call_of(batch, true);
      call.micro_batches.push_back(batch);
      reads(backend);
      fed.run->forward(call_of(batch, false));
      EXPECT_EQ(reads(backend), 1) << "a validation batch";
      fed.run->forward(call);
      EXPECT_EQ(reads(backend), 2) << "two micro batches";
    });
  }
}

TEST_F(ModelRunTest, EvaluationNamesAnIdThatTheModelDoesNotHaveAndNoLossThatIsNone) {
  const v1::RunConfig c = on({});
  testing::run_ranks(1, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    Fed fed = make(world, context, c);
    const TokenBatch good = fed.next(world).micro_batches.front();
    const double before = fed.run->forward(call_of(good, false)).loss;
    TokenBatch bad = good;
    bad.inputs[3] = 1'000'000;
    for (const bool log_probs : {false, true}) {
      try {
        fed.run->forward(call_of(bad, log_probs));
        ADD_FAILURE() << "an id outside the vocabulary was taken";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("embedding: id at element 3 is 1000000, outside [0, "));
      }
    }
    EXPECT_EQ(fed.run->forward(call_of(good, false)).loss, before);
    // A model that has diverged has no loss, and its ids are right.
    for (const nn::NamedParameter& p : fed.run->state().optimizer().parameters())
      copy_into(p.parameter->value.detach(),
                full(context, p.parameter->value.shape(), NAN, p.parameter->value.dtype()));
    EXPECT_TRUE(std::isnan(fed.run->forward(call_of(good, false)).loss));
    EXPECT_TRUE(std::isnan(fed.run->forward(call_of(good, true)).log_probs[0][0]));
  });
}

// A loader that checks nothing: what the kernels find stops the step on all ranks, names the id,
// and leaves every parameter as it was.
TEST_F(ModelRunTest, AnIdThatTheModelDoesNotHaveChangesNothing) {
  for (const MeshSize& m : {MeshSize{}, MeshSize{2, 1, 1}, MeshSize{1, 2, 1}, MeshSize{1, 1, 2}}) {
    SCOPED_TRACE(fmt::format("dp{} fsdp{} tp{}", m.dp, m.fsdp, m.tp));
    const v1::RunConfig c = on(m);
    testing::run_ranks(m.ranks(), [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      Fed fed = make(world, context, c);
      BatchCall step = fed.next(world);
      const TokenBatch good = step.micro_batches.front();
      const double before = fed.run->forward(call_of(good, false)).loss;
      const bool bad = m.tp > 1 || world.rank() == m.ranks() - 1;  // ranks of tp share samples
      if (bad) step.micro_batches.front().inputs[3] = 1'000'000;
      const auto verbs = [&] {
        fed.run->forward_backward(step);
        fed.run->optim_step(1e-2, 1.0);
      };
      try {
        run_in_step(world, verbs);
        ADD_FAILURE() << "rank " << world.rank() << " went on";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("embedding: id at element 3 is 1000000, outside [0, "));
      }
      EXPECT_EQ(fed.run->step(), 0);
      if (m.ranks() == 1 || m.dp > 1) {  // other meshes have lost their groups with the failure
        EXPECT_EQ(fed.run->forward(call_of(good, false)).loss, before);
      }
    });
  }
}

TEST_F(ModelRunTest, VerbsOutOfOrderAreRefused) {
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const v1::RunConfig c = on({2, 1, 1});
    Fed fed = make(world, context, c);
    EXPECT_THROW(fed.run->optim_step(1e-2, 1.0), FailedPrecondition);
    const BatchCall step = fed.next(world);
    fed.run->forward_backward(step);
    EXPECT_TRUE(fed.run->has_gradients());
    EXPECT_THROW(fed.run->forward_backward(step), FailedPrecondition);
    fed.run->optim_step(1e-2, 1.0);
    EXPECT_FALSE(fed.run->has_gradients());
    EXPECT_THROW(fed.run->optim_step(1e-2, 1.0), FailedPrecondition);
  });
}

}  // namespace
}  // namespace meshloom::train
