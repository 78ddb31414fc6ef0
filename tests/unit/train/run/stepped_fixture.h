// SPDX-License-Identifier: Apache-2.0
// Runs driven by verbs beside jobs on the same samples, on ranks that are threads.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>

#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resolve_stepped.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/data/batch_loader.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/loss/batch_parts.h"
#include "daemon/train/run/run_mesh.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {

struct WholeMesh {
  const char* name = "one";
  int dp = 1, fsdp = 1, cp = 1, tp = 1;
  bool sequence = false;
  int ranks() const { return dp * fsdp * cp * tp; }
  bool operator==(const WholeMesh&) const = default;
};

inline const std::vector<WholeMesh> kWholeMeshes = {
    {"one"},
    {"dp2", 2},
    {"fsdp2", 1, 2},
    {"tp2", 1, 1, 1, 2},
    {"tp2_sequence", 1, 1, 1, 2, true},
    {"cp2", 1, 1, 2, 1},
    {"fsdp2_tp2", 1, 2, 1, 2},
    {"dp2_cp2", 2, 1, 2, 1},
};

/// The error of this kind that a call throws, in `kept`.
template <typename Kind>
const Kind& thrown_by(const std::function<void()>& call, std::optional<Kind>& kept) {
  try {
    call();
  } catch (const Kind& error) {
    return kept.emplace(error);
  }
  ADD_FAILURE() << "nothing was thrown";
  return kept.emplace("nothing was thrown");
}
/// Reason of the error of this kind that a call throws.
template <typename Kind>
std::string reason_of(const std::function<void()>& call) {
  std::optional<Kind> kept;
  return thrown_by<Kind>(call, kept).reason();
}
/// The field that an InvalidArgument names.
inline std::string field_of(const std::function<void()>& call) {
  std::optional<InvalidArgument> kept;
  const auto& metadata = thrown_by<InvalidArgument>(call, kept).metadata();
  return metadata.contains("field") ? metadata.at("field") : kept->what();
}

/// A rank of a run whose callers have whole batches: they are checked as rank 0's control plane
/// does, and the rank gets its part.
class WholeBatchRun {
 public:
  WholeBatchRun(std::unique_ptr<Run> run, planner::MeshLayout mesh, int rank)
      : run_(std::move(run)), mesh_(std::move(mesh)), rank_(rank) {}

  /// Verbs whose arguments are the same on all ranks.
  Run* operator->() const { return run_.get(); }

  v1::LossOutput forward_backward(const v1::LossBatch& batch) {
    try {
      const TokenLoss loss = check_loss_batch(batch, run_->limits());
      return run_->forward_backward(part_of(batch), whole_batch(loss, batch));
    } catch (const InvalidArgument& refused) {
      run_->poison(refused.what());
      throw;
    }
  }
  v1::LossOutput forward(const v1::LossBatch& batch, bool train,
                         const std::shared_ptr<const TokenizedText>& text = nullptr) {
    const TokenLoss loss = check_loss_batch(batch, run_->limits());
    WholeBatch whole = whole_batch(loss, batch);
    whole.text = text;
    return run_->forward(part_of(batch), whole, train);
  }

  v1::OptimStepOutput optim_step(const v1::OptimStepParams& params) {
    return run_->optim_step(params).values;
  }
  /// Tokens tell their log-probs.
  std::unique_ptr<RunSample> begin_sample(std::vector<SampleStart> sequences,
                                          const std::string& snapshot) {
    for (SampleStart& start : sequences) start.log_probs = true;
    return run_->begin_sample(sequences, snapshot);
  }
  std::unique_ptr<RunSample> begin_sample_from(std::vector<SampleStart> sequences,
                                               const std::filesystem::path& folder,
                                               std::int64_t step) {
    for (SampleStart& start : sequences) start.log_probs = true;
    return run_->begin_sample_from(sequences, folder, step);
  }

 private:
  v1::LossBatch part_of(const v1::LossBatch& batch) const {
    return rank_ == 0 ? batch : rank_part(batch, mesh_, run_->limits().micro_batch_size, rank_);
  }

  std::unique_ptr<Run> run_;
  planner::MeshLayout mesh_;
  int rank_;
};

class SteppedFixture : public RunFixture {
 protected:
  static constexpr int kVocabulary = 256, kContext = testing::kTinyContext;

  /// Returns a config of the tiny model on a mesh.
  v1::RunConfig stepped_config(const WholeMesh& m) const {
    v1::RunConfig c;
    c.mutable_model()->set_config("config.json");
    c.mutable_plan()->set_dtype("float32");
    c.mutable_plan()->set_sequence_parallel(m.sequence);
    c.mutable_training()->set_seed(11);
    c.mutable_training()->set_micro_batch_size(2);
    c.mutable_optimizer()->set_lr(1e-2);
    c.mutable_mesh()->set_dp(m.dp);
    c.mutable_mesh()->set_fsdp(m.fsdp);
    c.mutable_mesh()->set_cp(m.cp);
    c.mutable_mesh()->set_tp(m.tp);
    c.mutable_debug()->set_check_replicas(true);
    return c;
  }

