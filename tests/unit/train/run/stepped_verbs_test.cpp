// SPDX-License-Identifier: Apache-2.0
// Verbs of a stepped run one by one: optimizer values, poisoned windows, dropout, state,
// parameters, samples, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/error.h"
#include "tests/unit/train/run/stepped_fixture.h"

namespace meshloom::train {
namespace {

using ::testing::HasSubstr;

class SteppedVerbsTest : public SteppedFixture {};

// AdamW by hand, in float64, on the gradient that SGD tells.
TEST_F(SteppedVerbsTest, ARunWithoutDataOfItsOwnSaysSo) {
  on_mesh({"dp2", 2}, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    EXPECT_EQ(reason_of<FailedPrecondition>([&] { run->forward_backward(TrainingBatch{0}); }),
              "NO_DATA");
    EXPECT_EQ(reason_of<FailedPrecondition>([&] { run->forward(ValidationBatches{}); }), "NO_DATA");
    EXPECT_THROW(run->save_checkpoint({}, 1), FailedPrecondition);
    // Nothing of that is in its gradients.
    run.forward_backward(random_batch("cross_entropy", 3, 5));
    EXPECT_EQ(run.optim_step({}).step(), 1);
  });
}

TEST_F(SteppedVerbsTest, EveryValueOfAStepCounts) {
  const v1::LossBatch batch = random_batch("cross_entropy", 3, 5);
  const std::string name = "transformer.h.0.attn.c_attn.weight";
  std::vector<double> gradient;
  double norm = 0.0;
  v1::RunConfig sgd = stepped_config({});
  sgd.mutable_optimizer()->set_type(v1::OPTIMIZER_TYPE_SGD);
  on_mesh({}, sgd, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    const auto before = parameters_of(run);
    v1::OptimStepParams params;
    params.set_lr(1.0);
    params.set_grad_clip_norm(0.0);
    run.forward_backward(batch);
    norm = run.optim_step(params).grad_norm();
    const auto after = parameters_of(run);
    for (std::size_t i = 0; i < before.at(name).size(); ++i)
      gradient.push_back(static_cast<double>(before.at(name)[i]) - after.at(name)[i]);
  });
  v1::OptimStepParams all;
  all.set_lr(3e-3);
  all.set_beta1(0.5);
  all.set_beta2(0.7);
  all.set_eps(1e-3);
  all.set_weight_decay(0.25);
  all.set_grad_clip_norm(norm / 2);
  on_mesh({}, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    const std::vector<float> before = parameters_of(run).at(name);
    run.forward_backward(batch);
    const v1::OptimStepOutput output = run.optim_step(all);
    EXPECT_EQ(output.step(), 1);
    EXPECT_EQ(output.lr(), 3e-3);
    EXPECT_NEAR(output.grad_norm(), norm, 1e-5 * norm);
    const std::vector<float> after = parameters_of(run).at(name);
    for (std::size_t i = 0; i < before.size(); ++i) {
      const double g = gradient[i] / 2;
      // In the first step the bias corrections leave the gradient itself.
      const double update = g / (std::abs(g) + 1e-3);
      EXPECT_NEAR(after[i], before[i] * (1 - 3e-3 * 0.25) - 3e-3 * update, 2e-6) << i;
    }
    // A second step by other betas: m and v go on from the first.
    run.forward_backward(batch);
    v1::OptimStepParams other = all;
    other.set_beta1(0.9);
    EXPECT_EQ(run.optim_step(other).step(), 2);
    EXPECT_NE(parameters_of(run).at(name), after);
  });
}

