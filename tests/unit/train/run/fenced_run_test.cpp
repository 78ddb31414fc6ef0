// SPDX-License-Identifier: Apache-2.0
// Runs on a device behind a fence: the bits of the CPU on every mesh, and how often the host waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tests/support/device_ranks.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

struct FencedMesh {
  const char* name;
  MeshSize size;
  bool documents = false;
  /// Of an optimizer step of one micro batch, on the rank that has the most.
  std::int64_t copies_from_host = 0;
};

std::ostream& operator<<(std::ostream& out, const FencedMesh& mesh) { return out << mesh.name; }

/// All that a job shows of itself.
struct Course {
  std::vector<double> numbers;  ///< losses and norms of the steps, and the losses of validation
  std::vector<std::int64_t> tokens;
  Named weights;
  std::int64_t collectives = 0;  ///< of the third step
};

class FencedRunTest : public RunFixture {
 protected:
  v1::RunConfig config_of(const FencedMesh& mesh) const {
    v1::RunConfig c = config(4);
    c.mutable_training()->set_seq_len(16);
    c.mutable_training()->set_micro_batch_size(4 / (mesh.size.dp * mesh.size.fsdp));
    set_mesh(c, mesh.size);
    if (!mesh.documents) return c;
    c.mutable_data()->set_document_mask(true);
    c.mutable_data()->set_document_end('a');
    return c;
  }

  /// Three steps, the last of which `in_step` surrounds; validation, a checkpoint, a resume and one
  /// more step, a sample.
  void drive(comm::ProcessGroup& world, const v1::RunConfig& c, const fs::path& checkpoints,
             const std::function<void(bool before)>& in_step, Course& course) const {
    const ExecutionContext::Options options = testing::context_of(world);
    ExecutionContext context(options);
    Trace trace;
    {
      const auto job = create(world, context, c, checkpoints);
      steps(*job, 2, trace);
      in_step(true);
      job->forward_backward();
      const v1::StepMetrics third = job->optim_step();
      in_step(false);
      for (const v1::CollectiveMetrics& item : third.collectives())
        course.collectives += item.calls();
      course.numbers = {third.loss(), third.grad_norm()};
      for (const LossSum& loss : job->evaluate(0, 2)) course.numbers.push_back(loss.loss);
      job->save_state();
    }
    const auto job = create(world, context, c, checkpoints);
    EXPECT_EQ(job->step(), 3);
    steps(*job, 1, trace);
    course.tokens = sample(world, *job);
    const fs::path last = job->save_state();
    course.numbers.insert(course.numbers.end(), trace.losses.begin(), trace.losses.end());
    course.numbers.insert(course.numbers.end(), trace.norms.begin(), trace.norms.end());
    if (world.rank() == 0) course.weights = weights_of(last);
  }

  static std::vector<std::int64_t> sample(comm::ProcessGroup& world, test::LocalJob& job) {
    SampleStart start;
    start.prompt = {'a', 'h', 'o'};
    start.params.set_max_tokens(8);
    start.params.set_seed(7);
    const auto drawn = job.begin_sample({start});
    std::vector<std::int64_t> ids;
    for (double more = 1; more > 0;) {
      for (const SampledToken& token : drawn->advance(std::chrono::minutes(1)))
        ids.push_back(token.id);
      more = drawn->done() ? 0 : 1;
      world.broadcast(make_view(&more, DType::kFloat64, {1}), 0)->wait_host();
    }
    return ids;
  }

  Course on_cpu(const FencedMesh& mesh) const {
    Course course;
    const test::TempFolder checkpoints;
    testing::run_ranks(mesh.size.ranks(), [&](comm::ProcessGroup& world) {
      Course mine;
      drive(
          world, config_of(mesh), checkpoints.path(), [](bool) {}, mine);
      if (world.rank() == 0) course = std::move(mine);
    });
    return course;
  }

  /// `most`: the counts of the third step on the rank that has the most.
  Course on_device(const FencedMesh& mesh, testing::FencedCounts* most) const {
    Course course;
    std::mutex mutex;
    const test::TempFolder checkpoints;
    testing::run_fenced_ranks(mesh.size.ranks(), [&](comm::ProcessGroup& world) {
      auto& device = testing::fenced_device(world.rank());
      const auto count = [&](bool before) {
        if (before) return device.reset_counts();
        const testing::FencedCounts counts = device.counts();
        const std::lock_guard lock(mutex);
        most->waits = std::max(most->waits, counts.waits);
        most->copies_from_host = std::max(most->copies_from_host, counts.copies_from_host);
      };
      Course mine;
      drive(world, config_of(mesh), checkpoints.path(), count, mine);
      if (world.rank() == 0) course = std::move(mine);
    });
    return course;
  }
};

const FencedMesh kMeshes[] = {
    {"one_rank", {}, false, 2},
    {"dp", {2}, false, 5},
    {"fsdp", {1, 2}, false, 13},
    {"tp", {1, 1, 2}, false, 16},
    {"tp_sequence", {1, 1, 2, true}, false, 26},
    {"cp", {1, 1, 1, false, 2}, false, 13},
    {"cp_documents", {1, 1, 1, false, 2}, true, 15},
    {"dp_tp", {2, 1, 2}, false, 18},
    {"fsdp_cp", {1, 2, 1, false, 2}, false, 21},
};

class FencedMeshes : public FencedRunTest, public ::testing::WithParamInterface<FencedMesh> {};

TEST_P(FencedMeshes, HaveTheBitsOfTheCpuAndWaitNoMoreThanTheyMust) {
  const FencedMesh& mesh = GetParam();
  const Course cpu = on_cpu(mesh);
  testing::FencedCounts counts;
  const Course device = on_device(mesh, &counts);
  EXPECT_EQ(device.numbers, cpu.numbers);
  EXPECT_EQ(device.tokens, cpu.tokens);
  EXPECT_EQ(device.weights, cpu.weights);
  std::printf("%-13s a step: %ld waits, %ld collectives, %ld copies from the host\n", mesh.name,
              static_cast<long>(counts.waits), static_cast<long>(device.collectives),
              static_cast<long>(counts.copies_from_host));
  // The one wait is for loss and norm, behind the update; a collective waits for its inputs.
  EXPECT_LE(counts.waits, 1 + device.collectives);
  EXPECT_EQ(counts.copies_from_host, mesh.copies_from_host);
}

INSTANTIATE_TEST_SUITE_P(All, FencedMeshes, ::testing::ValuesIn(kMeshes),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(FencedRunTest, AValidationBatchWaitsOnce) {
  v1::RunConfig two_micro_batches = config_of({});
  two_micro_batches.mutable_training()->set_micro_batch_size(2);
  std::vector<std::vector<double>> losses;
  std::int64_t waits = 0;
  const auto evaluate = [&](comm::ProcessGroup& world) {
    ExecutionContext context(testing::context_of(world));
    const auto job = create(world, context, two_micro_batches);
    testing::fenced_device(0).reset_counts();
    losses.emplace_back();
    for (const LossSum& batch : job->evaluate(0, 2)) losses.back().push_back(batch.loss);
    waits = testing::fenced_device(0).counts().waits;
  };
  testing::run_ranks(1, evaluate);
  testing::run_fenced_ranks(1, evaluate);
  EXPECT_EQ(waits, 2) << "of two batches of two micro batches";
  ASSERT_EQ(losses[0].size(), 2u);
  EXPECT_EQ(losses[1], losses[0]);
}

}  // namespace
}  // namespace meshloom::train
