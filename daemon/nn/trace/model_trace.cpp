// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/trace/model_trace.h"

#include <unordered_map>

#include "daemon/nn/module_shape.h"
#include "daemon/nn/trace/no_backend.h"

namespace meshloom::nn {
namespace {

ExecutionContext::Options without_device() {
  ExecutionContext::Options options;
  options.backend = &no_backend();
  return options;
}

struct Number {
  int module, layer;
};

/// The number and the layer of each module, by its name.
std::unordered_map<std::string, Number> numbers_of(const planner::ModelModules& modules) {
  std::unordered_map<std::string, Number> numbers;
  const auto add = [&](const std::vector<planner::ModuleShape>& list, int first, int layer) {
    for (const planner::ModuleShape& module : list)
      numbers[planner::full_name(modules, module.name, layer)] = {first++, layer};
  };
  const auto before = static_cast<int>(modules.before.size());
  add(modules.before, 0, -1);
  for (int layer = 0; layer < static_cast<int>(modules.layers); ++layer)
    add(modules.block, before, layer);
  add(modules.after, before + static_cast<int>(modules.block.size()), -1);
  return numbers;
}

planner::ModelModules modules_of(Model& model) {
  std::vector<planner::ModuleShape> shapes;
  for (const NamedModule& module : model.named_modules())
    if (!module.name.empty()) shapes.push_back(module_shape(module));
  return planner::sort_modules(std::move(shapes));
}

}  // namespace

ModelTrace::ModelTrace(const ModelConfig& config)
    : context_(without_device()),
      defer_(context_),
      engine_(context_),
      model_(make_model(context_, config, DType::kBFloat16)),
      modules_(modules_of(*model_)) {
  const std::unordered_map<std::string, Number> numbers = numbers_of(modules_);
  for (const NamedModule& module : model_->named_modules()) {
    if (module.name.empty()) continue;
    const Number number = numbers.at(module.name);
    watch(*module.module, number.module, number.layer);
  }
}

ModelTrace::~ModelTrace() = default;

void ModelTrace::watch(Module& module, int number, int layer) {
  int index = 0;
  for (const NamedParameter& own : module.own_parameters())
    own.parameter->value = engine_.parameter(own.parameter->value, number, index++);
  module.add_hook(
      {[this, number, layer](std::span<Tensor> inputs) { engine_.enter(number, layer, inputs); },
       [this](std::span<Tensor> outputs) { engine_.leave(outputs); }});
}

planner::ModelGraph ModelTrace::loss(std::int64_t rows, std::int64_t tokens) {
  engine_.take();
  {
    Batch batch;
    batch.input_ids = engine_.input({rows, tokens}, DType::kInt64);
    batch.labels = engine_.input({rows, tokens}, DType::kInt64);
    model_->loss(batch, 1.0f, {.training = true});
  }
  planner::ModelGraph graph = engine_.take();
  graph.rows = rows;
  graph.tokens = tokens;
  return graph;
}

}  // namespace meshloom::nn
