// SPDX-License-Identifier: Apache-2.0
// A sentence encoder (BertModel, a folder without an output head) trained with a new head.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "daemon/nn/models/model_config.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/files/safetensors.h"
#include "kernels/base/error.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

constexpr std::uint64_t kFolderSeed = 5;  ///< not that of the runs

class FreshHeadTest : public RunFixture {
 protected:
  using Values = std::map<std::string, std::vector<float>>;

  void SetUp() override {
    RunFixture::SetUp();
    for (const bool tied : {true, false}) {
      const std::string name = tied ? "tied" : "untied";
      folder_.write_text(name + ".json", model_json("BertForMaskedLM", tied));
      export_of(from_config(name, kFolderSeed), name);
      write_encoder(name, tied);
    }
  }

  static std::string model_json(const std::string& architecture, bool tied) {
    return nlohmann::json{{"model_type", "bert"},     {"architectures", {architecture}},
                          {"vocab_size", 259},        {"hidden_size", 24},
                          {"intermediate_size", 40},  {"num_hidden_layers", 2},
                          {"num_attention_heads", 3}, {"max_position_embeddings", 16},
                          {"initializer_range", 0.1}, {"tie_word_embeddings", tied}}
        .dump();
  }
  v1::RunConfig bert(std::uint64_t seed) const {
    v1::RunConfig c = config(6);
    c.mutable_data()->set_tokenizer("bytes");  // and three more tokens
    c.mutable_data()->mutable_masked_lm()->set_mask_token(256);
    c.mutable_training()->set_seed(seed);
    c.mutable_debug()->set_check_replicas(true);
    return c;
  }
  v1::RunConfig from_config(const std::string& name, std::uint64_t seed) const {
    v1::RunConfig c = bert(seed);
    c.mutable_model()->set_config(name + ".json");
    return c;
  }
  v1::RunConfig from_encoder(const std::string& name, const MeshSize& m = {}) const {
    v1::RunConfig c = bert(11);
    c.clear_model();
    c.mutable_model()->set_hf_folder(name + "-encoder");
    c.mutable_model()->set_fresh_head(true);
    c.mutable_training()->set_micro_batch_size(m.ranks() == 1 ? 3 : 1);
    c.mutable_mesh()->set_dp(m.dp);
    c.mutable_mesh()->set_fsdp(m.fsdp);
    c.mutable_mesh()->set_tp(m.tp);
    return c;
  }
  /// The folder without its head, names as transformers' BertModel writes them.
  void write_encoder(const std::string& name, bool tied) const {
    const auto file = SafetensorsFile::open(folder_.path() / name / "model.safetensors");
    std::vector<NamedView> encoder;
    for (const SafetensorsEntry& entry : file->entries())
      if (entry.name.starts_with("bert."))
        encoder.push_back({entry.name.substr(5), file->view(entry)});
    const std::string out = name + "-encoder";
    folder_.write_text(out + "/config.json", model_json("BertModel", tied));
    write_safetensors(folder_.path() / out / "model.safetensors", encoder);
  }
  /// Weights before the first step, as `folder` has them.
  Values export_of(const v1::RunConfig& c, const std::string& folder, int ranks = 1) const {
    testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      create(world, context, c)->export_hf(folder_.path() / folder, "float32");
    });
    const auto file = SafetensorsFile::open(folder_.path() / folder / "model.safetensors");
    Values values;
    for (const SafetensorsEntry& entry : file->entries()) {
      const TensorView view = file->view(entry);
      const auto* begin = view.as<const float>();
      values[entry.name].assign(begin, begin + numel(entry.shape));
    }
    return values;
  }
  std::string refused(const std::function<void(v1::ModelSource&)>& change) const {
    v1::RunConfig c = from_encoder("tied");
    change(*c.mutable_model());
    try {
      resolve_run_config(c, {.world_size = 1, .data_dir = folder_.path()});
    } catch (const InvalidArgument& error) {
      return error.metadata().at("field");
    }
    return "accepted";
  }
};

TEST_F(FreshHeadTest, TheEncoderIsTheFoldersAndTheHeadThatOfTheSeed) {
  for (const std::string name : {"tied", "untied"}) {
    const Values folder = export_of(from_config(name, kFolderSeed), "again");
    const Values fresh = export_of(from_config(name, 11), "fresh");
    const Values mixed = export_of(from_encoder(name), "mixed");
    ASSERT_EQ(mixed.size(), folder.size());
    for (const auto& [parameter, values] : mixed)
      EXPECT_EQ(values, (parameter.starts_with("cls.") ? fresh : folder).at(parameter))
          << name << ' ' << parameter;
    EXPECT_NE(mixed.at("cls.predictions.transform.dense.weight"),
              folder.at("cls.predictions.transform.dense.weight"));
    EXPECT_NE(mixed.at("bert.encoder.layer.0.output.dense.weight"),
              fresh.at("bert.encoder.layer.0.output.dense.weight"));
  }
}

TEST_F(FreshHeadTest, EveryMeshBeginsWithTheSameBits) {
  const Values one = export_of(from_encoder("untied"), "one");
  for (const MeshSize& m : {MeshSize{2, 1, 1}, MeshSize{1, 3, 1}, MeshSize{1, 1, 2}}) {
    EXPECT_EQ(export_of(from_encoder("untied", m), "mesh", m.ranks()), one);
    expect_close(run_training(from_encoder("untied", m), m.ranks(), 4),
                 run_training(from_encoder("untied"), 1, 4));
  }
}

TEST_F(FreshHeadTest, ResumesBitwiseAndItsExportHasAHead) {
  expect_equal(run_training(from_encoder("tied"), 1, 4, {2}),
               run_training(from_encoder("tied"), 1, 4));
  const Values first = export_of(from_encoder("tied"), "trained");
  v1::RunConfig whole = from_encoder("tied");
  whole.mutable_model()->set_hf_folder("trained");
  whole.mutable_model()->clear_fresh_head();
  EXPECT_EQ(export_of(whole, "again"), first);
}

TEST_F(FreshHeadTest, IsRefusedByItsField) {
  const std::string field = "run.model.fresh_head";
  EXPECT_EQ(refused([](auto&) {}), "accepted");
  EXPECT_EQ(refused([](auto& m) { m.clear_fresh_head(); }), field);
  EXPECT_EQ(refused([](auto& m) { m.set_hf_folder("tied"); }), field) << "it has a head";
  EXPECT_EQ(refused([](auto& m) { m.set_preset("byte_gpt_1m"), m.clear_hf_folder(); }), field);
  // From scratch all is fresh; the estimate is that of a model with a head.
  v1::ModelSource scratch;
  scratch.set_config("tied-encoder/config.json");
  scratch.set_fresh_head(true);
  v1::ModelSource whole;
  whole.set_config("tied.json");
  EXPECT_EQ(nn::parameter_count(load_model_config(scratch, folder_.path())),
            nn::parameter_count(load_model_config(whole, folder_.path())));
}

TEST_F(FreshHeadTest, APartOfAHeadIsUnexpected) {
  const auto file = SafetensorsFile::open(folder_.path() / "tied" / "model.safetensors");
  std::vector<NamedView> tensors;
  for (const SafetensorsEntry& entry : file->entries())
    if (!entry.name.starts_with("cls.predictions.transform"))
      tensors.push_back({entry.name, file->view(entry)});
  write_safetensors(folder_.path() / "tied-encoder" / "model.safetensors", tensors);
  try {
    export_of(from_encoder("tied"), "out");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("unexpected tensors: cls.predictions.bias"));
  }
}

}  // namespace
}  // namespace meshloom::train
