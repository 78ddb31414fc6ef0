// SPDX-License-Identifier: Apache-2.0
// Folders whose config.json ties head and embedding, with other values in the files. The losses
// are those of transformers 5.24.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <list>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/support/file_text.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/files/golden_folder.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The tensors of a golden folder, and a second name of one with waves on its values.
struct Waved : Tensors {
  explicit Waved(const std::string& golden) : Tensors(golden) {}

  void add(const std::string& from, const std::string& name, double (*wave)(double),
           double height) {
    const TensorView& view = at(from);
    std::vector<float>& values =
        added_.emplace_back(view.as<const float>(), view.as<const float>() + numel(view.shape));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(values[i] + height * wave(static_cast<double>(i)));
    list.push_back({name, make_view(values.data(), DType::kFloat32, view.shape)});
  }
  void add_head(const std::string& from, const std::string& name) {
    add(
        from, name, [](double i) { return std::sin(i); }, 0.3);
  }
  void add_bias() {
    add(
        "cls.predictions.bias", "cls.predictions.decoder.bias",
        [](double i) { return std::cos(i); }, 0.5);
  }

 private:
  std::list<std::vector<float>> added_;
};

double loss_of(ExecutionContext& context, nn::Model& model) {
  std::vector<std::int64_t> ids(32);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int64_t>(i * 7 + 3) % 90 + 4;
  nn::Batch batch;
  batch.input_ids = from_values(context, {2, 16}, std::span<const std::int64_t>(ids));
  batch.labels = batch.input_ids;
  batch.labels_shifted = false;
  const bool causal = model.config().architecture != nn::Architecture::kBert;
  const NoGradGuard no_grad(context);
  return model.loss(batch, 1.0f / (causal ? 30.0f : 32.0f), {}).to_vector()[0];
}

struct TiedCase {
  const char* golden;
  const char* embedding;
  const char* head;
  double loss;
};

class HfTie : public ::testing::TestWithParam<TiedCase> {
 protected:
  test::TempFolder temp_;
  testing::TestContext context_;
};
INSTANTIATE_TEST_SUITE_P(
    Architectures, HfTie,
    ::testing::Values(TiedCase{"gpt2_hf", "transformer.wte.weight", "lm_head.weight", 5.850306988},
                      TiedCase{"llama3_rope_tied_hf", "model.embed_tokens.weight", "lm_head.weight",
                               5.916923999},
                      TiedCase{"bert_hf", "bert.embeddings.word_embeddings.weight",
                               "cls.predictions.decoder.weight", 5.542932510}),
    [](const auto& tested) { return std::string(tested.param.golden); });

TEST_P(HfTie, AHeadOfItsOwnIsKeptWithANoteAndExportedUntied) {
  const TiedCase& c = GetParam();
  Waved tensors(c.golden);
  tensors.add_head(c.embedding, c.head);
  const fs::path path = make_folder(temp_, c.golden, tensors);
  const HfFolder folder = HfFolder::open(path);
  EXPECT_TRUE(folder.config().tie_word_embeddings);
  EXPECT_TRUE(folder.has_own_head());
  EXPECT_FALSE(folder.model_config().tie_word_embeddings);
  EXPECT_THAT(folder.tie_notes(), ElementsAre(AllOf(HasSubstr(c.embedding), HasSubstr(c.head),
                                                    HasSubstr("tie_word_embeddings"))));
  check_hf_folder(path);

  const auto model = load_folder(context_, path);
  const Values values = values_of(*model);
  EXPECT_NE(values.at(c.embedding), values.at(c.head));
  EXPECT_NEAR(loss_of(context_, *model), c.loss, 2e-6 * c.loss);

  save_hf_folder(temp_.path() / "out", *model);
  const auto config = nlohmann::json::parse(test::file_text(temp_.path() / "out/config.json"));
  EXPECT_FALSE(config.at("tie_word_embeddings").get<bool>());
  EXPECT_EQ(values_of(*load_folder(context_, temp_.path() / "out")), values);
}

TEST_P(HfTie, AnEqualCopyStaysTied) {
  const TiedCase& c = GetParam();
  const Values tied = values_of(*load_folder(context_, kGolden / c.golden));
  Waved tensors(c.golden);
  tensors.add(
      c.embedding, c.head, [](double) { return 0.0; }, 0.0);
  const HfFolder folder = HfFolder::open(make_folder(temp_, c.golden, tensors));
  EXPECT_FALSE(folder.has_own_head());
  EXPECT_TRUE(folder.model_config().tie_word_embeddings);
  EXPECT_THAT(folder.tie_notes(), IsEmpty());
  EXPECT_EQ(values_of(*load_folder(context_, temp_.path() / "model")), tied);
}

TEST_P(HfTie, AHeadOfAnotherShapeIsRefused) {
  const TiedCase& c = GetParam();
  Tensors tensors(c.golden);
  std::vector<float> other(8);
  tensors.list.push_back({c.head, make_view(other.data(), DType::kFloat32, {2, 4})});
  EXPECT_THAT(load_error(make_folder(temp_, c.golden, tensors)),
              AllOf(HasSubstr(c.head), HasSubstr("[2, 4]")));
}

TEST_F(HfTie, OfTwoBiasesOfBertTheDecodersCounts) {
  Waved tensors("bert_hf");
  tensors.add_bias();
  const fs::path path = make_folder(temp_, "bert_hf", tensors);
  const HfFolder folder = HfFolder::open(path);
  EXPECT_FALSE(folder.has_own_head());
  EXPECT_THAT(folder.tie_notes(), ElementsAre(HasSubstr("cls.predictions.decoder.bias")));
  const auto model = load_folder(context_, path);
  EXPECT_NEAR(loss_of(context_, *model), 5.009295464, 1e-5);

  tensors.add_head("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight");
  const auto both = load_folder(context_, make_folder(temp_, "bert_hf", tensors));
  EXPECT_NEAR(loss_of(context_, *both), 5.649344921, 1e-5);
}

TEST_F(HfTie, AnUntiedBertIsExportedWithBothNamesOfItsBias) {
  // transformers 5 makes a new one where the decoder's is missing and nothing is tied.
  Waved tensors("bert_hf");
  tensors.add_bias();
  tensors.add_head("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight");
  const auto model = load_folder(context_, make_folder(temp_, "bert_hf", tensors));
  save_hf_folder(temp_.path() / "out", *model);
  const auto written = SafetensorsFile::open(temp_.path() / "out/model.safetensors");
  const TensorView first = written->view("cls.predictions.bias");
  const TensorView second = written->view("cls.predictions.decoder.bias");
  ASSERT_EQ(first.shape, second.shape);
  EXPECT_TRUE(std::equal(first.as<const float>(), first.as<const float>() + numel(first.shape),
                         second.as<const float>()));
  EXPECT_THAT(HfFolder::open(temp_.path() / "out").tie_notes(), IsEmpty());
  save_hf_folder(temp_.path() / "tied", *load_folder(context_, kGolden / "bert_hf"));
  EXPECT_FALSE(SafetensorsFile::open(temp_.path() / "tied/model.safetensors")
                   ->contains("cls.predictions.decoder.bias"));
}

}  // namespace
}  // namespace meshloom::train