TEST_F(SteppedVerbsTest, ValuesThatAnOptimizerHasNoUseForAreRefused) {
  const v1::LossBatch batch = random_batch("cross_entropy", 2, 6);
  const auto with = [](const auto& set) {
    v1::OptimStepParams params;
    set(params);
    return params;
  };
  const auto refused = [&](WholeBatchRun& run, const v1::OptimStepParams& params) {
    return field_of([&] { run.optim_step(params); });
  };
  on_mesh({}, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    run.forward_backward(batch);
    EXPECT_EQ(refused(run, with([](auto& p) { p.set_momentum(0.9); })), "momentum");
    EXPECT_EQ(refused(run, with([](auto& p) { p.set_lr(-1.0); })), "lr");
    EXPECT_EQ(refused(run, with([](auto& p) { p.set_lr(NAN); })), "lr");
    EXPECT_EQ(refused(run, with([](auto& p) { p.set_beta1(1.0); })), "beta1");
    EXPECT_EQ(refused(run, with([](auto& p) { p.set_beta2(-0.1); })), "beta2");
    EXPECT_EQ(refused(run, with([](auto& p) { p.set_eps(INFINITY); })), "eps");
    EXPECT_EQ(refused(run, with([](auto& p) { p.set_weight_decay(-1.0); })), "weight_decay");
    EXPECT_EQ(refused(run, with([](auto& p) { p.set_grad_clip_norm(NAN); })), "grad_clip_norm");
    // The gradients are there still.
    EXPECT_EQ(run.optim_step({}).step(), 1);
  });
  v1::RunConfig sgd = stepped_config({});
  sgd.mutable_optimizer()->set_type(v1::OPTIMIZER_TYPE_SGD);
  on_mesh({}, sgd, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    run.forward_backward(batch);
    EXPECT_EQ(refused(run, with([](auto& p) { p.set_beta1(0.5); })), "beta1");
    EXPECT_EQ(refused(run, with([](auto& p) { p.set_beta2(0.5); })), "beta2");
    EXPECT_EQ(refused(run, with([](auto& p) { p.set_eps(1e-3); })), "eps");
    EXPECT_EQ(refused(run, with([](auto& p) { p.set_momentum(0.5); })), "momentum");
  });
  sgd.mutable_optimizer()->set_momentum(0.9);
  on_mesh({}, sgd, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    run.forward_backward(batch);
    EXPECT_EQ(run.optim_step(with([](auto& p) { p.set_momentum(0.5); })).step(), 1);
  });
}

TEST_F(SteppedVerbsTest, AFailedCallPoisonsTheWindow) {
  const v1::LossBatch good = random_batch("ppo", 3, 7);
  v1::LossBatch bad = good, far = good;
  bad.mutable_data(1)->set_targets(0, kVocabulary);
  far.mutable_data(2)->set_logprobs(0, -1e6f);
  for (const WholeMesh& m : kWholeMeshes) {
    on_mesh(m, [&](WholeBatchRun& run, comm::ProcessGroup&) {
      EXPECT_EQ(reason_of<FailedPrecondition>([&] { run.optim_step({}); }), "NO_GRADIENTS");
      run.forward_backward(good);
      run.optim_step({});
      const auto before = parameters_of(run);
      run.forward_backward(good);
      EXPECT_EQ(field_of([&] { run.forward_backward(bad); }), "data[1].targets[0]");
      run.forward_backward(good);
      EXPECT_EQ(reason_of<NumericError>([&] { run.forward_backward(far); }), "NON_FINITE_LOSS");
      std::optional<FailedPrecondition> error;
      thrown_by<FailedPrecondition>([&] { run.optim_step({}); }, error);
      EXPECT_EQ(error->reason(), "GRADIENTS_POISONED");
      EXPECT_THAT(error->what(), HasSubstr("data[1].targets[0]"));
      EXPECT_EQ(parameters_of(run), before);
      EXPECT_EQ(reason_of<FailedPrecondition>([&] { run.optim_step({}); }), "NO_GRADIENTS");
      run->poison("the second call was cancelled");
      run->poison("later");
      thrown_by<FailedPrecondition>([&] { run.optim_step({}); }, error);
      EXPECT_THAT(error->what(), HasSubstr("the second call was cancelled"));
      // A failing forward is no matter of gradients.
      run.forward_backward(good);
      EXPECT_EQ(field_of([&] { run.forward(bad, false); }), "data[1].targets[0]");
      EXPECT_EQ(run.optim_step({}).step(), 2);
    });
  }
}

// Nothing of what was discarded is in the next step.
TEST_F(SteppedVerbsTest, APoisonedWindowLeavesNoTrace) {
  const v1::LossBatch good = random_batch("cross_entropy", 4, 8);
  for (const WholeMesh& m : kWholeMeshes) {
    std::map<std::string, std::vector<float>> plain, after_poison;
    on_mesh(m, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
      run.forward_backward(good);
      run.optim_step({});
      const auto values = parameters_of(run);
      if (world.rank() == 0) plain = values;
    });
    on_mesh(m, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
      run.forward_backward(random_batch("cross_entropy", 5, 9));
      run->poison("a test");
      EXPECT_THROW(run.optim_step({}), FailedPrecondition);
      run.forward_backward(good);
      run.optim_step({});
      const auto values = parameters_of(run);
      if (world.rank() == 0) after_poison = values;
    });
    EXPECT_EQ(after_poison, plain);
  }
}

