// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/resolve.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/train/data/run_data.h"
#include "daemon/train/run/run.h"
#include "kernels/base/error.h"
#include "tests/unit/train/data_files.h"
#include "tests/unit/train/tiny_model.h"

namespace meshloom::train {
namespace {

class ResolveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write_text("config.json", testing::tiny_gpt2_config());
    folder_.write_text("text.txt", std::string(2000, 'a'));
    folder_.write_u16("tokens.bin", std::vector<std::uint16_t>(1000, 7));
  }

  v1::RunConfig config() const {
    v1::RunConfig config;
    config.mutable_model()->set_config("config.json");
    config.mutable_data()->set_path("text.txt");
    config.mutable_training()->set_steps(10);
    config.mutable_training()->set_global_batch_size(6);
    return config;
  }

  /// The field that a refusal names, or what else happened.
  std::string refused(const v1::RunConfig& config, int world_size = 1) const {
    try {
      resolve_run_config(config, {.world_size = world_size, .data_dir = folder_.path()});
    } catch (const Error& error) {
      const auto field = error.metadata().find("field");
      return field == error.metadata().end() ? std::string("no field: ") + error.what()
                                             : field->second;
    }
    return "accepted";
  }
  std::string refused_when(const std::function<void(v1::RunConfig&)>& change,
                           int world_size = 1) const {
    v1::RunConfig changed = config();
    change(changed);
    return refused(changed, world_size);
  }

  testing::DataFolder folder_;
};

TEST_F(ResolveTest, FillsInEveryDefault) {
  const v1::RunConfig resolved =
      resolve_run_config(config(), {.world_size = 4, .data_dir = folder_.path()});
  EXPECT_EQ(resolved.mesh().dp(), 4);
  EXPECT_EQ(resolved.mesh().tp(), 1);
  EXPECT_EQ(resolved.training().seq_len(), testing::kTinyContext);
  EXPECT_EQ(resolved.training().micro_batch_size(), 2);
  EXPECT_EQ(resolved.training().max_norm(), 1.0);
  EXPECT_TRUE(resolved.training().deterministic());
  EXPECT_TRUE(resolved.plan().dtype() == "float32" || resolved.plan().dtype() == "bfloat16");
  EXPECT_EQ(resolved.optimizer().type(), v1::OPTIMIZER_TYPE_ADAMW);
  EXPECT_EQ(resolved.optimizer().lr(), 3e-4);
  EXPECT_EQ(resolved.optimizer().beta1(), 0.9);
  EXPECT_EQ(resolved.optimizer().beta2(), 0.95);
  EXPECT_EQ(resolved.optimizer().weight_decay(), 0.1);
  EXPECT_EQ(resolved.lr_scheduler().decay_type(), v1::DECAY_TYPE_COSINE);
  EXPECT_EQ(resolved.lr_scheduler().min_lr_factor(), 0.1);
  EXPECT_EQ(resolved.data().validation_split(), 0.05);
  EXPECT_TRUE(resolved.data().pack_documents());
  EXPECT_EQ(resolved.checkpoint().keep_latest_k(), 2);
  EXPECT_EQ(resolved.validation().steps(), 10);
  EXPECT_EQ(resolved.export_().dtype(), "float32");
  // What is resolved stays as it is.
  EXPECT_EQ(resolve_run_config(resolved, {.world_size = 4, .data_dir = folder_.path()})
                .SerializeAsString(),
            resolved.SerializeAsString());
}

TEST_F(ResolveTest, WritesOutHowKeysTravel) {
  v1::RunConfig given = config();
  EXPECT_FALSE(resolve_run_config(given, {.world_size = 2, .data_dir = folder_.path()})
                   .plan()
                   .has_context_parallel());
  given.mutable_mesh()->set_cp(2);
  const v1::RunConfig resolved =
      resolve_run_config(given, {.world_size = 2, .data_dir = folder_.path()});
  EXPECT_EQ(resolved.plan().context_parallel().rotate(), "pull");
  EXPECT_EQ(resolve_run_config(resolved, {.world_size = 2, .data_dir = folder_.path()})
                .SerializeAsString(),
            resolved.SerializeAsString());
  given.mutable_plan()->mutable_context_parallel()->set_rotate("alltoall");
  EXPECT_EQ(resolve_run_config(given, {.world_size = 2, .data_dir = folder_.path()})
                .plan()
                .context_parallel()
                .rotate(),
            "alltoall");
}

