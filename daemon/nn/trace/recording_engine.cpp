// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/trace/recording_engine.h"

#include <algorithm>
#include <utility>

#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/matmul.h"
#include "planner/sharding/propagate.h"

namespace meshloom::nn {
namespace {

using planner::GraphStep;
using planner::GraphStepKind;
using planner::GraphTensor;
using planner::OpId;
using planner::SpecPtr;

/// Whose derivative is a function of what they give (daemon/tensor/ops/elementwise).
bool keeps_output(const kernels::UnaryOp* op) {
  using enum kernels::UnaryOp;
  if (op == nullptr) return false;
  switch (*op) {
    case kExp:
    case kTanh:
    case kSqrt:
    case kRsqrt:
    case kRelu:
    case kSigmoid: return true;
    default: return false;
  }
}

/// What costs depend on and layouts do not.
void note_options(const OpOptions& options, GraphStep& step) {
  if (const auto* linear = options.find<ops::LinearOptions>())
    step.input_activation = linear->input_activation != ops::Activation::kNone;
  if (const auto* attention = options.find<ops::SdpaOptions>()) {
    step.causal = attention->is_causal;
    step.window = std::max<std::int64_t>(0, attention->window_left + 1);
  }
  step.keeps_output = keeps_output(options.find<kernels::UnaryOp>());
}

DType result_dtype(const planner::OpCall& call, std::span<const Tensor* const> inputs,
                   std::size_t output) {
  const bool sums = call.op == OpId::kLinearCrossEntropy ||
                    (call.op == OpId::kAttention && output == 1);  // log of sums of exponentials
  if (sums) return DType::kFloat32;
  const bool elementwise = call.op == OpId::kUnary || call.op == OpId::kUnaryLinear;
  if (elementwise && call.attributes.ints[0] > 0)
    return static_cast<DType>(call.attributes.ints[0] - 1);
  DType dtype = DType::kInt64;
  for (const Tensor* x : inputs)
    if (*x && dtype == DType::kInt64) dtype = x->dtype();
  return dtype;
}

}  // namespace

std::size_t RecordingEngine::KeyHash::operator()(const std::vector<std::int64_t>& key) const {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::int64_t value : key)
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3u;
  return hash ^ (hash >> 32);
}

RecordingEngine::RecordingEngine(ExecutionContext& context)
    : context_(context),
      mesh_(std::make_shared<const planner::MeshLayout>(std::vector<planner::MeshDim>{{"tp", 1}})) {
}

Tensor RecordingEngine::make(const SpecPtr& spec, DType dtype) {
  Tensor& local = locals_[static_cast<int>(dtype)];
  if (!local) {
    local = deferred(context_, {1}, dtype);
    if (dtype_is_floating(dtype)) local.set_requires_grad(true);
  }
  return with_interned_layout(local, spec, *this);
}

Tensor RecordingEngine::input(const Shape& shape, DType dtype) {
  return make(std::make_shared<const planner::DTensorSpec>(mesh_, planner::Placements(1), shape),
              dtype);
}

Tensor RecordingEngine::parameter(const Tensor& value, int module, int index) {
  const Tensor x = input(value.shape(), value.dtype());
  parameters_[x.impl().get()] = {
      .shape = value.shape(), .recorded = true, .module = module, .parameter = index};
  return x;
}

int RecordingEngine::add(const Tensor& x, GraphTensor tensor) {
  const int name = static_cast<int>(graph_.tensors.size());
  if (x.dtype() == DType::kInt64) tensor.element_bytes = 8;
  if (x.dtype() == DType::kFloat32) tensor.element_bytes = 4;
  if (!tensor.is_parameter()) live_.push_back({x.impl().get(), x.impl(), name});
  graph_.tensors.push_back(std::move(tensor));
  return name;
}

int RecordingEngine::name_of(const Tensor& x) {
  const TensorImpl* impl = x.impl().get();
  if (const auto found = parameters_.find(impl); found != parameters_.end()) {
    const auto [known, is_new] = names_.try_emplace(impl);
    if (is_new) known->second = add(x, found->second);
    return known->second;
  }
  // No tensor that is gone is left here: release() comes before.
  const auto found = std::find_if(live_.rbegin(), live_.rend(),
                                  [&](const Live& live) { return live.address == impl; });
  return found != live_.rend() ? found->name : add(x, {.shape = x.shape()});
}

