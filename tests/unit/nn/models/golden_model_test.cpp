// SPDX-License-Identifier: Apache-2.0
// Logits, loss and gradients against transformers in float64, in every mode of activation
// checkpointing.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "daemon/nn/models/model.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/train/files/hf_folder.h"
#include "tests/support/source_folder.h"
#include "tests/support/test_context.h"

namespace meshloom::nn {
namespace {

struct GoldenCase {
  std::string name;
  ActivationCheckpoint checkpoint = ActivationCheckpoint::kNone;
};

class GoldenModel : public ::testing::TestWithParam<GoldenCase> {};

Tensor load(ExecutionContext& context, const train::SafetensorsFile& file,
            const std::string& name) {
  if (!file.contains(name)) return {};
  const TensorView view = file.view(name);
  Tensor out = empty(context, view.shape, view.dtype);
  context.backend().copy_from_host(context.kernel_context(), out.view(), view);
  return out;
}

void expect_close(const Tensor& actual, const TensorView& expected, double atol, double rtol,
                  const std::string& what) {
  ASSERT_TRUE(actual.defined()) << what;
  ASSERT_EQ(actual.numel(), expected.numel()) << what;
  const std::vector<double> values = actual.to_vector();
  double worst = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double want = static_cast<double>(expected.as<float>()[i]);
    worst = std::max(worst, std::abs(values[i] - want) / (atol + rtol * std::abs(want)));
  }
  EXPECT_LE(worst, 1.0) << what << ": error / tolerance";
}

/// Labels that count, where causal models do not see the first position's.
std::int64_t counted_labels(const Tensor& labels, bool causal) {
  const std::vector<double> values = labels.to_vector();
  std::int64_t count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool first = static_cast<std::int64_t>(i) % labels.size(1) == 0;
    count += values[i] != -100.0 && !(causal && first);
  }
  return count;
}

TEST_P(GoldenModel, MatchesTransformers) {
  const std::string stem = test::source_file("tests/golden/model/") + GetParam().name;
  testing::TestContext context;
  const train::HfFolder folder = train::HfFolder::open(stem + "_hf");
  const auto model = make_model(context, folder.config(), DType::kFloat32);
  train::load_hf_weights(folder, *model);

  const auto golden = train::SafetensorsFile::open(stem + ".safetensors");
  Batch batch;
  batch.input_ids = load(context, *golden, "in.input_ids");
  batch.labels = load(context, *golden, "in.labels");
  batch.labels_shifted = false;
  batch.attention_mask = load(context, *golden, "in.attention_mask");
  batch.token_type_ids = load(context, *golden, "in.token_type_ids");
  batch.position_ids = load(context, *golden, "in.position_ids");
  const ForwardOptions options{.activation_checkpoint = GetParam().checkpoint};
  {
    const NoGradGuard no_grad(context);
    expect_close(model->logits(batch, options), golden->view("out.logits"), 2e-5, 1e-5, "logits");
  }
  const bool causal = folder.config().architecture != Architecture::kBert;
  const std::int64_t count = counted_labels(batch.labels, causal);
  const Tensor loss = model->loss(batch, 1.0f / static_cast<float>(count), options);
  expect_close(loss, golden->view("out.loss"), 2e-5, 1e-5, "loss");
  autograd::backward(loss);

  double squares = 0.0;
  std::size_t compared = 0;
  for (const NamedParameter& p : model->named_parameters()) {
    const Tensor grad = p.parameter->value.grad();
    ASSERT_TRUE(grad.defined()) << p.name;
    for (double g : grad.to_vector()) squares += g * g;
    if (!golden->contains("grad.param." + p.name)) continue;
    ++compared;
    expect_close(grad, golden->view("grad.param." + p.name), 2e-6, 1e-4, p.name);
  }
  EXPECT_GE(compared, 8u);
  EXPECT_NEAR(std::sqrt(squares), golden->view("out.grad_norms").as<float>()[0], 1e-4);
}

std::vector<GoldenCase> all_cases() {
  std::vector<GoldenCase> cases;
  for (const char* name :
       {"gpt2", "gpt2_s23", "llama", "llama3_rope_tied", "llama_old_config", "qwen2",
        "qwen2_window", "mistral", "mistral_whole", "mistral_yarn", "qwen3", "qwen3_window",
        "gemma3", "llama_dynamic", "bert", "bert_padded"})
    for (auto mode : {ActivationCheckpoint::kNone, ActivationCheckpoint::kSelective,
                      ActivationCheckpoint::kFull})
      cases.push_back({name, mode});
  return cases;
}

std::string case_name(const ::testing::TestParamInfo<GoldenCase>& info) {
  constexpr const char* kModes[] = {"none", "selective", "full"};
  return info.param.name + "_" + kModes[static_cast<int>(info.param.checkpoint)];
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModel, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace meshloom::nn