TEST_F(ResolveTest, WritesOutTheBalancerThatWindowsAskFor) {
  const auto config_of = [&](int window) {
    folder_.write_text("mistral.json", testing::tiny_mistral_config(window));
    v1::RunConfig given = config();
    given.mutable_model()->set_config("mistral.json");
    given.mutable_mesh()->set_cp(2);
    return given;
  };
  const auto balancer = [&](const v1::RunConfig& given, int ranks = 2) {
    return resolve_run_config(given, {.world_size = ranks, .data_dir = folder_.path()})
        .plan()
        .context_parallel()
        .load_balancer();
  };
  v1::RunConfig given = config_of(4);
  EXPECT_EQ(balancer(given), "mask_area");
  given.mutable_plan()->mutable_context_parallel()->set_load_balancer("auto");
  EXPECT_EQ(balancer(given), "mask_area");
  const v1::RunConfig resolved =
      resolve_run_config(given, {.world_size = 2, .data_dir = folder_.path()});
  EXPECT_EQ(resolve_run_config(resolved, {.world_size = 2, .data_dir = folder_.path()})
                .SerializeAsString(),
            resolved.SerializeAsString());
  given.mutable_plan()->mutable_context_parallel()->set_load_balancer("head_tail");
  EXPECT_EQ(balancer(given), "head_tail") << "what is given is taken";
  // Documents, one rank of cp, and a window that sees everything leave it to the batch.
  v1::RunConfig documents = config_of(4);
  documents.mutable_data()->set_document_mask(true);
  EXPECT_EQ(balancer(documents), "");
  v1::RunConfig alone = config_of(4);
  alone.mutable_mesh()->set_cp(1);
  EXPECT_EQ(balancer(alone), "");
  EXPECT_EQ(balancer(config_of(testing::kTinyContext)), "");
}

TEST_F(ResolveTest, OneDimOfTheMeshTakesTheRanksThatAreLeft) {
  const auto mesh = [&](int dp, int fsdp, int tp, bool fully_shard, int world) {
    v1::RunConfig given = config();
    if (dp > 0) given.mutable_mesh()->set_dp(dp);
    if (fsdp > 0) given.mutable_mesh()->set_fsdp(fsdp);
    if (tp > 0) given.mutable_mesh()->set_tp(tp);
    if (fully_shard) given.mutable_plan()->set_fully_shard(true);
    const v1::RunConfig resolved =
        resolve_run_config(given, {.world_size = world, .data_dir = folder_.path()});
    EXPECT_EQ(resolved.plan().fully_shard(), fully_shard || resolved.mesh().fsdp() > 1);
    EXPECT_EQ(resolved.plan().tensor_parallel(), resolved.mesh().tp() > 1);
    return std::vector<int>{resolved.mesh().dp(), resolved.mesh().fsdp(), resolved.mesh().cp(),
                            resolved.mesh().tp()};
  };
  EXPECT_EQ(mesh(0, 0, 0, false, 4), (std::vector<int>{4, 1, 1, 1}));
  EXPECT_EQ(mesh(0, 2, 0, false, 4), (std::vector<int>{2, 2, 1, 1}));
  EXPECT_EQ(mesh(0, 0, 0, true, 4), (std::vector<int>{1, 4, 1, 1}));
  EXPECT_EQ(mesh(2, 0, 0, true, 4), (std::vector<int>{2, 2, 1, 1}));
  EXPECT_EQ(mesh(0, 0, 2, false, 6), (std::vector<int>{3, 1, 1, 2}));
  EXPECT_EQ(mesh(1, 2, 2, false, 4), (std::vector<int>{1, 2, 1, 2}));
}

