// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/autograd/checkpoint.h"

#include <algorithm>

#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/autograd/node.h"
#include "daemon/tensor/layout.h"
#include "kernels/base/error.h"

namespace meshloom::autograd {
namespace {

class FrameGuard {
 public:
  FrameGuard(ExecutionContext& context, CheckpointFrame* frame)
      : context_(context), before_(context.checkpoint_frame()) {
    context_.set_checkpoint_frame(frame);
  }
  ~FrameGuard() { context_.set_checkpoint_frame(before_); }
  FrameGuard(const FrameGuard&) = delete;
  FrameGuard& operator=(const FrameGuard&) = delete;

 private:
  ExecutionContext& context_;
  CheckpointFrame* before_;
};

/// Stands before an input of the second run and catches its gradient.
class CaptureNode final : public Node {
 public:
  const char* name() const override { return "checkpoint input"; }
  void backward(std::span<const Tensor> grad_outputs, GradSink&) override {
    grad_ = grad_outputs[0];
  }
  void release() override {}
  Tensor take() { return std::move(grad_); }

 private:
  Tensor grad_;
};

/// A handle of its own on x's memory (its local memory, if it has a layout).
Tensor own_local(const Tensor& x) {
  return Tensor(std::make_shared<TensorImpl>(*local_of(x).impl()));
}

/// `local` with x's layout, if x has one.
Tensor laid_out_like(const Tensor& x, Tensor local) {
  if (!x.has_layout()) return local;
  return with_layout(std::move(local), x.layout()->spec, *x.layout()->engine);
}

/// The gradient of a leaf input is held as that of any other input.
void check_leaf(const Tensor& x) {
  if (!x.has_layout() || !x.requires_grad() || !x.is_leaf()) return;
  TensorLayout& layout = *x.layout();
  const planner::SpecPtr plain = layout.engine->gradient_of(layout.spec);
  if (!(*hold_gradient(layout, plain) == *plain))
    throw FailedPrecondition(fmt::format(
        "checkpoint: an input of layout {} whose gradient is held as {}: use it in the segment as "
        "a parameter",
        planner::to_string(*layout.spec), planner::to_string(*layout.grad_spec)));
}

class CheckpointNode final : public Node {
 public:
  CheckpointNode(Segment segment, std::span<const Tensor> inputs, CheckpointFrame frame)
      : segment_(std::move(segment)), frame_(std::move(frame)) {
    for (const Tensor& t : inputs) {
      inputs_.push_back(t ? t.detach() : t);
      needs_grad_.push_back(t.requires_grad());
    }
  }

  const char* name() const override { return "checkpoint"; }
  void backward(std::span<const Tensor> grad_outputs, GradSink& sink) override;
  void release() override {
    segment_ = nullptr;
    inputs_.clear();
    frame_.reset();
  }

 private:
  Segment segment_;
  std::vector<Tensor> inputs_;
  std::vector<bool> needs_grad_;
  std::optional<CheckpointFrame> frame_;
};

void CheckpointNode::backward(std::span<const Tensor> grad_outputs, GradSink& sink) {
  ExecutionContext& context = inputs_[0].context();
  std::vector<std::shared_ptr<CaptureNode>> captures(inputs_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!needs_grad_[i]) continue;
    // A handle of its own: the saved one may be shared.
    Tensor own = own_local(inputs_[i]);
    captures[i] = std::make_shared<CaptureNode>();
    record(captures[i], {}, {&own});
    inputs_[i] = laid_out_like(inputs_[i], std::move(own));
  }
  std::vector<Tensor> outputs;
  {
    const GradModeGuard grad_mode(context, true);
    const FrameGuard frame(context, &*frame_);
    frame_->start_replay();
    outputs = segment_(inputs_);
  }
  std::vector<Tensor> roots, grads;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!grad_outputs[i] || !outputs[i].requires_grad()) continue;
    roots.push_back(local_of(outputs[i]));
    grads.push_back(grad_outputs[i]);
  }
  outputs.clear();
  inputs_.clear();
  if (roots.empty()) return;
  autograd::backward(roots, grads);
  for (std::size_t i = 0; i < captures.size(); ++i) {
    if (!captures[i]) continue;
    if (Tensor grad = captures[i]->take()) sink.emit(static_cast<int>(i), std::move(grad));
  }
}

}  // namespace

void CheckpointFrame::note_leaf(const Tensor& tensor) {
  if (!tensor.requires_grad() || !tensor.is_leaf()) return;
  const bool known = std::any_of(leaves_.begin(), leaves_.end(), [&](const Tensor& t) {
    return t.leaf_grad() == tensor.leaf_grad();
  });
  if (!known) leaves_.push_back(tensor);
}

std::optional<CheckpointFrame::Attention> CheckpointFrame::replay_attention() {
  if (!replaying_ || next_ == attention_.size()) return std::nullopt;
  return std::move(attention_[next_++]);
}

void CheckpointFrame::keep_attention(const Tensor& o, const Tensor& lse) {
  if (keep_attention_ && !replaying_) attention_.push_back({o, lse});
}

std::vector<Tensor> checkpoint(Segment segment, std::span<const Tensor> inputs,
                               const CheckpointOptions& options) {
  check(!inputs.empty() && inputs[0].defined(), "checkpoint: the segment needs an input");
  ExecutionContext& context = inputs[0].context();
  if (!context.grad_enabled()) return segment(inputs);
  CheckpointFrame frame(options.keep_attention);
  std::vector<Tensor> outputs;
  {
    const NoGradGuard no_grad(context);
    const FrameGuard guard(context, &frame);
    outputs = segment(inputs);
  }
  std::vector<Tensor> sources;
  for (const Tensor& t : inputs) sources.push_back(local_of(t));
  sources.insert(sources.end(), frame.leaves().begin(), frame.leaves().end());
  if (!should_record(sources)) return outputs;
  // An output that is an input must not get this node as the maker of the input.
  std::vector<Tensor> locals;
  for (const Tensor& t : outputs) locals.push_back(own_local(t.detach()));
  for (const Tensor& t : inputs) check_leaf(t);
  record(std::make_shared<CheckpointNode>(std::move(segment), inputs, std::move(frame)), sources,
         locals);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    outputs[i] = laid_out_like(outputs[i], std::move(locals[i]));
  return outputs;
}

Tensor checkpoint(std::function<Tensor(const Tensor&)> segment, const Tensor& input,
                  const CheckpointOptions& options) {
  Segment wrapped = [segment = std::move(segment)](std::span<const Tensor> inputs) {
    return std::vector<Tensor>{segment(inputs[0])};
  };
  return checkpoint(std::move(wrapped), std::span<const Tensor>(&input, 1), options)[0];
}

}  // namespace meshloom::autograd