TEST_F(SteppedVerbsTest, MixedReductionsAreRefused) {
  v1::LossBatch sum = random_batch("cross_entropy", 2, 10), mean = sum, counted = sum;
  mean.set_reduction(v1::LOSS_REDUCTION_TOKEN_MEAN);
  counted = mean;
  counted.set_tokens(50);
  on_mesh({}, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    run.forward_backward(sum);
    EXPECT_EQ(field_of([&] { run.forward_backward(mean); }), "reduction");
    EXPECT_THROW(run.optim_step({}), FailedPrecondition);
    run.forward_backward(mean);
    EXPECT_EQ(field_of([&] { run.forward_backward(counted); }), "tokens");
    EXPECT_THROW(run.optim_step({}), FailedPrecondition);
    v1::LossBatch nothing = mean;
    for (v1::Datum& datum : *nothing.mutable_data())
      for (int i = 0; i < datum.weights_size(); ++i) datum.set_weights(i, 0.0f);
    run.forward_backward(nothing);
    EXPECT_EQ(reason_of<FailedPrecondition>([&] { run.optim_step({}); }), "NO_TARGETS");
  });
}

TEST_F(SteppedVerbsTest, DropoutIsThatOfTheNextForwardBackward) {
  const v1::LossBatch batch = random_batch("cross_entropy", 5, 11);
  RunOptions with;
  with.dropout = true;
  double expected = 0.0;  // of one rank
  for (const WholeMesh& m : kWholeMeshes) {
    v1::RunConfig c = stepped_config(m);
    c.mutable_model()->set_config("dropout.json");
    v1::LossOutput off;
    on_mesh(m, c, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
      const v1::LossOutput trained = run.forward_backward(batch);
      expect_same_outputs(run.forward(batch, true), run.forward(batch, false));
      if (world.rank() == 0) off = trained;
    });
    v1::LossOutput first;
    on_mesh(
        m, c,
        [&](WholeBatchRun& run, comm::ProcessGroup& world) {
          const v1::LossOutput evaluated = run.forward(batch, false);
          const v1::LossOutput drawn = run.forward(batch, true);
          const v1::LossOutput trained = run.forward_backward(batch);
          const v1::LossOutput again = run.forward_backward(batch);  // the window's next samples
          if (world.rank() != 0) return;
          expect_same_outputs(drawn, trained);
          EXPECT_NE(evaluated.metrics().at("loss:sum"), trained.metrics().at("loss:sum"));
          EXPECT_NE(again.metrics().at("loss:sum"), trained.metrics().at("loss:sum"));
          EXPECT_NEAR(evaluated.metrics().at("loss:sum"), off.metrics().at("loss:sum"), 1e-4);
          first = trained;
        },
        with);
    EXPECT_NE(first.metrics().at("loss:sum"), off.metrics().at("loss:sum"));
    if (m == WholeMesh{}) expected = first.metrics().at("loss:sum");
    EXPECT_NEAR(first.metrics().at("loss:sum"), expected, 1e-4) << m.name;
  }
}