TEST_F(ResolveTest, FusionIsRefusedWhereItCannotAct) {
  const auto refused = [&](int tp, bool sequence, auto change) {
    return refused_when(
        [&](auto& c) {
          if (tp > 1) c.mutable_mesh()->set_tp(tp);
          c.mutable_plan()->set_sequence_parallel(sequence);
          change(*c.mutable_plan()->mutable_fusion());
        },
        2);
  };
  const auto force = [](auto& fusion) { fusion.set_mode("force"); };
  EXPECT_EQ(refused(1, false, force), "run.plan.fusion");
  EXPECT_EQ(refused(2, false, force), "run.plan.fusion");
  EXPECT_EQ(refused(2, true, force), "accepted");
  EXPECT_EQ(refused(2, true, [](auto& fusion) { fusion.set_mode("forced"); }),
            "run.plan.fusion.mode");
  EXPECT_EQ(refused(2, true,
                    [](auto& fusion) {
                      fusion.add_choices()->set_pattern("transformer.h.*.ln_1");
                      fusion.mutable_choices(0)->set_mode("force");
                    }),
            "run.plan.fusion");
}

// What a user writes holds or is refused: nothing is overridden, nothing goes without effect.
TEST_F(ResolveTest, PlansDoNotContradictTheMesh) {
  const auto with = [&](auto change, int world = 2) { return refused_when(change, world); };
  EXPECT_EQ(with([](auto& c) {
              c.mutable_mesh()->set_tp(2);
              c.mutable_plan()->set_tensor_parallel(false);
            }),
            "run.plan.tensor_parallel");
  EXPECT_EQ(with([](auto& c) {
              c.mutable_mesh()->set_dp(2);
              c.mutable_plan()->set_tensor_parallel(true);
            }),
            "run.plan.tensor_parallel");
  EXPECT_EQ(with([](auto& c) {
              c.mutable_mesh()->set_fsdp(2);
              c.mutable_plan()->set_fully_shard(false);
            }),
            "run.plan.fully_shard");
  EXPECT_EQ(with([](auto& c) {
              c.mutable_mesh()->set_dp(2);
              c.mutable_plan()->set_fully_shard(true);
            }),
            "run.plan.fully_shard");
  EXPECT_EQ(with([](auto& c) { c.mutable_plan()->set_fully_shard(true); }), "accepted");
  EXPECT_EQ(with([](auto& c) { c.mutable_plan()->set_tensor_parallel(false); }), "accepted");
  EXPECT_EQ(with([](auto& c) { c.mutable_plan()->set_tensor_parallel(true); }, 1), "accepted");
  EXPECT_EQ(with([](auto& c) { c.mutable_plan()->set_fully_shard(true); }, 1), "accepted");
}

TEST_F(ResolveTest, RefusesWhatWouldHaveNoEffect) {
  const auto with = [&](auto change) { return refused_when(change, 2); };
  const auto add_style = [](auto& c, const char* pattern, const char* style) {
    c.mutable_mesh()->set_tp(2);
    auto& entry = *c.mutable_plan()->add_styles();
    entry.set_pattern(pattern);
    if (style != nullptr) entry.add_styles()->set_style(style);
  };
  EXPECT_EQ(with([&](auto& c) {
              add_style(c, "transformer.h.*.mlp.c_fc", "ColwiseParallel");
              c.mutable_plan()->set_sequence_parallel(true);
            }),
            "run.plan.sequence_parallel");
  EXPECT_EQ(with([&](auto& c) { add_style(c, "transformer.h.*.mlp.c_fc", nullptr); }),
            "run.plan.styles[0].styles");
  EXPECT_EQ(with([](auto& c) {
              c.mutable_plan()->set_fully_shard(true);
              c.mutable_plan()->mutable_fully_shard_options()->set_min_elements(5);
            }),
            "run.plan.fully_shard_options.min_elements");
  const auto checkpoint = [](auto& c, const char* pattern, v1::ActivationCheckpoint mode) {
    auto& choice = *c.mutable_plan()->add_activation_checkpoint_choices();
    choice.set_pattern(pattern);
    choice.set_mode(mode);
  };
  const auto full = v1::ACTIVATION_CHECKPOINT_FULL, unset = v1::ACTIVATION_CHECKPOINT_UNSPECIFIED;
  EXPECT_EQ(with([&](auto& c) { checkpoint(c, "transformer.h.0", unset); }),
            "run.plan.activation_checkpoint_choices[0].mode");
  EXPECT_EQ(with([&](auto& c) {
              checkpoint(c, "transformer.h.0", full);
              checkpoint(c, "transformer.h.0", full);
            }),
            "run.plan.activation_checkpoint_choices[1].pattern");
  EXPECT_EQ(with([&](auto& c) { checkpoint(c, "transformer.h.*.mlp", full); }),
            "run.plan.activation_checkpoint_choices");
  EXPECT_EQ(with([&](auto& c) { checkpoint(c, "transformer.h.0", full); }), "accepted");
}

