// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/autograd/node.h"

#include <algorithm>

#include "daemon/tensor/autograd/checkpoint.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/layout.h"

namespace meshloom::autograd {

Edge edge_of(const Tensor& tensor) {
  if (!tensor.requires_grad()) return {};
  const TensorImpl& t = *local_of(tensor).impl();
  return {t.grad_fn, t.output_index, t.leaf_grad};
}

// A graph that is dropped without backward may be as deep as the model: taking it apart by
// recursion could overflow the stack.
Node::~Node() {
  std::vector<std::shared_ptr<Node>> pending;
  auto collect = [&pending](std::vector<Edge>& edges) {
    for (Edge& e : edges)
      if (e.node && e.node.use_count() == 1) pending.push_back(std::move(e.node));
  };
  collect(edges_);
  while (!pending.empty()) {
    const std::shared_ptr<Node> node = std::move(pending.back());
    pending.pop_back();
    collect(node->edges_);
  }
}

void Node::number(ExecutionContext& context, int output_count) {
  sequence_ = context.next_sequence();
  output_count_ = output_count;
}

void Node::attach(const std::shared_ptr<Node>& self, Tensor& output, int index) {
  TensorImpl& t = *output.impl();
  t.requires_grad = true;
  t.grad_fn = self;
  t.output_index = index;
}

bool should_record(TensorRefs inputs) {
  const auto recorded = std::find_if(inputs.begin(), inputs.end(),
                                     [](const Tensor* t) { return t->requires_grad(); });
  if (recorded == inputs.end()) return false;
  ExecutionContext& context = (*recorded)->context();
  context.poll();
  if (context.grad_enabled()) return true;
  if (CheckpointFrame* frame = context.checkpoint_frame())
    for (const Tensor* t : inputs) frame->note_leaf(*t);
  return false;
}

bool should_record(std::span<const Tensor> inputs) {
  bool result = false;
  for (const Tensor& t : inputs) result = should_record({&t}) || result;
  return result;
}

void record(const std::shared_ptr<Node>& node, TensorRefs inputs, OutputRefs outputs) {
  node->edges_.reserve(inputs.size());
  for (const Tensor* t : inputs) node->edges_.push_back(edge_of(*t));
  int index = 0;
  for (Tensor* t : outputs) node->attach(node, *t, index++);
  node->number((*outputs.begin())->context(), index);
}

void record(const std::shared_ptr<Node>& node, std::span<const Tensor> inputs,
            std::span<Tensor> outputs) {
  node->edges_.reserve(inputs.size());
  for (const Tensor& t : inputs) node->edges_.push_back(edge_of(t));
  int index = 0;
  for (Tensor& t : outputs) node->attach(node, t, index++);
  node->number(outputs[0].context(), index);
}

}  // namespace meshloom::autograd
