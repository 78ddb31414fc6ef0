// SPDX-License-Identifier: Apache-2.0
// Losses and gradients of verbs on every mesh, batches of any size, and what a window of calls is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/unit/train/run/stepped_fixture.h"

namespace meshloom::train {
namespace {

constexpr const char* kLosses[] = {"cross_entropy", "importance_sampling", "ppo", "cispo", "dro",
                                   "gspo"};

v1::OptimStepParams plain_step(double lr = 1.0) {
  v1::OptimStepParams params;
  params.set_lr(lr);
  params.set_grad_clip_norm(0.0);
  params.set_weight_decay(0.0);
  return params;
}

using Parameters = std::map<std::string, std::vector<float>>;

class SteppedLossesTest : public SteppedFixture {
 protected:
  /// With SGD of lr 1 a step's change is the negative gradient.
  v1::RunConfig sgd(const WholeMesh& m) const {
    v1::RunConfig c = stepped_config(m);
    c.mutable_optimizer()->set_type(v1::OPTIMIZER_TYPE_SGD);
    return c;
  }

  /// What rank 0 gets of one window of calls.
  struct Window {
    std::vector<v1::LossOutput> outputs;
    v1::OptimStepOutput step;
    Parameters before, after;

    std::map<std::string, std::vector<double>> gradients() const {
      std::map<std::string, std::vector<double>> result;
      for (const auto& [name, values] : before)
        for (std::size_t i = 0; i < values.size(); ++i)
          result[name].push_back(static_cast<double>(values[i]) - after.at(name)[i]);
      return result;
    }
  };
  Window run_window(const WholeMesh& m, const std::vector<v1::LossBatch>& calls) const {
    Window window;
    on_mesh(m, sgd(m), [&](WholeBatchRun& run, comm::ProcessGroup& world) {
      Window mine;
      mine.before = parameters_of(run);
      for (const v1::LossBatch& batch : calls) {
        const v1::LossOutput forward = run.forward(batch, false);
        mine.outputs.push_back(run.forward_backward(batch));
        expect_same_outputs(forward, mine.outputs.back());
      }
      mine.step = run.optim_step(plain_step());
      mine.after = parameters_of(run);
      if (world.rank() == 0) window = std::move(mine);
    });
    return window;
  }

