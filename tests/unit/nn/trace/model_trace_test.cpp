// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/trace/model_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "daemon/nn/models/presets.h"
#include "daemon/nn/module_shape.h"
#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

using planner::GraphStep;
using planner::GraphStepKind;
using planner::GraphTensor;
using planner::ModelGraph;
using planner::OpId;
using ::testing::ElementsAre;

const GraphTensor& tensor(const ModelGraph& graph, int name) {
  return graph.tensors[static_cast<std::size_t>(name)];
}

std::map<OpId, int> ops_of(const ModelGraph& graph) {
  std::map<OpId, int> counts;
  for (const GraphStep& step : graph.steps)
    if (step.kind == GraphStepKind::kOp) ++counts[step.op];
  return counts;
}

const GraphStep& first_of(const ModelGraph& graph, OpId op) {
  return *std::find_if(graph.steps.begin(), graph.steps.end(), [op](const GraphStep& step) {
    return step.kind == GraphStepKind::kOp && step.op == op;
  });
}

TEST(ModelTrace, HasTheOpsOfGpt2WithTheirShapes) {
  ModelConfig config = preset_config("gpt2_124m");
  config.num_layers = 3;
  ModelTrace trace(config);
  const ModelGraph graph = trace.loss(2, 16);
  EXPECT_EQ(graph.rows, 2);
  EXPECT_EQ(graph.tokens, 16);
  std::map<OpId, int> ops = ops_of(graph);
  EXPECT_EQ(ops[OpId::kLinear], 3 * 4);
  EXPECT_EQ(ops[OpId::kAttention], 3);
  // The first norm has nothing to add.
  EXPECT_EQ(ops[OpId::kNorm], 1);
  EXPECT_EQ(ops[OpId::kAddNorm], 3 * 2);
  EXPECT_EQ(ops[OpId::kEmbedding], 2);
  EXPECT_EQ(ops[OpId::kLinearCrossEntropy], 1);
  EXPECT_EQ(ops.count(OpId::kUnary), 0u) << "GELU is the product's";
  const GraphStep& attention = first_of(graph, OpId::kAttention);
  EXPECT_TRUE(attention.causal);
  EXPECT_EQ(attention.window, 0);
  EXPECT_EQ(attention.attributes.ints[0], 0) << "a gradient will be wanted";
  EXPECT_EQ(tensor(graph, attention.outputs[0]).shape, (Shape{2, 12, 16, 64}));
  EXPECT_EQ(tensor(graph, attention.outputs[1]).element_bytes, 4) << "log of sums";
  const GraphStep& loss = first_of(graph, OpId::kLinearCrossEntropy);
  EXPECT_TRUE(tensor(graph, loss.inputs[1]).is_parameter());
  EXPECT_EQ(trace.modules().at(tensor(graph, loss.inputs[1]).module).name, "transformer.wte")
      << "the weight is tied";
  const auto activated = std::count_if(graph.steps.begin(), graph.steps.end(),
                                       [](const GraphStep& step) { return step.input_activation; });
  EXPECT_EQ(activated, 3);
}

TEST(ModelTrace, NotesWhatCostsDependOn) {
  ModelConfig config = preset_config("llama_debug");
  config.sliding_window = 5;
  config.windowed_layers = {true, false};
  config.num_layers = 2;
  ModelTrace windows(config);
  std::vector<std::int64_t> seen;
  const ModelGraph windowed = windows.loss(1, 8);
  for (const GraphStep& step : windowed.steps)
    if (step.kind == GraphStepKind::kOp && step.op == OpId::kAttention) seen.push_back(step.window);
  EXPECT_THAT(seen, ElementsAre(5, 0));
  ModelConfig relu = preset_config("byte_gpt_tiny"), silu = relu, bert = preset_config("bert_base");
  relu.activation = ActivationKind::kRelu;
  silu.activation = ActivationKind::kSilu;
  bert.num_layers = 1;
  EXPECT_TRUE(first_of(ModelTrace(relu).loss(1, 8), OpId::kUnary).keeps_output);
  EXPECT_FALSE(first_of(ModelTrace(silu).loss(1, 8), OpId::kUnary).keeps_output);
  EXPECT_FALSE(first_of(ModelTrace(bert).loss(1, 8), OpId::kAttention).causal);
}