TEST_F(ResolveTest, RefusesSamplingThatWouldFailAfterTraining) {
  const auto with = [&](auto change) {
    return refused_when([&](auto& c) { change(*c.mutable_sample()->mutable_params()); }, 1);
  };
  EXPECT_EQ(with([](auto& p) { p.set_top_p(0.0); }), "run.sample.params.top_p");
  EXPECT_EQ(with([](auto& p) { p.set_top_p(1.5); }), "run.sample.params.top_p");
  EXPECT_EQ(with([](auto& p) { p.set_top_k(-1); }), "run.sample.params.top_k");
  EXPECT_EQ(with([](auto& p) { p.set_max_tokens(-1); }), "run.sample.params.max_tokens");
  EXPECT_EQ(with([](auto& p) { p.set_temperature(-0.1); }), "run.sample.params.temperature");
  EXPECT_EQ(with([](auto& p) { p.set_top_p(0.5); }), "accepted");
}

// What a config asks for costs nothing before it was checked.
TEST_F(ResolveTest, RefusesSizesAboveTheLimitsByNameValueAndLimit) {
  const auto text = [&](const v1::RunConfig& asked) -> std::string {
    try {
      resolve_run_config(asked, {.world_size = 1, .data_dir = folder_.path()});
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto model = [&](const char* key, std::int64_t size) {
    auto json = nlohmann::json::parse(testing::tiny_gpt2_config());
    json[key] = size;
    folder_.write_text("large.json", json.dump());
    v1::RunConfig asked = config();
    asked.mutable_model()->set_config("large.json");
    return text(asked);
  };
  EXPECT_EQ(model("n_layer", 1'000'000),
            "run.model.config: config.json: n_layer is 1000000, but an integer from 1 to 1024 is "
            "expected");
  for (const char* key : {"n_layer", "n_embd", "n_head", "n_inner", "vocab_size", "n_positions"})
    EXPECT_NE(model(key, 100'000'000).find(key), std::string::npos) << key;
  v1::RunConfig many = config();
  many.mutable_training()->set_global_batch_size(std::int64_t{1} << 30);
  EXPECT_EQ(text(many), "run.training.global_batch_size: must be at most 1048576, got 1073741824");
  v1::RunConfig often = config();
  often.mutable_validation()->set_steps(std::int64_t{1} << 30);
  EXPECT_EQ(text(often), "run.validation.steps: must be at most 1048576, got 1073741824");
  v1::RunConfig patterns = config();
  for (int i = 0; i < 1025; ++i) {
    auto& choice = *patterns.mutable_plan()->add_activation_checkpoint_choices();
    choice.set_pattern(std::to_string(i));
    choice.set_mode(v1::ACTIVATION_CHECKPOINT_FULL);
  }
  EXPECT_EQ(text(patterns),
            "run.plan.activation_checkpoint_choices: has 1025 entries, at most 1024 are allowed "
            "for a model of 2 layers");
}

TEST_F(ResolveTest, TextOfOtherVocabulariesIsBytesOnlyWhereItIsSaid) {
  std::string json = testing::tiny_gpt2_config();
  json.replace(json.find("256"), 3, "259");
  folder_.write_text("other.json", json);
  v1::RunConfig given = config();
  given.mutable_model()->set_config("other.json");
  try {
    resolve_run_config(given, {.world_size = 1, .data_dir = folder_.path()});
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.reason(), "TOKENIZER_NEEDED");
    EXPECT_EQ(error.metadata().at("field"), "run.data.tokenizer");
  }
  given.mutable_data()->set_tokenizer("bytes");
  const v1::RunConfig resolved =
      resolve_run_config(given, {.world_size = 1, .data_dir = folder_.path()});
  EXPECT_EQ(resolved.data().tokenizer(), "bytes");
  EXPECT_EQ(resolve_run_config(config(), {.world_size = 1, .data_dir = folder_.path()})
                .data()
                .tokenizer(),
            "bytes");
}

TEST_F(ResolveTest, RefusesMoreTokensAtOnceThanARankTakes) {
  folder_.write_text("long.json", R"({"model_type": "gpt2", "vocab_size": 256, "n_embd": 16,
    "n_layer": 1024, "n_head": 2, "n_positions": 16777216})");
  const auto refused_of = [&](std::int64_t seq_len, std::int64_t batch) {
    return refused_when([&](auto& c) {
      c.mutable_model()->set_config("long.json");
      c.mutable_training()->set_seq_len(seq_len);
      c.mutable_training()->set_global_batch_size(batch);
    });
  };
  EXPECT_EQ(refused_of(16777216, 5), "run.training.micro_batch_size");
  EXPECT_EQ(refused_of(16777216, 4), "run.data.path") << "the data are too short";
  EXPECT_EQ(refused_of(16, 4), "accepted");
}

