// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/autograd/backward.h"

#include <algorithm>

#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/autograd/node.h"
#include "daemon/tensor/layout.h"
#include "kernels/base/error.h"

namespace meshloom::autograd {

/// One backward run. Every reachable node gets a task with a slot for the gradient of each of its
/// outputs. Tasks run from the latest recorded to the first, an order in which a node's consumers
/// always come before it, so that its slots are complete when it runs.
class GraphTask final : public GradSink {
 public:
  explicit GraphTask(ExecutionContext& context)
      : context_(context), run_(context.next_sequence()) {}
  ~GraphTask() override;

  void add_root(const Tensor& output, const Tensor& grad);
  void run();

  bool wants(int input) const override { return edge(input).wanted(); }
  void emit(int input, Tensor grad) override;
  std::optional<LeafBuffer> leaf_buffer(int input) override;
  void leaf_done(int input) override { edge(input).leaf->mark_written(); }

 private:
  struct Task {
    std::shared_ptr<Node> node;
    std::size_t first_slot = 0;
  };
  struct Root {
    Edge edge;
    Tensor grad;
  };

  const Edge& edge(int input) const { return current_->edges()[static_cast<std::size_t>(input)]; }
  void discover(const std::shared_ptr<Node>& node);
  void run_node(Task& task);
  void send(const Edge& edge, Tensor grad);

  ExecutionContext& context_;
  const std::uint64_t run_;
  std::vector<Root> roots_;
  std::vector<Task> tasks_;
  std::vector<Tensor> slots_;
  Node* current_ = nullptr;
};

namespace {

// The only handle on the only view of its memory: may be overwritten.
bool solely_owned(const Tensor& t) {
  return t.impl().use_count() == 1 && t.storage().use_count() == 1 && t.contiguous();
}

void add_into(Tensor& sum, Tensor term) {
  if (!solely_owned(sum) && solely_owned(term)) std::swap(sum, term);
  Tensor target = solely_owned(sum) ? sum : empty_like(sum);
  ExecutionContext& context = sum.context();
  context.backend().binary(context.kernel_context(), kernels::BinaryOp::kAdd, target.view(),
                           sum.view(), term.view());
  sum = std::move(target);
}

}  // namespace

// Only after a failure are there tasks that did not run: their leaves wait for them no longer.
GraphTask::~GraphTask() {
  for (const Task& task : tasks_) {
    if (!task.node) continue;
    for (const Edge& e : task.node->edges_)
      if (e.leaf) e.leaf->add_pending(-1);
  }
}

void GraphTask::add_root(const Tensor& output, const Tensor& grad) {
  if (!output.requires_grad())
    throw FailedPrecondition("backward: the output does not require a gradient");
  Tensor seed = grad;
  if (!seed) {
    check(output.numel() == 1, "backward: a gradient is needed for an output of shape {}",
          output.shape());
    seed = full(context_, local_of(output).shape(), 1.0, output.dtype());
  }
  if (grad && output.has_layout()) {
    // It has the layout of the output with Partial replaced by Replicate.
    check(grad.has_layout(), "backward: a gradient without layout for an output with layout {}",
          *output.layout()->spec);
    const planner::SpecPtr expected = output.layout()->engine->gradient_of(output.layout()->spec);
    check(*grad.layout()->spec == *expected,
          "backward: gradient of shape {} and layout {} for an output of shape {}, expected layout "
          "{}",
          grad.shape(), *grad.layout()->spec, output.shape(), *expected);
    seed = grad.layout()->local;
  }
  const Shape& shape = local_of(output).shape();
  check(seed.shape() == shape, "backward: gradient of shape {} for an output of shape {}",
        seed.shape(), shape);
  check(seed.dtype() == output.dtype(), "backward: gradient of dtype {} for an output of dtype {}",
        dtype_name(seed.dtype()), dtype_name(output.dtype()));
  roots_.push_back({edge_of(output), seed.detach()});
}

void GraphTask::discover(const std::shared_ptr<Node>& node) {
  if (!node || node->run_ == run_) return;
  if (node->released_)
    throw FailedPrecondition(fmt::format(
        "backward: the graph was released by an earlier backward (at {})", node->name()));
  node->run_ = run_;
  tasks_.push_back({node, 0});
  for (const Edge& e : node->edges_)
    if (e.leaf) e.leaf->add_pending(1);
}

void GraphTask::send(const Edge& edge, Tensor grad) {
  if (edge.leaf) {
    edge.leaf->accumulate(grad);
    return;
  }
  Tensor& slot =
      slots_[tasks_[edge.node->task_].first_slot + static_cast<std::size_t>(edge.output_index)];
  if (slot)
    add_into(slot, std::move(grad));
  else
    slot = std::move(grad);
}

void GraphTask::emit(int input, Tensor grad) {
  if (wants(input)) send(edge(input), std::move(grad));
}

std::optional<GradSink::LeafBuffer> GraphTask::leaf_buffer(int input) {
  LeafGrad* leaf = edge(input).leaf.get();
  if (!leaf) return std::nullopt;
  return LeafBuffer{leaf->buffer().view(), leaf->has_value()};
}

void GraphTask::run_node(Task& task) {
  const std::shared_ptr<Node> node = task.node;
  current_ = node.get();
  const std::span<Tensor> grads(slots_.data() + task.first_slot,
                                static_cast<std::size_t>(node->output_count()));
  const bool reached =
      std::any_of(grads.begin(), grads.end(), [](const Tensor& t) { return t.defined(); });
  if (reached) node->backward(grads, *this);
  for (Tensor& t : grads) t = Tensor();
  node->release();
  node->released_ = true;
  task.node.reset();
  for (const Edge& e : std::exchange(node->edges_, {})) {
    if (!e.leaf) continue;
    e.leaf->add_pending(-1);
    if (e.leaf->pending() == 0) e.leaf->notify_ready();
  }
  context_.poll();
}

void GraphTask::run() {
  for (const Root& root : roots_) discover(root.edge.node);
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const std::shared_ptr<Node> node = tasks_[i].node;
    for (const Edge& e : node->edges_) discover(e.node);
  }
  std::sort(tasks_.begin(), tasks_.end(),
            [](const Task& a, const Task& b) { return a.node->sequence() > b.node->sequence(); });
  std::size_t slots = 0;
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    tasks_[i].node->task_ = i;
    tasks_[i].first_slot = slots;
    slots += static_cast<std::size_t>(tasks_[i].node->output_count());
  }
  slots_.resize(slots);

  for (Root& root : roots_) send(root.edge, std::move(root.grad));
  for (const Root& root : roots_)
    if (root.edge.leaf && root.edge.leaf->pending() == 0) root.edge.leaf->notify_ready();
  roots_.clear();
  for (Task& task : tasks_) run_node(task);
}

void backward(std::span<const Tensor> outputs, std::span<const Tensor> grads) {
  check(!outputs.empty(), "backward: no outputs given");
  check(grads.empty() || grads.size() == outputs.size(), "backward: {} gradients for {} outputs",
        grads.size(), outputs.size());
  ExecutionContext& context = outputs[0].context();
  const NoGradGuard guard(context);
  GraphTask task(context);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    task.add_root(outputs[i], grads.empty() ? Tensor() : grads[i]);
  task.run();
}

void backward(const Tensor& output) { backward(std::span<const Tensor>(&output, 1)); }

}  // namespace meshloom::autograd
