// SPDX-License-Identifier: Apache-2.0
// BERT trained from tokens: the numbers of one rank on any mesh, bitwise after a restart.
#include <gtest/gtest.h>

#include <fstream>

#include "kernels/base/error.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

class MaskedLmRunTest : public RunFixture {
 protected:
  void SetUp() override {
    RunFixture::SetUp();
    for (const bool tied : {true, false})
      folder_.write_text(
          tied ? "bert.json" : "untied.json",
          fmt::format(R"({{"model_type": "bert", "architectures": ["BertForMaskedLM"],
              "vocab_size": 259, "hidden_size": 24, "intermediate_size": 40,
              "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 16,
              "type_vocab_size": 2, "hidden_dropout_prob": 0.1,
              "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
              "initializer_range": 0.1, "tie_word_embeddings": {}}})",
                      tied));
    std::string lines;
    for (int i = 0; i < 400; ++i) lines += i % 3 == 0 ? "abcabcabc\n" : "the same line again\n";
    folder_.write_text("lines.txt", lines);
  }
  v1::RunConfig bert(const MeshSize& m = {}, const char* model = "bert.json") const {
    v1::RunConfig c = config(6);
    c.mutable_data()->set_tokenizer("bytes");  // and three more tokens
    c.mutable_model()->set_config(model);
    c.mutable_training()->set_micro_batch_size(m.ranks() == 1 ? 3 : 1);
    set_mesh(c, m);
    c.mutable_data()->mutable_masked_lm()->set_mask_token(256);
    c.mutable_debug()->set_check_replicas(true);
    return c;
  }
};

TEST_F(MaskedLmRunTest, EveryMeshGivesTheNumbersOfOneRank) {
  const Trace one = run_training(bert(), 1, 4);
  for (const MeshSize& m : {MeshSize{2, 1, 1}, {1, 3, 1}, {2, 2, 1}, {1, 1, 2, true}, {1, 1, 3}}) {
    SCOPED_TRACE(fmt::format("dp{} fsdp{} tp{}", m.dp, m.fsdp, m.tp));
    expect_close(run_training(bert(m), m.ranks(), 4), one);
  }
}

TEST_F(MaskedLmRunTest, ResumesBitwise) {
  for (const MeshSize& m : {MeshSize{}, MeshSize{2, 1, 1}, MeshSize{1, 2, 1}, MeshSize{1, 1, 2}})
    expect_equal(run_training(bert(m), m.ranks(), 4, {2}), run_training(bert(m), m.ranks(), 4));
}

TEST_F(MaskedLmRunTest, LearnsWhatIsHidden) {
  const Trace trace = run_training(bert(), 1, 60);
  const auto mean = [&](std::size_t from) {
    double sum = 0.0;
    for (std::size_t i = from; i < from + 10; ++i) sum += trace.losses[i];
    return sum / 10;
  };
  EXPECT_LT(mean(50), 0.8 * mean(0));
}

TEST_F(MaskedLmRunTest, PaddingIsNotSeen) {
  v1::RunConfig c = bert();
  c.mutable_data()->set_path("lines.txt");
  c.mutable_data()->set_pack_documents(false);
  c.mutable_data()->set_document_end('\n');
  const Trace one = run_training(c, 1, 3);
  c.mutable_mesh()->set_dp(3);
  c.mutable_training()->set_micro_batch_size(1);
  expect_close(run_training(c, 3, 3), one);
}

TEST_F(MaskedLmRunTest, AllThatIsReadCountsAsTokensButPadding) {
  const auto tokens_of_a_step = [&](const v1::RunConfig& c) {
    const auto world = testing::make_single_world();
    testing::TestContext context;
    const auto run = create(*world, context, c);
    run->forward_backward();
    const v1::StepMetrics metrics = run->optim_step();
    EXPECT_GT(metrics.tokens_per_second(), 0.0);
    return metrics.tokens();
  };
  v1::RunConfig c = bert();
  const std::int64_t positions =
      c.training().global_batch_size() *
      resolve_run_config(c, {.world_size = 1, .data_dir = folder_.path()}).training().seq_len();
  EXPECT_EQ(tokens_of_a_step(c), positions) << "not those alone that are hidden";
  c.mutable_data()->set_path("lines.txt");
  c.mutable_data()->set_pack_documents(false);
  c.mutable_data()->set_document_end('\n');
  const std::int64_t in_lines = tokens_of_a_step(c);
  EXPECT_LT(in_lines, positions) << "lines are shorter than samples, or go on in another one";
  EXPECT_GT(in_lines, positions / 4);
}

TEST_F(MaskedLmRunTest, AnOutputProjectionOfItsOwn) {
  const Trace one = run_training(bert({}, "untied.json"), 1, 4);
  const Trace tied = run_training(bert(), 1, 4);
  EXPECT_EQ(one.weights.size(), tied.weights.size() + 3) << "a weight and its two moments";
  for (const MeshSize& m : {MeshSize{1, 3, 1}, MeshSize{1, 1, 2, true}})
    expect_close(run_training(bert(m, "untied.json"), m.ranks(), 4), one);
}

TEST_F(MaskedLmRunTest, AnUntiedModelGoesThroughHuggingFaceFiles) {
  const auto file = [&](const char* name) {
    std::ifstream in(folder_.path() / name / "model.safetensors", std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    v1::RunConfig c = bert({1, 2, 1}, "untied.json");
    create(world, context, c)->export_hf(folder_.path() / "out", "float32");
    c.mutable_model()->clear_config();
    c.mutable_model()->set_hf_folder("out");
    create(world, context, c)->export_hf(folder_.path() / "again", "float32");
    if (world.rank() != 0) return;
    EXPECT_NE(file("out").find("\"cls.predictions.decoder.weight\""), std::string::npos);
    EXPECT_TRUE(file("out") == file("again"));
  });
}

TEST_F(MaskedLmRunTest, NamesTheWrongField) {
  const auto refused = [&](const auto& change, v1::RunConfig c) {
    change(c);
    try {
      resolve_run_config(c, {.world_size = 1, .data_dir = folder_.path()});
    } catch (const InvalidArgument& error) {
      return error.metadata().at("field");
    }
    return std::string("accepted");
  };
  const auto masked = [](auto change) {
    return [change](v1::RunConfig& c) { change(*c.mutable_data()->mutable_masked_lm()); };
  };
  const std::string field = "run.data.masked_lm";
  EXPECT_EQ(refused([](auto&) {}, bert()), "accepted");
  EXPECT_EQ(refused(masked([](auto&) {}), config()), field);
  EXPECT_EQ(refused(masked([](auto& m) { m.clear_mask_token(); }), bert()), field + ".mask_token");
  EXPECT_EQ(refused(masked([](auto& m) { m.set_mask_token(259); }), bert()), field + ".mask_token");
  EXPECT_EQ(refused(masked([](auto& m) { m.add_special_tokens(-1); }), bert()),
            field + ".special_tokens");
  EXPECT_EQ(refused(masked([](auto& m) { m.set_probability(1.5); }), bert()),
            field + ".probability");
  EXPECT_EQ(refused(masked([](auto& m) { m.set_random_share(0.3); }), bert()),
            field + ".random_share");
  EXPECT_EQ(refused(masked([](auto& m) { m.set_mask_share(1.0); }), bert()), "accepted");
  EXPECT_EQ(refused([](auto& c) { c.mutable_sample()->add_token_ids(1); }, bert()), "run.sample");
}

}  // namespace
}  // namespace meshloom::train