// What a sampler says of its tokens is what forward says of them.
TEST_F(SteppedVerbsTest, SamplesHaveTheLogProbsOfForward) {
  for (const WholeMesh& m : kWholeMeshes) {
    for (const double temperature : {1.0, 0.7, 0.0}) {
      SCOPED_TRACE(fmt::format("{} temperature {}", m.name, temperature));
      on_mesh(m, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
        run.forward_backward(random_batch("cross_entropy", 4, 16));  // sampling leaves it alone
        SampleStart start{{10, 20, 30}, {}, 0};
        start.params.set_max_tokens(10);
        start.params.set_temperature(temperature);
        start.params.set_seed(3);
        const auto sample = run.begin_sample({start, start}, "");
        std::vector<std::int64_t> ids = start.prompt;
        std::vector<float> log_probs, tempered;
        for (int pass = 0; pass < 40; ++pass)
          for (const SampledToken& token : sample->advance(std::chrono::minutes(1))) {
            if (token.sequence != 0) continue;
            ids.push_back(token.id);
            log_probs.push_back(token.log_prob);
            tempered.push_back(token.tempered_log_prob);
          }
        // All ranks need the tokens for the next verb.
        ids.resize(13);
        world.broadcast(make_view(ids.data(), DType::kInt64, {13}), 0)->wait_host();
        v1::LossBatch batch;
        batch.set_loss("cross_entropy");
        v1::Datum& datum = *batch.add_data();
        for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
          datum.add_tokens(static_cast<int>(ids[t]));
          datum.add_targets(static_cast<int>(ids[t + 1]));
        }
        const v1::LossOutput output = run.forward(batch, false);
        EXPECT_EQ(run.optim_step({}).step(), 1);
        if (world.rank() != 0) return;
        ASSERT_EQ(log_probs.size(), 10u);
        for (std::size_t t = 0; t < log_probs.size(); ++t) {
          EXPECT_NEAR(log_probs[t], output.outputs(0).logprobs(static_cast<int>(t) + 2), 1e-5);
          if (temperature == 1.0) {
            EXPECT_EQ(tempered[t], log_probs[t]);
          } else if (temperature == 0.0) {
            EXPECT_EQ(tempered[t], 0.0f);
          } else {
            EXPECT_NE(tempered[t], log_probs[t]);
          }
        }
      });
    }
  }
}

// A model that sees both sides sees no padding.
TEST_F(SteppedVerbsTest, PaddingIsSeenByNobody) {
  folder_.write_text("bert.json", R"({"model_type": "bert", "architectures": ["BertForMaskedLM"],
      "vocab_size": 256, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
      "num_attention_heads": 3, "max_position_embeddings": 16, "type_vocab_size": 2,
      "hidden_act": "gelu", "layer_norm_eps": 1e-12, "initializer_range": 0.1})");
  v1::LossBatch batch = random_batch("cross_entropy", 5, 18);
  for (const char* model : {"config.json", "bert.json"}) {
    v1::RunConfig c = stepped_config({});
    c.mutable_model()->set_config(model);
    on_mesh({}, c, [&](WholeBatchRun& run, comm::ProcessGroup&) {
      batch.set_micro_batch_size(5);
      const v1::LossOutput together = run.forward(batch, false);
      batch.set_micro_batch_size(1);
      const v1::LossOutput alone = run.forward(batch, false);
      for (int i = 0; i < 5; ++i)
        for (int t = 0; t < alone.outputs(i).logprobs_size(); ++t)
          EXPECT_NEAR(together.outputs(i).logprobs(t), alone.outputs(i).logprobs(t), 1e-5);
    });
  }
}

// A datum without documents is one document.
TEST_F(SteppedVerbsTest, DocumentsOfBatchesAreBalancedOverTheRanks) {
  v1::LossBatch batch = random_batch("cross_entropy", 6, 21);
  std::mt19937_64 rng(22);
  for (int i = 0; i < 4; ++i) {
    v1::Datum& datum = *batch.mutable_data(i);
    for (int t = 0, document = 3; t < datum.tokens_size(); ++t) {
      datum.add_document_ids(document);
      if (rng() % 4 == 0) ++document;
    }
  }
  v1::LossOutput alone, shared;
  double alone_norm = 0, shared_norm = 1;
  const auto run_on = [&](const WholeMesh& m, const char* balancer, v1::LossOutput& output,
                          double& norm) {
    v1::RunConfig c = stepped_config(m);
    c.mutable_plan()->mutable_context_parallel()->set_load_balancer(balancer);
    on_mesh(m, c, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
      const v1::LossOutput told = run.forward_backward(batch);
      const double grad_norm = run.optim_step({}).grad_norm();
      SampleStart start{{1, 2, 3}, {}};
      start.params.set_max_tokens(3);
      const auto sample = run.begin_sample({start}, "");
      for (int pass = 0; pass < 10; ++pass) sample->advance(std::chrono::minutes(1));
      if (world.rank() != 0) return;
      output = told;
      norm = grad_norm;
    });
  };
  run_on({}, "auto", alone, alone_norm);
  for (const WholeMesh& m : {WholeMesh{"cp2", 1, 1, 2, 1}, WholeMesh{"dp2_cp2", 2, 1, 2, 1},
                             WholeMesh{"cp2_tp2", 1, 1, 2, 2}}) {
    run_on(m, "per_document", shared, shared_norm);
    EXPECT_NEAR(shared_norm, alone_norm, 1e-4 * alone_norm) << m.name;
    ASSERT_EQ(shared.outputs_size(), alone.outputs_size());
    for (int i = 0; i < alone.outputs_size(); ++i)
      for (int t = 0; t < alone.outputs(i).logprobs_size(); ++t)
        EXPECT_NEAR(shared.outputs(i).logprobs(t), alone.outputs(i).logprobs(t), 1e-5)
            << m.name << " datum " << i << " token " << t;
  }
}

