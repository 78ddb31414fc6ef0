// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/model_pass.h"

#include <algorithm>

#include "kernels/base/integer_math.h"

namespace meshloom::planner {
namespace {

double to_double(std::int64_t n) { return static_cast<double>(n); }

/// All but the last dim.
std::int64_t rows_of(const Shape& shape) {
  return numel(shape) / std::max<std::int64_t>(1, shape.back());
}

class Walk {
 public:
  Walk(const ModelGraph& graph, const ModelModules& modules, const StyledModel& styled)
      : graph_(graph), modules_(modules), pass_(styled.mesh), tensors_(graph.tensors.size()) {
    for (const auto* list : {&styled.before, &styled.block, &styled.after})
      for (const StyledModule& module : *list) styled_.push_back(&module);
    result_.graph = &graph;
    result_.steps.resize(graph.steps.size());
  }

  ModelPass run();

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  bool take(const GraphRun& run);
  void carry(const GraphRun& run);
  void border(const GraphStep& step, PassStep& noted);
  void op(const GraphStep& step, PassStep& noted);
  PassTensorPtr input(int name, const TensorLabel& label);
  TensorLabel label_of(const GraphStep& step, const std::vector<PassTensorPtr>& inputs) const;
  void exchange_losses(const PassResult& result, const TensorLabel& label);

  void join_loss();
  void count(const GraphRun& run, std::int64_t times);
  void count_product(const GraphRun& run, std::size_t i, double times);
  void count_attention(std::size_t i, std::int64_t times);
  void count_loss(const GraphStep& step, const PassStep& noted);
  const Shape& whole(int name) const { return graph_.tensors[index(name)].shape; }

