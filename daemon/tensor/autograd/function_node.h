// SPDX-License-Identifier: Apache-2.0
// Records an op whose backward is a lambda: the usual way ops use the tape.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "daemon/tensor/autograd/node.h"

namespace meshloom::autograd {

using GradOutputs = std::span<const Tensor>;

/// The captures of `Backward` are the saved tensors; release() destroys them.
template <typename Backward>
class FunctionNode final : public Node {
 public:
  FunctionNode(const char* name, Backward backward) : name_(name), backward_(std::move(backward)) {}

  const char* name() const override { return name_; }
  void backward(GradOutputs grad_outputs, GradSink& sink) override {
    (*backward_)(grad_outputs, sink);
  }
  void release() override { backward_.reset(); }

 private:
  const char* name_;
  std::optional<Backward> backward_;
};

/// Call only if should_record(inputs). `backward(GradOutputs, GradSink&)` captures detached
/// tensors by value.
template <typename Backward>
void record_op(const char* name, TensorRefs inputs, OutputRefs outputs, Backward&& backward) {
  using Fn = std::remove_cvref_t<Backward>;
  record(std::make_shared<FunctionNode<Fn>>(name, std::forward<Backward>(backward)), inputs,
         outputs);
}

}  // namespace meshloom::autograd