// What cannot be represented stops the step and changes nothing.
TEST_F(SteppedVerbsTest, AGradientThatOverflowsChangesNothing) {
  v1::LossBatch batch = random_batch("cross_entropy", 3, 19);
  for (v1::Datum& datum : *batch.mutable_data())
    for (int i = 0; i < datum.weights_size(); ++i) datum.set_weights(i, 1e37f);
  for (const WholeMesh& m : kWholeMeshes) {
    on_mesh(m, [&](WholeBatchRun& run, comm::ProcessGroup&) {
      const auto before = parameters_of(run);
      run.forward_backward(batch);
      EXPECT_EQ(reason_of<NumericError>([&] { run.optim_step({}); }), "NON_FINITE");
      EXPECT_EQ(parameters_of(run), before);
      EXPECT_EQ(reason_of<FailedPrecondition>([&] { run.optim_step({}); }), "NO_GRADIENTS");
      EXPECT_EQ(run->step(), 0);
    });
  }
}

TEST_F(SteppedVerbsTest, ConfigsOfJobsAreRefusedByName) {
  const auto refused = [&](const std::function<void(v1::RunConfig&)>& change) {
    v1::RunConfig c = stepped_config({});
    change(c);
    return field_of(
        [&] { resolve_stepped_config(c, {.world_size = 1, .data_dir = folder_.path()}); });
  };
  EXPECT_EQ(refused([](auto& c) { c.mutable_data()->set_path("text.txt"); }), "run.data");
  EXPECT_EQ(refused([](auto& c) { c.mutable_lr_scheduler(); }), "run.lr_scheduler");
  EXPECT_EQ(refused([](auto& c) { c.mutable_validation(); }), "run.validation");
  EXPECT_EQ(refused([](auto& c) { c.mutable_checkpoint(); }), "run.checkpoint");
  EXPECT_EQ(refused([](auto& c) { c.mutable_export_(); }), "run.export");
  EXPECT_EQ(refused([](auto& c) { c.mutable_sample(); }), "run.sample");
  EXPECT_EQ(refused([](auto& c) { c.mutable_training()->set_steps(3); }), "run.training.steps");
  EXPECT_EQ(refused([](auto& c) { c.mutable_training()->set_global_batch_size(3); }),
            "run.training.global_batch_size");
  EXPECT_EQ(refused([](auto& c) { c.mutable_training()->set_seq_len(kContext + 1); }),
            "run.training.seq_len");
  EXPECT_EQ(refused([](auto& c) { c.mutable_optimizer()->set_beta1(1.5); }), "run.optimizer.beta1");
  EXPECT_EQ(refused([](auto& c) { c.mutable_mesh()->set_tp(3); }).substr(0, 8), "run.mesh");
  v1::RunConfig given = stepped_config({});
  given.mutable_training()->clear_micro_batch_size();
  const v1::RunConfig resolved =
      resolve_stepped_config(given, {.world_size = 1, .data_dir = folder_.path()});
  EXPECT_EQ(resolved.training().seq_len(), kContext);
  EXPECT_EQ(resolved.training().micro_batch_size(), kMicroBatchTokens / kContext);
  EXPECT_EQ(resolved.training().max_norm(), 0.0);
  EXPECT_EQ(resolved.optimizer().type(), v1::OPTIMIZER_TYPE_ADAMW);
  EXPECT_FALSE(resolved.has_data());
  given.mutable_model()->set_name("tuned");
  EXPECT_EQ(field_of([&] {
              resolve_stepped_config(
                  given, {.world_size = 1, .data_dir = folder_.path(), .model_folder = "/nowhere"});
            }),
            "run.model");
}

}  // namespace
}  // namespace meshloom::train
