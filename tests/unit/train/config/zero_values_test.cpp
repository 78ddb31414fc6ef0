// SPDX-License-Identifier: Apache-2.0
// Every number of a config that somebody writes as 0 is taken as 0, or refused by its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resolve_stepped.h"
#include "tests/support/numeric_fields.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

using test::NumericField;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kBert = R"({"model_type": "bert", "architectures": ["BertForMaskedLM"],
    "vocab_size": 256, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 3, "max_position_embeddings": 16, "type_vocab_size": 2,
    "hidden_act": "gelu"})";

class ZeroValuesTest : public RunFixture {
 protected:
  void SetUp() override {
    RunFixture::SetUp();
    folder_.write_text("bert.json", kBert);
    std::string lines;
    for (int i = 0; i < 64; ++i)
      lines += R"({"prompt": "What is it?", "completion": "It is so."})"
               "\n";
    folder_.write_text("chat.jsonl", lines);
  }

  /// What a field needs around it to have its place in a config.
  static void make_place(const std::string& field, v1::RunConfig* config) {
    v1::ParallelPlan& plan = *config->mutable_plan();
    if (field.starts_with("plan.context_parallel")) {
      config->mutable_mesh()->set_cp(2);
      plan.mutable_context_parallel()->set_rotate("ulysses");
    } else if (field.starts_with("plan.fully_shard_options")) {
      plan.set_fully_shard(true);
      v1::FullyShardOptions& options = *plan.mutable_fully_shard_options();
      options.set_policy(v1::SHARD_POLICY_LARGEST_DIVISIBLE);
      options.add_choices()->set_pattern("transformer.wte.weight");
    } else if (field.starts_with("plan.styles")) {
      config->mutable_mesh()->set_tp(2);
      v1::PatternStyles& styles = *plan.add_styles();
      styles.set_pattern("transformer.h.*.ln_1");
      styles.add_styles()->set_style("SequenceParallel");
    } else if (field.starts_with("optimizer.groups")) {
      config->mutable_optimizer()->add_groups()->set_pattern("transformer.wte");
    } else if (field.starts_with("training.watch")) {
      config->mutable_training()->add_watch();
    }
  }
  v1::RunConfig job_with(const std::string& field) const {
    v1::RunConfig with = config();
    // No share of the data is none to validate on.
    if (field != "data.validation_split") with.mutable_validation()->set_interval(5);
    make_place(field, &with);
    if (field.starts_with("training.early_stopping"))
      with.mutable_training()->mutable_early_stopping()->set_patience(1);
    if (field.starts_with("sample")) with.mutable_sample()->set_prompt("a");
    if (field.starts_with("data.chat")) with.mutable_data()->set_path("chat.jsonl");
    if (field.starts_with("data.masked_lm")) {
      with.mutable_model()->set_config("bert.json");
      with.mutable_data()->mutable_masked_lm()->set_mask_token(255);
    }
    return with;
  }
  static int ranks_for(const std::string& field) { return field.starts_with("plan.") ? 2 : 1; }

