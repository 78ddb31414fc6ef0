// SPDX-License-Identifier: Apache-2.0
// What a generation asks a device for: one wait a pass, which tells of wrong ids too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "daemon/nn/generate.h"
#include "kernels/base/error.h"
#include "tests/support/fenced_device/fenced_device.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::nn {
namespace {

using meshloom::testing::make_random_model;
using ::testing::HasSubstr;

ExecutionContext::Options on_fenced_device() {
  ExecutionContext::Options options;
  options.device = {DeviceKind::kCuda, 0};
  options.backend = &meshloom::testing::fenced_device(0);
  return options;
}

ModelConfig with_long_context(ModelConfig config) {
  config.max_position_embeddings = 400;
  return config;
}

GenerateSequence greedy_sequence(std::int64_t prompt, std::int64_t tokens) {
  GenerateSequence sequence;
  for (std::int64_t i = 0; i < prompt; ++i) sequence.prompt.push_back((5 * i + 3) % 37);
  sequence.options.sampling.temperature = 0.0;
  sequence.options.max_tokens = tokens;
  return sequence;
}

/// What is wrong with a pass of the model, as its first `advance` tells.
std::string refusal(Model& model, std::int64_t prompt) {
  Generation generation(model, {greedy_sequence(prompt, 3)});
  try {
    generation.advance();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing";
}

TEST(GenerateChecks, APassWaitsForTheDeviceOnce) {
  meshloom::testing::FencedBackend& device = meshloom::testing::fenced_device(0);
  // Several passes of a prompt, several sequences in one pass, one that goes on alone.
  const std::vector<GenerateSequence> sequences{greedy_sequence(150, 5), greedy_sequence(7, 9),
                                                greedy_sequence(3, 2)};
  for (ModelConfig (*config)() : {&meshloom::testing::tiny_gpt2, &meshloom::testing::tiny_llama,
                                  &meshloom::testing::tiny_qwen3}) {
    ExecutionContext cpu, context(on_fenced_device());
    const auto expected = make_random_model(cpu, with_long_context(config()));
    const auto model = make_random_model(context, with_long_context(config()));
    Generation on_cpu(*expected, sequences), generation(*model, sequences);
    std::size_t passes = 0;
    for (; !generation.done(); ++passes) {
      device.reset_counts();
      const std::vector<GeneratedToken> tokens = generation.advance();
      EXPECT_EQ(device.counts().waits, 1) << "pass " << passes;
      const std::vector<GeneratedToken> same = on_cpu.advance();
      ASSERT_EQ(tokens.size(), same.size());
      for (std::size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i].id, same[i].id);
    }
    EXPECT_GT(passes, 9u);
    EXPECT_TRUE(on_cpu.done());
  }
}

TEST(GenerateChecks, AnIdThatTheModelDoesNotHaveIsNamed) {
  for (const ExecutionContext::Options& options :
       {ExecutionContext::Options(), on_fenced_device()}) {
    ExecutionContext context(options);
    const auto model =
        make_random_model(context, with_long_context(meshloom::testing::tiny_gpt2()));
    EXPECT_EQ(refusal(*model, 4), "nothing");
    model->add_hook(
        {[&](std::span<Tensor> inputs) {
           std::vector<std::int64_t> ids(static_cast<std::size_t>(inputs[0].numel()), 1);
           ids[2] = 37;
           inputs[0] = from_values(context, inputs[0].shape(), std::span<const std::int64_t>(ids));
         },
         {}});
    const char* text = "embedding: id at element 2 is 37, outside [0, 37)";
    EXPECT_THAT(refusal(*model, 4), HasSubstr(text));
    EXPECT_THAT(refusal(*model, 200), HasSubstr(text)) << "a part of a prompt";
  }
}

TEST(GenerateChecks, AModelThatHasDivergedHasTheIds) {
  for (const ExecutionContext::Options& options :
       {ExecutionContext::Options(), on_fenced_device()}) {
    ExecutionContext context(options);
    const auto model = make_random_model(context, meshloom::testing::tiny_gpt2());
    for (const NamedParameter& p : model->named_parameters())
      context.backend().fill(context.kernel_context(), p.parameter->value.view(), NAN);
    Generation generation(*model, {greedy_sequence(4, 3)});
    EXPECT_THROW(generation.advance(), NumericError);
  }
}

}  // namespace
}  // namespace meshloom::nn