  /// Gradients are told by parameters, which are near 1 in size: a rounding is 6e-8.
  static void expect_same_gradients(const Window& a, const Window& b, double tolerance) {
    const auto ga = a.gradients(), gb = b.gradients();
    for (const auto& [name, values] : ga) {
      double scale = 1e-3;
      for (const double value : gb.at(name)) scale = std::max(scale, std::abs(value));
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(values[i], gb.at(name)[i], tolerance * scale + 2.5e-7)
            << name << " element " << i;
    }
    EXPECT_NEAR(a.step.grad_norm(), b.step.grad_norm(), tolerance * b.step.grad_norm());
  }
  static void expect_close(const Window& a, const Window& b, double tolerance = 1e-5) {
    expect_same_gradients(a, b, tolerance);
    EXPECT_NEAR(a.step.loss(), b.step.loss(), tolerance * std::max(1.0, std::abs(b.step.loss())));
  }
  static void expect_close(const v1::LossOutput& a, const v1::LossOutput& b) {
    ASSERT_EQ(a.outputs_size(), b.outputs_size());
    for (int i = 0; i < a.outputs_size(); ++i) {
      ASSERT_EQ(a.outputs(i).logprobs_size(), b.outputs(i).logprobs_size());
      for (int t = 0; t < a.outputs(i).logprobs_size(); ++t)
        ASSERT_NEAR(a.outputs(i).logprobs(t), b.outputs(i).logprobs(t), 1e-5)
            << "datum " << i << " token " << t;
      ASSERT_EQ(a.outputs(i).losses_size(), b.outputs(i).losses_size());
      for (int t = 0; t < a.outputs(i).losses_size(); ++t)
        ASSERT_NEAR(a.outputs(i).losses(t), b.outputs(i).losses(t), 3e-5);
    }
    for (const auto& [name, value] : a.metrics())
      EXPECT_NEAR(value, b.metrics().at(name), 1e-4 * std::max(1.0, std::abs(value))) << name;
  }
};

TEST_F(SteppedLossesTest, EveryMeshGivesTheNumbersOfOneRank) {
  for (const char* loss : kLosses) {
    SCOPED_TRACE(loss);
    const v1::LossBatch batch = random_batch(loss, 5, 17);
    const Window one = run_window({}, {batch});
    ASSERT_EQ(one.outputs[0].outputs_size(), 5);
    for (const WholeMesh& m : kWholeMeshes) {
      if (m == WholeMesh{}) continue;
      SCOPED_TRACE(m.name);
      const Window window = run_window(m, {batch});
      expect_close(window, one);
      expect_close(window.outputs[0], one.outputs[0]);
    }
  }
}

TEST_F(SteppedLossesTest, FewerDataThanRanks) {
  const v1::LossBatch batch = random_batch("ppo", 1, 3);
  const Window one = run_window({}, {batch});
  for (const WholeMesh& m : {WholeMesh{"dp3", 3}, WholeMesh{"fsdp3", 1, 3},
                             WholeMesh{"dp2_fsdp2", 2, 2}, WholeMesh{"cp3", 1, 1, 3}}) {
    SCOPED_TRACE(m.name);
    expect_close(run_window(m, {batch}), one);
  }
}

// Central differences of the parameter with the largest gradient, for the losses without clips and
// constants.
TEST_F(SteppedLossesTest, GradientsAreThoseOfTheLoss) {
  for (const char* loss : {"cross_entropy", "importance_sampling", "dro"}) {
    SCOPED_TRACE(loss);
    const v1::LossBatch batch = random_batch(loss, 3, 23);
    const Window window = run_window({}, {batch});
    const std::string name = "transformer.h.1.mlp.c_fc.bias";
    const std::vector<double> gradient = window.gradients().at(name);
    const auto largest = static_cast<std::size_t>(
        std::max_element(gradient.begin(), gradient.end(),
                         [](double a, double b) { return std::abs(a) < std::abs(b); }) -
        gradient.begin());
    on_mesh({}, sgd({}), [&](WholeBatchRun& run, comm::ProcessGroup&) {
      std::vector<v1::ParameterValue> value = run->get_parameters({name});
      const auto loss_at = [&](float distance) {
        std::vector<v1::ParameterValue> moved = value;
        auto* floats = reinterpret_cast<float*>(moved[0].mutable_data()->data());
        floats[largest] += distance;
        run->set_parameters(moved);
        return run.forward(batch, false).metrics().at("loss:sum");
      };
      const double difference = (loss_at(0.01f) - loss_at(-0.01f)) / 0.02;
      EXPECT_NEAR(gradient[largest], difference, 2e-2 * std::abs(difference));
    });
  }
}

// Its value is another, its gradient is that of the custom loss.
TEST_F(SteppedLossesTest, ACustomLossIsWeightedCrossEntropy) {
  const v1::LossBatch batch = random_batch("dro", 4, 29);
  v1::LossBatch surrogate;
  surrogate.set_loss("cross_entropy");
  const Window direct = run_window({}, {batch});
  for (int i = 0; i < batch.data_size(); ++i) {
    const v1::Datum& from = batch.data(i);
    v1::Datum& to = *surrogate.add_data();
    *to.mutable_tokens() = from.tokens();
    *to.mutable_targets() = from.targets();
    for (int t = 0; t < from.tokens_size(); ++t) {
      const float ratio = direct.outputs[0].outputs(i).logprobs(t) - from.logprobs(t);
      to.add_weights(from.advantages(t) - 0.05f * ratio);
    }
  }
  for (const WholeMesh& m : kWholeMeshes)
    expect_same_gradients(run_window(m, {surrogate}), direct, 1e-4);
}

TEST_F(SteppedLossesTest, SeveralTargetsAToken) {
  v1::LossBatch several, single;
  several.set_loss("cross_entropy");
  single.set_loss("cross_entropy");
  std::mt19937_64 rng(31);
  for (const int each : {3, 1, 2}) {
    v1::Datum datum = random_datum(rng, 9);
    datum.clear_targets();
    datum.set_targets_per_token(each);
    std::vector<v1::Datum> apart(static_cast<std::size_t>(each), datum);
    for (int i = 0; i < 9 * each; ++i) {
      const int target = static_cast<int>(rng() % kVocabulary);
      const float weight = static_cast<float>(rng() % 100) / 50.0f - 0.7f;
      datum.add_targets(target);
      datum.add_weights(weight);
      v1::Datum& own = apart[static_cast<std::size_t>(i % each)];
      own.set_targets_per_token(1);
      own.add_targets(target);
      own.add_weights(weight);
    }
    *several.add_data() = datum;
    for (const v1::Datum& own : apart) *single.add_data() = own;
  }
  const Window expected = run_window({}, {single});
  for (const WholeMesh& m : kWholeMeshes) {
    SCOPED_TRACE(m.name);
    const Window window = run_window(m, {several});
    expect_close(window, expected);
    ASSERT_EQ(window.outputs[0].outputs(0).logprobs_size(), 27);
    EXPECT_NEAR(window.outputs[0].outputs(0).logprobs(4),
                expected.outputs[0].outputs(1).logprobs(1), 1e-5);
    EXPECT_NEAR(window.outputs[0].metrics().at("loss:sum"),
                expected.outputs[0].metrics().at("loss:sum"), 1e-4);
  }
}

std::vector<v1::LossBatch> cut(const v1::LossBatch& batch, const std::vector<int>& sizes) {
  std::vector<v1::LossBatch> parts;
  int next = 0;
  for (const int size : sizes) {
    v1::LossBatch part = batch;
    part.clear_data();
    for (int i = 0; i < size; ++i) *part.add_data() = batch.data(next++);
    parts.push_back(std::move(part));
  }
  return parts;
}

TEST_F(SteppedLossesTest, CallsAddUp) {
  for (const auto reduction : {v1::LOSS_REDUCTION_UNSPECIFIED, v1::LOSS_REDUCTION_TOKEN_MEAN}) {
    for (const char* loss : {"cross_entropy", "gspo"}) {
      v1::LossBatch batch = random_batch(loss, 6, 37);
      batch.set_reduction(reduction);
      for (const WholeMesh& m : kWholeMeshes) {
        SCOPED_TRACE(fmt::format("{} {}", m.name, loss));
        const Window whole = run_window(m, {batch});
        expect_close(run_window(m, cut(batch, {1, 3, 2})), whole);
        if (m.dp * m.fsdp > 1) continue;
        // The same micro batches of two.
        const Window parts = run_window(m, cut(batch, {2, 4}));
        EXPECT_EQ(parts.after, whole.after);
        EXPECT_EQ(parts.step.grad_norm(), whole.step.grad_norm());
      }
    }
  }
}

TEST_F(SteppedLossesTest, AMeanIsTheSumOverTheTargetsThatCount) {
  v1::LossBatch batch = random_batch("cross_entropy", 4, 41);
  batch.mutable_data(0)->set_weights(0, 0.0f);
  double counted = 0.0;
  for (const v1::Datum& datum : batch.data())
    for (const float weight : datum.weights()) counted += weight != 0.0f ? 1.0 : 0.0;
  const Window sum = run_window({}, {batch});
  EXPECT_EQ(sum.outputs[0].metrics().at("tokens:sum"), counted);
  EXPECT_NEAR(sum.step.loss(), sum.outputs[0].metrics().at("loss:sum"), 1e-4);
  batch.set_reduction(v1::LOSS_REDUCTION_TOKEN_MEAN);
  const Window mean = run_window({"dp2", 2}, {batch});
  EXPECT_NEAR(mean.step.loss(), sum.step.loss() / counted, 1e-6);
  EXPECT_NEAR(mean.step.grad_norm(), sum.step.grad_norm() / counted, 1e-5 * mean.step.grad_norm());
  batch.set_tokens(static_cast<std::int64_t>(counted));
  EXPECT_NEAR(run_window({}, {batch}).step.grad_norm(), mean.step.grad_norm(),
              1e-5 * mean.step.grad_norm());
}

TEST_F(SteppedLossesTest, DocumentsAndPositionsCount) {
  std::mt19937_64 rng(43);
  v1::LossBatch apart, packed;
  apart.set_loss("cross_entropy");
  packed.set_loss("cross_entropy");
  v1::Datum& both = *packed.add_data();
  for (const int tokens : {5, 9}) {
    const v1::Datum datum = random_datum(rng, tokens);
    *apart.add_data() = datum;
    both.mutable_tokens()->MergeFrom(datum.tokens());
    both.mutable_targets()->MergeFrom(datum.targets());
    for (int t = 0; t < tokens; ++t) {
      both.add_document_ids(tokens);
      both.add_position_ids(t);
    }
  }
  *packed.add_data() = random_datum(rng, 3);  // without either
  *apart.add_data() = packed.data(1);
  const Window expected = run_window({}, {apart});
  for (const WholeMesh& m : kWholeMeshes) expect_close(run_window(m, {packed}), expected);
}

}  // namespace
}  // namespace meshloom::train