  const ModelGraph& graph_;
  const ModelModules& modules_;
  LayoutPass pass_;
  std::vector<const StyledModule*> styled_;  ///< by number
  std::vector<PassTensorPtr> tensors_;       ///< by the graph's names
  ModelPass result_;
};

PassTensorPtr Walk::input(int name, const TensorLabel& label) {
  if (name < 0) return nullptr;
  PassTensorPtr& known = tensors_[index(name)];
  if (known) return known;
  const GraphTensor& tensor = graph_.tensors[index(name)];
  if (!tensor.is_parameter()) {
    known = pass_.input(pass_.whole(tensor.shape), label, tensor.recorded);
    return known;
  }
  const StyledModule& module = *styled_[index(tensor.module)];
  const ModelParameter& p = module.parameters[index(tensor.parameter)];
  known = pass_.parameter(p.spec, p.summands,
                          {.module = module.shape.name,
                           .parameter = module.shape.parameters[index(tensor.parameter)].name,
                           .of_block = modules_.is_block(tensor.module)});
  return known;
}

/// What only reshapes or chooses has the name of what it takes.
TensorLabel Walk::label_of(const GraphStep& step, const std::vector<PassTensorPtr>& inputs) const {
  const auto recorded = [](const PassTensorPtr& x) { return x && x->recorded && !x->leaf; };
  const auto first = std::find_if(inputs.begin(), inputs.end(), recorded);
  const bool joins = std::count_if(inputs.begin(), inputs.end(), recorded) > 1;
  const bool has_parameters = std::any_of(inputs.begin(), inputs.end(),
                                          [](const PassTensorPtr& x) { return x && x->leaf; });
  if (first != inputs.end() && !has_parameters && (step.module < 0 || !joins))
    return (*first)->label;
  if (step.module < 0) return {};
  return {.module = modules_.at(step.module).name,
          .parameter = {},
          .of_block = modules_.is_block(step.module)};
}

void Walk::border(const GraphStep& step, PassStep& noted) {
  const StyledModule& module = *styled_[index(step.module)];
  std::vector<PassTensorPtr> tensors;
  for (const int name : step.inputs) {
    tensors.push_back(input(name, {}));
    noted.inputs.push_back(tensors.back()
                               ? PlacedInput{tensors.back()->local, tensors.back()->storage}
                               : PlacedInput{});
  }
  for (const StyleAction& action : module.actions) {
    const auto& rules = step.kind == GraphStepKind::kEnter ? action.inputs : action.outputs;
    for (std::size_t i = 0; i < std::min(rules.size(), tensors.size()); ++i)
      tensors[i] = pass_.apply(rules[i], tensors[i]);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (step.outputs[i] >= 0) tensors_[index(step.outputs[i])] = tensors[i];
    noted.outputs.push_back(tensors[i] ? tensors[i]->local : Shape{});
    noted.storages.push_back(tensors[i] ? tensors[i]->storage : -1);
  }
}

void Walk::op(const GraphStep& step, PassStep& noted) {
  std::vector<PassTensorPtr> inputs;
  for (const int name : step.inputs) inputs.push_back(input(name, {}));
  // No activation of summands is a sum of activations.
  if (step.input_activation && inputs[0]->spec && inputs[0]->spec->has_partial())
    inputs[0] = pass_.run(OpId::kUnary, {inputs[0]}, {}, inputs[0]->label).outputs[0];
  const TensorLabel label = label_of(step, inputs);
  PassResult result = pass_.run(step.op, inputs, step.attributes, label);
  for (std::size_t i = 0; i < step.outputs.size(); ++i) {
    const PassTensorPtr& output = result.outputs[i];
    tensors_[index(step.outputs[i])] = output;
    noted.outputs.push_back(output->local);
    noted.storages.push_back(output->storage);
  }
  if (step.op == OpId::kLinearCrossEntropy) exchange_losses(result, label);
  noted.inputs = std::move(result.inputs);
}

/// Over a sharded vocabulary: what each rank knows of each token's loss, two floats.
void Walk::exchange_losses(const PassResult& result, const TensorLabel& label) {
  if (!result.decision.has(MeshRole::kVocabulary) || pass_.dims().parts() == 1) return;
  const std::int64_t own = 2 * rows_of(result.inputs[0].local);
  pass_.note({.kind = CollectiveKind::kAllGather,
              .label = label,
              .elements = own * pass_.dims().parts(),
              .own = own,
              .element_bytes = 4});
}

void Walk::carry(const GraphRun& run) {
  std::vector<PassTensorPtr> left;
  for (const auto& [from, to] : run.carried) left.push_back(tensors_[index(from)]);
  for (std::size_t i = 0; i < left.size(); ++i) tensors_[index(run.carried[i].second)] = left[i];
}

/// Whether a further time takes what this one took.
bool Walk::take(const GraphRun& run) {
  for (std::size_t i = run.begin; i < run.end; ++i) {
    // Every layer has parameters of its own.
    for (const int name : graph_.steps[i].inputs)
      if (run.is_block && name >= 0 && modules_.is_block(graph_.tensors[index(name)].module))
        tensors_[index(name)] = nullptr;
  }
  for (std::size_t i = run.begin; i < run.end; ++i) {
    const GraphStep& step = graph_.steps[i];
    PassStep& noted = result_.steps[i] = {};
    step.kind == GraphStepKind::kOp ? op(step, noted) : border(step, noted);
  }
  return std::all_of(run.carried.begin(), run.carried.end(), [&](const auto& pair) {
    return *tensors_[index(pair.first)]->spec == *tensors_[index(pair.second)]->spec;
  });
}

void Walk::count_product(const GraphRun& run, std::size_t i, double times) {
  const GraphStep& step = graph_.steps[i];
  const PassStep& noted = result_.steps[i];
  const double tokens = to_double(graph_.rows * graph_.tokens);
  const double local = times * to_double(numel(noted.inputs[1].local)) *
                       (to_double(rows_of(noted.inputs[0].local)) / tokens);
  const double all = times * to_double(numel(whole(step.inputs[1]))) *
                     (to_double(rows_of(whole(step.inputs[0]))) / tokens);
  (run.is_block ? result_.work.in_blocks : result_.work.outside) += local;
  (run.is_block ? result_.whole_work.in_blocks : result_.whole_work.outside) += all;
}

void Walk::count_attention(std::size_t i, std::int64_t times) {
  const GraphStep& step = graph_.steps[i];
  const PassStep& noted = result_.steps[i];
  const double tokens = to_double(graph_.rows * graph_.tokens);
  AttentionWork work{times, step.causal, step.window, to_double(numel(noted.outputs[0])) / tokens};
  result_.work.attention.push_back(work);
  work.features = to_double(numel(whole(step.outputs[0]))) / tokens;
  result_.whole_work.attention.push_back(work);
  const Shape &q = noted.inputs[0].local, &k = noted.inputs[1].local;
  std::int64_t attended = numel(q) + numel(k) + numel(noted.inputs[2].local);
  attended += 2 * copied_key_elements(graph_, i, noted);
  result_.attended = std::max(result_.attended, attended);
}

void Walk::count_loss(const GraphStep& step, const PassStep& noted) {
  result_.loss_rows = std::max(result_.loss_rows, rows_of(noted.inputs[0].local));
  result_.vocab = std::max(result_.vocab, noted.inputs[1].local[0]);
  result_.whole_vocab = std::max(result_.whole_vocab, whole(step.inputs[1])[0]);
}

void Walk::count(const GraphRun& run, std::int64_t times) {
  const double n = to_double(times);
  for (std::size_t i = run.begin; i < run.end; ++i) {
    const GraphStep& step = graph_.steps[i];
    const PassStep& noted = result_.steps[i];
    if (step.kind != GraphStepKind::kOp) continue;
    switch (step.op) {
      case OpId::kLinear:
        count_product(run, i, n);
        if (run.is_block && step.input_activation)
          result_.activations += n * to_double(numel(noted.inputs[0].local));
        break;
      case OpId::kUnary:
      case OpId::kSwiglu:
        if (run.is_block) result_.activations += n * to_double(numel(noted.outputs[0]));
        break;
      case OpId::kNorm:
      case OpId::kAddNorm:
        if (run.is_block) result_.norms += n * to_double(numel(noted.outputs.back()));
        break;
      case OpId::kAttention: count_attention(i, times); break;
      case OpId::kLinearCrossEntropy:
        count_product(run, i, n);
        count_loss(step, noted);
        break;
      default: break;
    }
  }
  if (run.is_block && !result_.steps[run.end - 1].outputs.empty())
    result_.stream = std::max(result_.stream, numel(result_.steps[run.end - 1].outputs.back()));
}

/// The last op gives the loss, which every rank gets.
void Walk::join_loss() {
  const auto last = std::find_if(graph_.steps.rbegin(), graph_.steps.rend(),
                                 [](const auto& step) { return step.kind == GraphStepKind::kOp; });
  const ArgumentRule whole{.desired = Placements{Placement::replicate()}};
  pass_.apply(whole, tensors_[index(last->outputs[0])]);
}

ModelPass Walk::run() {
  for (const GraphRun& run : graph_.runs) {
    for (std::int64_t done = 0; done < run.times;) {
      if (done > 0) carry(run);
      const bool settled = take(run);
      const std::int64_t times = settled ? run.times - done : 1;
      if (&run == &graph_.runs.back()) join_loss();
      result_.runs.push_back({times, run.is_block, pass_.take()});
      count(run, times);
      done += times;
    }
  }
  result_.storages = pass_.storages();
  return std::move(result_);
}

}  // namespace

std::int64_t copied_key_elements(const ModelGraph& graph, std::size_t step, const PassStep& noted) {
  const auto heads_of = [&](std::size_t input) {
    const int name = graph.steps[step].inputs[input];
    return graph.tensors[static_cast<std::size_t>(name)].shape[1];
  };
  const std::int64_t heads = heads_of(0), kv_heads = heads_of(1);
  const Shape &q = noted.inputs[0].local, &k = noted.inputs[1].local;
  if (q[1] == heads || k[1] < kv_heads || kv_heads == heads) return 0;
  return divide_up(q[1], heads / kv_heads) * k[0] * k[2] * k[3];
}

ModelPass model_pass(const ModelGraph& graph, const ModelModules& modules,
                     const StyledModel& styled) {
  return Walk(graph, modules, styled).run();
}

}  // namespace meshloom::planner