  std::string refusal(const v1::RunConfig& with) const {
    try {
      resolve_run_config(with, {.world_size = 1, .data_dir = folder_.path()});
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  }

  /// What a refusal names, without "run." and places in lists; empty if `resolve` takes the 0 as 0.
  template <typename Resolve>
  static std::string refused(const NumericField& field, v1::RunConfig with,
                             const Resolve& resolve) {
    field.set_zero(&with);
    try {
      const v1::RunConfig resolved = resolve(with);
      const std::optional<double> value = field.value(resolved);
      EXPECT_TRUE(value == 0.0 || (!field.has_presence() && !value))
          << "0 has become " << value.value_or(-1);
      return "";
    } catch (const Error& error) {
      const auto found = error.metadata().find("field");
      EXPECT_NE(found, error.metadata().end()) << error.what();
      if (found == error.metadata().end()) return error.what();
      return std::regex_replace(found->second, std::regex(R"(^run\.|\[\d+\])"), "");
    }
  }
  /// Names of the fields whose 0 is refused by `resolve`, of configs that `with` makes. A refusal
  /// names the field or, if `sections` are refused as a whole, what it is in.
  template <typename With, typename Resolve>
  static std::set<std::string> refused_fields(bool sections, const With& with,
                                              const Resolve& resolve) {
    std::set<std::string> names;
    // The identity of data is what the daemon has found, and no choice of anybody.
    for (const NumericField& field :
         test::numeric_fields(*v1::RunConfig::descriptor(), {"DataIdentity"})) {
      SCOPED_TRACE(field.name());
      const std::string named = refused(field, with(field.name()), [&](const v1::RunConfig& c) {
        return resolve(c, ranks_for(field.name()));
      });
      if (named.empty()) continue;
      EXPECT_TRUE(named == field.name() || (sections && field.name().starts_with(named + ".")))
          << named;
      names.insert(field.name());
    }
    return names;
  }
};

TEST_F(ZeroValuesTest, AJobTakesEachOrRefusesItByName) {
  const std::set<std::string> names = refused_fields(
      false, [&](const std::string& field) { return job_with(field); },
      [&](const v1::RunConfig& given, int ranks) {
        return resolve_run_config(given, {.world_size = ranks, .data_dir = folder_.path()});
      });
  EXPECT_THAT(names, ElementsAre("mesh.cp", "mesh.dp", "mesh.fsdp", "mesh.tp", "metrics.interval",
                                 "plan.context_parallel.ulysses_degree", "sample.params.max_tokens",
                                 "sample.params.top_p", "training.early_stopping.patience",
                                 "training.global_batch_size", "training.micro_batch_size",
                                 "training.peak_flops", "training.seq_len", "training.steps",
                                 "training.watch.tokens_per_second_below", "validation.steps"));
}

TEST_F(ZeroValuesTest, ARunTakesEachOrRefusesItByName) {
  const std::set<std::string> names = refused_fields(
      true,
      [&](const std::string& field) {
        v1::RunConfig with;
        with.mutable_model()->set_config("config.json");
        make_place(field, &with);
        return with;
      },
      [&](const v1::RunConfig& given, int ranks) {
        return resolve_stepped_config(given, {.world_size = ranks, .data_dir = folder_.path()});
      });
  // What is for jobs alone is refused with its section.
  std::set<std::string> own;
  for (const std::string& name : names)
    if (name.starts_with("mesh.") || name.starts_with("plan.") || name.starts_with("training."))
      own.insert(name);
  EXPECT_THAT(
      own, ElementsAre("mesh.cp", "mesh.dp", "mesh.fsdp", "mesh.tp",
                       "plan.context_parallel.ulysses_degree", "training.early_stopping.min_delta",
                       "training.early_stopping.patience", "training.micro_batch_size",
                       "training.peak_flops", "training.seq_len", "training.watch.grad_norm_above",
                       "training.watch.loss_above", "training.watch.tokens_per_second_below"));
}

TEST_F(ZeroValuesTest, ARefusalSaysWhatIsMeantWhereTheFieldIsLeftOut) {
  const auto text = [&](const std::function<void(v1::RunConfig&)>& change) {
    v1::RunConfig with = config();
    change(with);
    return refusal(with);
  };
  EXPECT_THAT(text([](auto& c) { c.mutable_training()->set_seq_len(0); }),
              HasSubstr("run.training.seq_len: must be above 0, got 0; leave it out for the "
                        "model's context"));
  EXPECT_THAT(text([](auto& c) { c.mutable_mesh()->set_dp(0); }),
              HasSubstr("run.mesh.dp: must be above 0, got 0; leave it out for the ranks that are "
                        "left"));
  EXPECT_THAT(text([](auto& c) { c.mutable_validation()->set_steps(0); }),
              HasSubstr("leave it out for 10, or say interval: 0 to validate never"));
  EXPECT_THAT(text([](auto& c) { c.mutable_training()->set_micro_batch_size(-1); }),
              HasSubstr("run.training.micro_batch_size: must be above 0, got -1"));
}

TEST_F(ZeroValuesTest, ALearningRateOf0LeavesTheWeights) {
  v1::RunConfig with = config();
  with.mutable_optimizer()->set_lr(0.0);
  const Trace none = run_training(with, 1, 0), trained = run_training(with, 1, 3);
  ASSERT_EQ(trained.losses.size(), 3u);
  int weights = 0;
  for (const auto& [name, values] : none.weights) {
    if (!name.starts_with("model.")) continue;
    EXPECT_EQ(trained.weights.at(name), values) << name;
    ++weights;
  }
  EXPECT_GT(weights, 10);
}

TEST_F(ZeroValuesTest, GroupsBelowARateOf0AreStillOrRefused) {
  v1::RunConfig with = config();
  with.mutable_optimizer()->set_lr(0.0);
  v1::ParameterGroup& group = *with.mutable_optimizer()->add_groups();
  group.set_pattern("transformer.wte");
  group.set_lr(0.0);
  const Trace trace = run_training(with, 1, 2);
  for (const auto& [name, values] : trace.weights)
    for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << name;
  group.set_lr(1e-3);
  EXPECT_THAT(refusal(with), HasSubstr("run.optimizer.groups[0].lr: is 0.001, but "
                                       "run.optimizer.lr is 0"));
}

TEST_F(ZeroValuesTest, KeepingTheLatest0KeepsAll) {
  v1::RunConfig with = config();
  with.mutable_checkpoint()->set_keep_latest_k(0);
  const test::TempFolder checkpoints;
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto run = create(world, context, with, checkpoints.path());
    for (int i = 0; i < 4; ++i) {
      Trace trace;
      steps(*run, 1, trace);
      run->save_state();
    }
  });
  std::vector<std::int64_t> kept;
  for (const CheckpointEntry& entry : list_checkpoints(checkpoints.path()))
    kept.push_back(entry.step);
  EXPECT_THAT(kept, ElementsAre(1, 2, 3, 4));
}

}  // namespace
}  // namespace meshloom::train