// Every module begins and ends once, the inner ones inside the outer ones, and what runs in between
// belongs to it.
TEST(ModelTrace, NotesModulesAsTheyAreNested) {
  for (const char* preset : {"gpt2_124m", "llama_debug", "bert_base"}) {
    ModelConfig config = preset_config(preset);
    config.num_layers = 2;
    ModelTrace trace(config);
    std::vector<std::pair<int, int>> inside;
    std::map<std::pair<int, int>, int> entered;
    for (const GraphStep& step : trace.loss(1, 8).steps) {
      const std::pair place{step.module, step.layer};
      if (step.kind == GraphStepKind::kEnter) {
        inside.push_back(place);
        ++entered[place];
        EXPECT_LE(step.inputs.size(), trace.modules().at(step.module).inputs.size());
        EXPECT_EQ(step.inputs.size(), step.outputs.size());
        continue;
      }
      EXPECT_EQ(place, inside.empty() ? std::pair(-1, -1) : inside.back());
      if (step.kind == GraphStepKind::kLeave) inside.pop_back();
    }
    EXPECT_TRUE(inside.empty());
    for (const auto& [place, count] : entered) EXPECT_EQ(count, 1) << preset;
    const planner::ModelModules& all = trace.modules();
    EXPECT_EQ(entered.size(), all.before.size() + 2 * all.block.size() + all.after.size());
  }
}

TEST(ModelTrace, KnowsTheModulesAndParametersOfTheModel) {
  for (const std::string& preset : preset_names()) {
    const ModelConfig config = preset_config(preset);
    ExecutionContext context;
    const DeferParametersGuard defer(context);
    const auto model = make_model(context, config, DType::kFloat32);
    std::vector<std::string> modules, parameters;
    for (const NamedModule& module : model->named_modules()) modules.push_back(module.name);
    for (const NamedParameter& p : model->named_parameters()) parameters.push_back(p.name);
    ModelTrace trace(config);
    EXPECT_EQ(planner::module_names(trace.modules()), modules) << preset;
    EXPECT_EQ(planner::parameter_names(trace.modules()), parameters) << preset;
    EXPECT_EQ(planner::parameter_count(trace.modules()), parameter_count(config)) << preset;
  }
}

TEST(ModelTrace, ATensorIsReleasedWhenNobodyHoldsIt) {
  ModelTrace trace(preset_config("byte_gpt_tiny"));
  const ModelGraph graph = trace.loss(1, 8);
  for (std::size_t i = 0; i < graph.steps.size(); ++i) {
    for (const int name : graph.steps[i].inputs) {
      if (name < 0 || tensor(graph, name).is_parameter()) continue;
      EXPECT_GT(tensor(graph, name).released, static_cast<int>(i)) << "is used";
    }
    for (const int name : graph.steps[i].outputs) {
      if (name >= 0) {
        EXPECT_EQ(tensor(graph, name).made, static_cast<int>(i));
      }
    }
  }
  // What the attention reads is gone before the block ends.
  const GraphStep& attention = first_of(graph, OpId::kAttention);
  const auto leave = std::find_if(graph.steps.begin(), graph.steps.end(), [](const GraphStep& s) {
    return s.kind == GraphStepKind::kLeave && s.layer == 0 && s.outputs.size() == 2 &&
           s.module == 2;
  });
  EXPECT_LT(tensor(graph, attention.inputs[0]).released, leave - graph.steps.begin());
}

TEST(ModelTrace, TracesOnceMoreForOtherSizesAndRefusesWhatTheModelDoes) {
  ModelTrace trace(preset_config("byte_gpt_tiny"));
  const ModelGraph first = trace.loss(1, 8), second = trace.loss(3, 5);
  EXPECT_EQ(first.steps.size(), second.steps.size());
  EXPECT_EQ(tensor(second, first_of(second, OpId::kAddNorm).outputs[0]).shape[0], 3);
  EXPECT_THROW(trace.loss(1, 1 << 20), InvalidArgument);
  EXPECT_EQ(trace.loss(1, 8).steps.size(), first.steps.size()) << "after one that failed";
}

}  // namespace
}  // namespace meshloom::nn
