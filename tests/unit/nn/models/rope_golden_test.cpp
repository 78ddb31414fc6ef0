// SPDX-License-Identifier: Apache-2.0
// Losses below and far above the length that a model was trained on, and greedy tokens across it,
// against transformers in float32 for each scaling of rotary embedding (tests/golden/rope).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "daemon/nn/generate.h"
#include "daemon/nn/models/model.h"
#include "daemon/tensor/ops/shape.h"
#include "daemon/train/files/hf_folder.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_context.h"

namespace meshloom::nn {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kFolder = test::source_file("tests/golden/rope");

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

const Json& golden() {
  static const Json json = read_json(kFolder / "cases.json");
  return json;
}

class GoldenRope : public ::testing::TestWithParam<Json> {
 protected:
  void SetUp() override {
    Json config = read_json(kFolder / "model/config.json");
    config.update(GetParam()["config"]);
    folder_.write("config.json", config.dump());
    fs::copy_file(kFolder / "model/model.safetensors", folder_ / "model.safetensors");
    const train::HfFolder folder = train::HfFolder::open(folder_.path());
    model_ = make_model(context_, folder.config(), DType::kFloat32);
    train::load_hf_weights(folder, *model_);
  }

  Tensor ids(std::int64_t length) {
    std::vector<std::int64_t> values;
    for (const Json& row : golden()["ids"])
      for (std::int64_t i = 0; i < length; ++i)
        values.push_back(row[static_cast<std::size_t>(i)].get<std::int64_t>());
    return from_values(context_, {2, length}, std::span<const std::int64_t>(values));
  }

  double loss(const Batch& batch) {
    const NoGradGuard no_grad(context_);
    const std::int64_t count = batch.input_ids.size(0) * (batch.input_ids.size(1) - 1);
    return model_->loss(batch, 1.0f / static_cast<float>(count), {}).item();
  }

  GenerateSequence sequence(const Json& greedy) const {
    const auto row = greedy["prompt"][0].get<std::size_t>();
    const auto length = greedy["prompt"][1].get<std::size_t>();
    GenerateSequence given;
    for (std::size_t i = 0; i < length; ++i)
      given.prompt.push_back(golden()["ids"][row][i].get<std::int64_t>());
    given.options.max_tokens = static_cast<std::int64_t>(greedy["tokens"].size());
    given.options.sampling.temperature = 0.0;
    return given;
  }

  std::vector<std::vector<std::int64_t>> generate(std::vector<GenerateSequence> sequences) {
    std::vector<std::vector<std::int64_t>> tokens(sequences.size());
    Generation generation(*model_, std::move(sequences));
    while (!generation.done())
      for (const GeneratedToken& token : generation.advance())
        tokens[token.sequence].push_back(token.id);
    return tokens;
  }

  test::TempFolder folder_;
  testing::TestContext context_;
  std::unique_ptr<Model> model_;
};

TEST_P(GoldenRope, Losses) {
  for (const Json& golden_loss : GetParam()["losses"]) {
    const auto length = golden_loss[0].get<std::int64_t>();
    const double want = golden_loss[1].get<double>();
    Batch batch;
    batch.input_ids = batch.labels = ids(length);
    batch.labels_shifted = false;
    EXPECT_NEAR(loss(batch), want, 1e-6 * want) << length << " tokens";
    // Positions that are given, as where a sequence lies on several ranks.
    std::vector<std::int64_t> positions(static_cast<std::size_t>(2 * length));
    std::iota(positions.begin(), positions.begin() + length, 0);
    std::iota(positions.begin() + length, positions.end(), 0);
    batch.position_ids =
        from_values(context_, {2, length}, std::span<const std::int64_t>(positions));
    EXPECT_NEAR(loss(batch), want, 1e-6 * want) << length << " tokens with positions";
  }
}

TEST_P(GoldenRope, GreedyTokens) {
  std::vector<GenerateSequence> all;
  std::vector<std::vector<std::int64_t>> want;
  for (const Json& greedy : GetParam()["greedy"]) {
    all.push_back(sequence(greedy));
    want.push_back(greedy["tokens"].get<std::vector<std::int64_t>>());
    EXPECT_EQ(generate({all.back()})[0], want.back()) << greedy["prompt"];
  }
  EXPECT_EQ(generate(all), want) << "both at once";
}

TEST_P(GoldenRope, IsWrittenAsItWasRead) {
  const ModelConfig& config = model_->config();
  EXPECT_TRUE(config.unread_keys.empty()) << config.unread_keys.front().name;
  const ModelConfig again = parse_hf_config(to_hf_config(config));
  EXPECT_EQ(again.rope_scaling, config.rope_scaling);
  EXPECT_EQ(again.rope_theta, config.rope_theta);
  EXPECT_EQ(again.context_length(), config.context_length());
  EXPECT_TRUE(again.unread_keys.empty()) << again.unread_keys.front().name;
}

std::vector<Json> cases() { return {golden()["cases"].begin(), golden()["cases"].end()}; }

INSTANTIATE_TEST_SUITE_P(All, GoldenRope, ::testing::ValuesIn(cases()),
                         [](const ::testing::TestParamInfo<Json>& tested) {
                           return tested.param["name"].get<std::string>();
                         });

}  // namespace
}  // namespace meshloom::nn