TEST_F(ResolveTest, NamesTheWrongField) {
  const auto field = [&](auto change, int world = 1) { return refused_when(change, world); };
  EXPECT_EQ(field([](auto& c) { c.mutable_model()->set_preset("gpt2_124m"); }), "run.model");
  EXPECT_EQ(field([](auto& c) { c.clear_model(); }), "run.model");
  EXPECT_EQ(field([](auto& c) { c.mutable_model()->set_config("none.json"); }), "run.model.config");
  EXPECT_EQ(field([](auto& c) { c.mutable_model()->set_config("text.txt"); }), "run.model.config");
  EXPECT_EQ(field([](auto& c) {
              c.mutable_model()->clear_config();
              c.mutable_model()->set_preset("gpt9");
            }),
            "run.model.preset");
  EXPECT_EQ(field([](auto& c) { c.mutable_model()->set_dropout(1.0); }), "run.model.dropout");
  EXPECT_EQ(field([](auto& c) { c.mutable_mesh()->set_dp(3); }, 2), "run.mesh.dp");
  EXPECT_EQ(field([](auto& c) { c.mutable_mesh()->set_dp(-1); }), "run.mesh.dp");
  EXPECT_EQ(field([](auto& c) { c.mutable_mesh()->set_fsdp(3); }, 4), "run.mesh.fsdp");
  EXPECT_EQ(field([](auto& c) { c.mutable_mesh()->set_tp(3); }, 4), "run.mesh.tp");
  // The product is 2 in 64 bits.
  EXPECT_EQ(field(
                [](auto& c) {
                  c.mutable_mesh()->set_dp(7623851);
                  c.mutable_mesh()->set_fsdp(2459346);
                  c.mutable_mesh()->set_tp(3935371);
                },
                2),
            "run.mesh.tp");
  EXPECT_EQ(field([](auto& c) { c.mutable_mesh()->set_cp(3); }, 2), "run.mesh.cp");
  EXPECT_EQ(field([](auto& c) { c.mutable_plan()->set_sequence_parallel(true); }),
            "run.plan.sequence_parallel");
  EXPECT_EQ(field([](auto& c) { c.mutable_plan()->mutable_fully_shard_options(); }),
            "run.plan.fully_shard_options");
  const auto choose = [](auto& c, const char* pattern, int dim) {
    c.mutable_plan()->set_fully_shard(true);
    auto& choice = *c.mutable_plan()->mutable_fully_shard_options()->add_choices();
    choice.set_pattern(pattern);
    choice.set_dim(dim);
  };
  EXPECT_EQ(field([&](auto& c) { choose(c, "transformer.h.*.ln_3.weight", 0); }, 2),
            "run.plan.fully_shard_options.choices");
  EXPECT_EQ(field([&](auto& c) { choose(c, "transformer.h.*.ln_1.weight", 1); }, 2),
            "run.plan.fully_shard_options.choices");
  EXPECT_EQ(field([&](auto& c) { choose(c, "transformer.h.*.ln_1.weight", 0); }, 2), "accepted");
  EXPECT_EQ(field([](auto& c) {
              auto& choice = *c.mutable_plan()->add_activation_checkpoint_choices();
              choice.set_pattern("h");
              choice.set_mode(v1::ACTIVATION_CHECKPOINT_FULL);
            }),
            "run.plan.activation_checkpoint_choices");
  EXPECT_EQ(field(
                [](auto& c) {
                  c.mutable_plan()->add_styles()->add_styles()->set_style("DiagonalParallel");
                },
                2),
            "run.plan.styles");
  EXPECT_EQ(field(
                [](auto& c) {
                  c.mutable_mesh()->set_tp(2);
                  c.mutable_plan()->add_styles()->add_styles()->set_style("DiagonalParallel");
                },
                2),
            "run.plan.styles[0].styles[0].style");
  EXPECT_EQ(field([](auto& c) {
              c.mutable_plan()->mutable_context_parallel()->set_load_balancer("tail_head");
            }),
            "run.plan.context_parallel.load_balancer");
  EXPECT_EQ(field([](auto& c) {
              c.mutable_plan()->mutable_context_parallel()->set_load_balancer("per_document");
            }),
            "run.plan.context_parallel.load_balancer");
  EXPECT_EQ(field([](auto& c) { c.mutable_plan()->set_dtype("float16"); }), "run.plan.dtype");
  EXPECT_EQ(field([](auto& c) { c.mutable_plan()->set_dtype("fp8"); }), "run.plan.dtype");
  EXPECT_EQ(field([](auto& c) { c.mutable_training()->set_steps(0); }), "run.training.steps");
  EXPECT_EQ(field([](auto& c) { c.mutable_training()->set_seq_len(1000); }),
            "run.training.seq_len");
  EXPECT_EQ(field([](auto& c) { c.mutable_training()->set_global_batch_size(0); }),
            "run.training.global_batch_size");
  EXPECT_EQ(field([](auto& c) { c.mutable_training()->set_global_batch_size(1000); }),
            "run.training.global_batch_size");
  EXPECT_EQ(field([](auto& c) { c.mutable_training()->set_micro_batch_size(7); }),
            "run.training.micro_batch_size");
  EXPECT_EQ(field([](auto& c) { c.mutable_training()->set_max_norm(-1); }),
            "run.training.max_norm");
  EXPECT_EQ(field([](auto& c) { c.mutable_training()->set_deterministic(false); }),
            "run.training.deterministic");
  EXPECT_EQ(field([](auto& c) { c.mutable_optimizer()->set_lr(-1); }), "run.optimizer.lr");
  EXPECT_EQ(field([](auto& c) { c.mutable_optimizer()->set_beta1(1.0); }), "run.optimizer.beta1");
  EXPECT_EQ(field([](auto& c) { c.mutable_optimizer()->set_nesterov(true); }),
            "run.optimizer.nesterov");
  EXPECT_EQ(field([](auto& c) { c.mutable_lr_scheduler()->set_warmup_steps(11); }),
            "run.lr_scheduler.warmup_steps");
  EXPECT_EQ(field([](auto& c) { c.mutable_lr_scheduler()->set_min_lr_factor(2); }),
            "run.lr_scheduler.min_lr_factor");
  EXPECT_EQ(field([](auto& c) { c.mutable_data()->clear_path(); }), "run.data.path");
  EXPECT_EQ(field([](auto& c) { c.mutable_data()->set_path("../text.txt"); }), "run.data.path");
  EXPECT_EQ(field([](auto& c) { c.mutable_data()->set_tokenizer("gpt2"); }), "run.data.tokenizer");
  EXPECT_EQ(field([](auto& c) { c.mutable_data()->set_format(v1::DATA_FORMAT_LLMC); }),
            "run.data.path");
  EXPECT_EQ(field([](auto& c) { c.mutable_data()->set_validation_split(1.0); }),
            "run.data.validation_split");
  EXPECT_EQ(field([](auto& c) { c.mutable_data()->set_validation_path("none"); }),
            "run.data.validation_path");
  EXPECT_EQ(field([](auto& c) {
              c.mutable_validation()->set_interval(5);
              c.mutable_data()->set_validation_split(0.0005);
            }),
            "run.data.validation_split");
  EXPECT_EQ(field([](auto& c) {
              c.mutable_data()->set_path("tokens.bin");
              c.mutable_data()->set_document_mask(true);
            }),
            "run.data.document_end");
  EXPECT_EQ(field([](auto& c) { c.mutable_checkpoint()->set_interval(-1); }),
            "run.checkpoint.interval");
  EXPECT_EQ(field([](auto& c) { c.mutable_export_()->set_dtype("float64"); }), "run.export.dtype");
  EXPECT_EQ(field([](auto& c) { c.mutable_export_()->set_hf_folder("../up"); }),
            "run.export.hf_folder");
  EXPECT_EQ(field([](auto& c) { c.mutable_sample()->add_token_ids(256); }), "run.sample.token_ids");
  EXPECT_EQ(field([](auto& c) { c.mutable_sample()->set_prompt(std::string(17, 'x')); }),
            "run.sample.prompt");
  EXPECT_EQ(field([](auto& c) { c.mutable_sample()->mutable_params()->set_top_p(2); }),
            "run.sample.params.top_p");
  EXPECT_EQ(refused(config()), "accepted");
}