void RecordingEngine::release() {
  std::erase_if(live_, [&](const Live& live) {
    if (!live.tensor.expired()) return false;
    graph_.tensors[static_cast<std::size_t>(live.name)].released =
        static_cast<int>(graph_.steps.size());
    return true;
  });
}

GraphStep& RecordingEngine::step(GraphStepKind kind) {
  GraphStep& step = graph_.steps.emplace_back();
  step.kind = kind;
  if (!places_.empty()) {
    step.module = places_.back().module;
    step.layer = places_.back().layer;
  }
  return step;
}

void RecordingEngine::border(GraphStepKind kind, std::span<Tensor> tensors) {
  release();
  const int made = static_cast<int>(graph_.steps.size());
  std::vector<int> inputs, outputs;
  for (Tensor& x : tensors) {
    const int name = x ? name_of(x) : -1;
    inputs.push_back(name);
    outputs.push_back(-1);
    if (!x) continue;
    GraphTensor tensor = graph_.tensors[static_cast<std::size_t>(name)];
    tensor.made = made;
    x = make(x.layout()->spec, x.dtype());
    outputs.back() = add(x, std::move(tensor));
  }
  GraphStep& border = step(kind);
  border.inputs = std::move(inputs);
  border.outputs = std::move(outputs);
}

void RecordingEngine::enter(int module, int layer, std::span<Tensor> inputs) {
  places_.push_back({module, layer});
  border(GraphStepKind::kEnter, inputs);
}

void RecordingEngine::leave(std::span<Tensor> outputs) {
  border(GraphStepKind::kLeave, outputs);
  places_.pop_back();
}

planner::ModelGraph RecordingEngine::take() {
  release();
  for (const Live& live : live_)
    graph_.tensors[static_cast<std::size_t>(live.name)].released =
        static_cast<int>(graph_.steps.size());
  live_.clear();
  names_.clear();
  places_.clear();
  return std::exchange(graph_, {});
}

const std::vector<SpecPtr>& RecordingEngine::outputs_of(const planner::OpCall& call) {
  std::vector<std::int64_t> key{static_cast<std::int64_t>(call.op)};
  key.insert(key.end(), call.attributes.ints.begin(), call.attributes.ints.end());
  key.insert(key.end(), call.attributes.dims.begin(), call.attributes.dims.end());
  for (const SpecPtr& x : call.inputs) {
    key.push_back(x ? x->shape().size() : -1);
    if (x) key.insert(key.end(), x->shape().begin(), x->shape().end());
  }
  const auto [known, is_new] = known_.try_emplace(std::move(key));
  if (is_new) known->second = planner::propagate(call, {}, &plans_).outputs;
  return known->second;
}

std::vector<Tensor> RecordingEngine::run(OpId op, std::span<const Tensor* const> inputs,
                                         const planner::OpAttributes& attributes, OpOptions options,
                                         const LocalOp&) {
  release();
  planner::OpCall call{op, {}, attributes};
  std::vector<int> names;
  bool recorded = false;
  for (const Tensor* x : inputs) {
    names.push_back(*x ? name_of(*x) : -1);
    call.inputs.push_back(!*x               ? nullptr
                          : x->has_layout() ? x->layout()->spec
                                            : input(x->shape(), x->dtype()).layout()->spec);
    recorded = recorded || (*x && graph_.tensors[static_cast<std::size_t>(names.back())].recorded);
  }
  const int made = static_cast<int>(graph_.steps.size());
  std::vector<Tensor> results;
  std::vector<int> outputs;
  for (const SpecPtr& spec : outputs_of(call)) {
    results.push_back(make(spec, result_dtype(call, inputs, results.size())));
    outputs.push_back(
        add(results.back(), {.shape = spec->shape(), .recorded = recorded, .made = made}));
  }
  GraphStep& noted = step(GraphStepKind::kOp);
  noted.op = op;
  noted.attributes = attributes;
  noted.inputs = std::move(names);
  noted.outputs = std::move(outputs);
  note_options(options, noted);
  return results;
}

}  // namespace meshloom::nn
