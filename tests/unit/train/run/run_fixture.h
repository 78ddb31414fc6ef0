// SPDX-License-Identifier: Apache-2.0
// A tiny model on text with structure, trained by ranks that are threads.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/train/config/resolve.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/run/checkpoint_reader.h"
#include "daemon/train/run/run.h"
#include "kernels/base/philox.h"
#include "tests/support/local_job.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/train/data_files.h"
#include "tests/unit/train/tiny_model.h"

namespace meshloom::train {

namespace fs = std::filesystem;

struct MeshSize {
  int dp = 1, fsdp = 1, tp = 1;
  bool sequence = false;
  int cp = 1;
  int ranks() const { return dp * fsdp * cp * tp; }
};

inline void set_mesh(v1::RunConfig& config, const MeshSize& size) {
  v1::Mesh& mesh = *config.mutable_mesh();
  mesh.set_dp(size.dp);
  mesh.set_fsdp(size.fsdp);
  mesh.set_cp(size.cp);
  mesh.set_tp(size.tp);
  config.mutable_plan()->set_sequence_parallel(size.sequence);
}

/// Values of the tensors of a checkpoint by name.
using Named = std::map<std::string, std::vector<float>>;

/// Losses, gradient norms and the weights after training.
struct Trace {
  std::vector<double> losses, norms;
  Named weights;
};

/// All tokens that a run or a Sampler draws.
template <typename Source>
std::vector<std::int64_t> draw_all(Source& source, const SampleStart& start) {
  std::vector<std::int64_t> ids;
  for (const SampledToken& token : source.begin_sample({start})->advance(std::chrono::minutes(10)))
    ids.push_back(token.id);
  return ids;
}

class RunFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write_text("config.json", testing::tiny_gpt2_config());
    folder_.write_text("dropout.json", testing::tiny_gpt2_config(0.1));
    // A text with structure: the next byte follows from the last, with some noise.
    std::string text;
    const PhiloxStream random{1, 1};
    for (std::uint64_t i = 0; i < 4000; ++i)
      text.push_back(static_cast<char>(random.at(i) % 8 == 0 ? 'a' + random.at(i + 9999) % 26
                                                             : 'a' + i * 7 % 26));
    folder_.write_text("text.txt", text);
  }

  v1::RunConfig config(std::int64_t batch = 6) const {
    v1::RunConfig config;
    config.mutable_model()->set_config("config.json");
    config.mutable_plan()->set_dtype("float32");
    config.mutable_data()->set_path("text.txt");
    auto& training = *config.mutable_training();
    training.set_steps(20);
    training.set_global_batch_size(batch);
    training.set_seed(11);
    config.mutable_optimizer()->set_lr(1e-2);
    config.mutable_lr_scheduler()->set_warmup_steps(3);
    return config;
  }

  std::unique_ptr<test::LocalJob> create(comm::ProcessGroup& world, ExecutionContext& context,
                                         const v1::RunConfig& config,
                                         const fs::path& checkpoints = {},
                                         bool fallback = false) const {
    const v1::RunConfig resolved =
        resolve_run_config(config, {.world_size = world.size(), .data_dir = folder_.path()});
    RunOptions options;
    options.folders.data_dir = folder_.path();
    options.folders.checkpoints = checkpoints;
    options.allow_fallback = fallback;
    return std::make_unique<test::LocalJob>(RankResources{&context, &world}, resolved, options);
  }

  /// Weights as a checkpoint has them: of the run's present step.
  static Named weights_of(const fs::path& folder) {
    testing::TestContext context;
    const Manifest manifest = read_manifest(folder);
    const CheckpointReader reader(folder, manifest);
    Named weights;
    for (const ManifestTensor& tensor : manifest.tensors) {
      const Tensor value = empty(context, tensor.shape, DType::kFloat32);
      reader.read(tensor.name, value);
      const std::vector<double> values = value.to_vector();
      weights[tensor.name] = {values.begin(), values.end()};
    }
    return weights;
  }

  static void steps(test::LocalJob& run, int count, Trace& trace) {
    for (int i = 0; i < count; ++i) {
      run.forward_backward();
      const v1::StepMetrics metrics = run.optim_step();
      trace.losses.push_back(metrics.loss());
      trace.norms.push_back(metrics.grad_norm());
    }
  }

  /// Trains `count` steps on `ranks` ranks, stopping and starting again after each of `restarts`
  /// steps.
  Trace run_training(const v1::RunConfig& config, int ranks, int count,
                     const std::vector<int>& restarts = {}) const {
    const test::TempFolder checkpoints;
    Trace trace;
    testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      Trace mine;
      int done = 0;
      std::vector<int> stops = restarts;
      stops.push_back(count);
      fs::path last;
      for (const int stop : stops) {
        testing::TestContext context;
        const auto run = create(world, context, config, checkpoints.path());
        EXPECT_EQ(run->step(), done);
        steps(*run, stop - done, mine);
        last = run->save_state();
        done = stop;
      }
      if (world.rank() != 0) return;
      mine.weights = weights_of(last);
      trace = std::move(mine);
    });
    return trace;
  }

  static void expect_close(const Trace& a, const Trace& b) {
    ASSERT_EQ(a.losses.size(), b.losses.size());
    for (std::size_t i = 0; i < a.losses.size(); ++i) {
      EXPECT_NEAR(a.losses[i], b.losses[i], 1e-5 * b.losses[i]) << "step " << i;
      EXPECT_NEAR(a.norms[i], b.norms[i], 1e-5 * b.norms[i]) << "step " << i;
    }
  }
  static void expect_equal(const Trace& a, const Trace& b) {
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_EQ(a.norms, b.norms);
    EXPECT_EQ(a.weights, b.weights);
  }

  testing::DataFolder folder_;
};

}  // namespace meshloom::train