  std::unique_ptr<WholeBatchRun> make(comm::ProcessGroup& world, ExecutionContext& context,
                                      const v1::RunConfig& config, RunOptions options = {}) const {
    options.folders.data_dir = folder_.path();
    const v1::RunConfig resolved =
        resolve_stepped_config(config, {.world_size = world.size(),
                                        .data_dir = folder_.path(),
                                        .model_folder = options.folders.model});
    return std::make_unique<WholeBatchRun>(Run::create({&context, &world}, resolved, options),
                                           mesh_layout(resolved.mesh()), world.rank());
  }

  /// Runs `body(run, world)` on every rank of a mesh.
  using Body = std::function<void(WholeBatchRun&, comm::ProcessGroup&)>;
  void on_mesh(const WholeMesh& m, const Body& body, const RunOptions& options = {}) const {
    on_mesh(m, stepped_config(m), body, options);
  }
  void on_mesh(const WholeMesh& m, const v1::RunConfig& config, const Body& body,
               const RunOptions& options = {}) const {
    SCOPED_TRACE(m.name);
    testing::run_ranks(m.ranks(), [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = make(world, context, config, options);
      body(*run, world);
    });
  }

  /// A datum of `tokens` random tokens, each of which is followed by the next.
  static v1::Datum random_datum(std::mt19937_64& rng, int tokens) {
    v1::Datum datum;
    const auto draw = [&] { return static_cast<int>(rng() % kVocabulary); };
    int next = draw();
    for (int t = 0; t < tokens; ++t) {
      datum.add_tokens(next);
      datum.add_targets(next = draw());
    }
    return datum;
  }
  /// Data of lengths from 1 to the model's context, of loss `loss`, with all that it takes.
  static v1::LossBatch random_batch(const std::string& loss, int data, std::uint64_t seed) {
    std::mt19937_64 rng(seed);
    std::uniform_real_distribution<float> signed_number(-1.0f, 1.0f);
    v1::LossBatch batch;
    batch.set_loss(loss);
    for (int i = 0; i < data; ++i) {
      v1::Datum& datum = *batch.add_data();
      datum = random_datum(rng, 1 + static_cast<int>(rng() % kContext));
      for (int t = 0; t < datum.tokens_size(); ++t) {
        if (loss == "cross_entropy") {
          datum.add_weights(signed_number(rng));
          continue;
        }
        // Near what an untrained model says, so that ratios lie on both sides of the clips.
        datum.add_logprobs(-5.5f + 1.5f * signed_number(rng));
        datum.add_advantages(signed_number(rng));
        if (loss == "gspo") datum.add_sequence_ratio_mask(t == 0 || rng() % 3 != 0 ? 1.0f : 0.0f);
      }
    }
    return batch;
  }

  static void expect_same_outputs(const v1::LossOutput& a, const v1::LossOutput& b) {
    ASSERT_EQ(a.outputs_size(), b.outputs_size());
    for (int i = 0; i < a.outputs_size(); ++i)
      EXPECT_EQ(a.outputs(i).SerializeAsString(), b.outputs(i).SerializeAsString())
          << "datum " << i;
    using Metrics = std::map<std::string, double>;
    EXPECT_EQ(Metrics(a.metrics().begin(), a.metrics().end()),
              Metrics(b.metrics().begin(), b.metrics().end()));
  }

  /// Rank 0's parameters after the body ran on a mesh, by name.
  static std::map<std::string, std::vector<float>> parameters_of(WholeBatchRun& run) {
    std::map<std::string, std::vector<float>> values;
    for (const v1::ParameterValue& value : run->get_parameters(parameter_names())) {
      std::vector<float>& floats = values[value.name()];
      floats.resize(value.data().size() / sizeof(float));
      std::memcpy(floats.data(), value.data().data(), value.data().size());
    }
    return values;
  }
  static std::vector<std::string> parameter_names() {
    std::vector<std::string> names = {"transformer.wte.weight", "transformer.wpe.weight",
                                      "transformer.ln_f.weight", "transformer.ln_f.bias"};
    for (const char* block : {"0", "1"})
      for (const char* part :
           {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"})
        for (const char* kind : {"weight", "bias"})
          names.push_back(fmt::format("transformer.h.{}.{}.{}", block, part, kind));
    return names;
  }
};

}  // namespace meshloom::train