TEST_F(ResolveTest, RefusalsOfWhatIsNotOfferedAreUnimplemented) {
  v1::RunConfig changed = config();
  changed.mutable_plan()->set_dtype("float16");
  EXPECT_THROW(resolve_run_config(changed, {.world_size = 1, .data_dir = folder_.path()}),
               Unimplemented);
}

TEST_F(ResolveTest, SplitsTheTail) {
  v1::RunConfig changed = config();
  changed.mutable_data()->set_validation_split(0.25);
  const v1::RunConfig resolved =
      resolve_run_config(changed, {.world_size = 1, .data_dir = folder_.path()});
  const RunData data =
      open_run_data(resolved, nn::parse_hf_config(testing::tiny_gpt2_config()), folder_.path());
  EXPECT_EQ(data.training->tokens(), 1500);
  EXPECT_EQ(data.validation->tokens(), 500);
}

TEST_F(ResolveTest, ACountThatIsTooLargeIsToldTheLargest) {
  const std::int64_t huge = std::int64_t{1} << 62;
  const auto text = [&](const std::function<void(v1::RunConfig&)>& change) {
    v1::RunConfig changed = config();
    change(changed);
    try {
      resolve_run_config(changed, {.world_size = 1, .data_dir = folder_.path()});
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(text([&](auto& c) { c.mutable_training()->set_steps(huge); }),
            "run.training.steps: must be at most 1099511627776 (2^40), got 4611686018427387904");
  EXPECT_EQ(text([&](auto& c) { c.mutable_training()->set_steps(0); }),
            "run.training.steps: must be at least 1, got 0");
  EXPECT_EQ(text([&](auto& c) { c.mutable_validation()->set_interval(huge); }),
            "run.validation.interval: must be at most 1099511627776 (2^40), got "
            "4611686018427387904");
}

}  // namespace
}  // namespace meshloom::train
