// SPDX-License-Identifier: Apache-2.0
// What the op files share: argument checks, views without a copy, and pieces of backward formulas.
//
// Every op passes the same steps, in this order and each in one place of its function: check the
// arguments, run the kernel on views, record the gradient (autograd/function_node.h).
#pragma once

#include <functional>
#include <optional>

#include "daemon/tensor/autograd/function_node.h"
#include "daemon/tensor/tensor.h"

namespace meshloom::ops {

// --- Checks: InvalidArgument naming the op and what was seen
void check_floating(const char* op, const Tensor& x);
void check_same_dtype(const char* op, const Tensor& a, const Tensor& b);
/// `what` names the argument ("targets").
void check_dtype(const char* op, const char* what, const Tensor& x, DType expected);
/// The one element of `value` is `expected`, else `raise`, which reads it, throws. It is called at
/// once, or at the end of a step that defers checks (DeferredChecks).
void check_value(const Tensor& value, double expected, std::function<void()> raise);
/// Checks, by check_value, that every value of x (int64) is in [0, limit) or equal to `allowed`.
void check_indices(const char* op, const char* what, const Tensor& x, std::int64_t limit,
                   std::optional<std::int64_t> allowed = std::nullopt);

// --- Views (no gradient is recorded)
/// The same storage seen through another shape; offset in elements from x's first.
Tensor alias(const Tensor& x, const Shape& shape, const Strides& strides, std::int64_t offset = 0);
/// Returns x with size-1 and missing leading dims repeated by strides of 0; the shapes must
/// broadcast.
TensorView broadcast_view(const Tensor& x, const Shape& shape);
/// Returns [rows, last]: a contiguous tensor with its leading dims folded.
TensorView rows_view(const Tensor& x);
Shape rows_shape(const Shape& shape);
/// Makes an empty tensor of shape [B,H,S,D] in [B,S,H,D] memory order, so that joining the heads
/// again needs no copy.
Tensor empty_heads(ExecutionContext& context, const Shape& shape, DType dtype);

// --- Backward
/// Sums over the dims that broadcasting added or stretched.
Tensor reduce_to_shape(const Tensor& grad, const Shape& shape);
/// Returns x converted, or x itself. No gradient is recorded.
Tensor converted(const Tensor& x, DType dtype);
/// Returns float32, float64 for float64: the dtype gradients of parameters are summed in.
DType accumulation_dtype(DType dtype);

/// A kernel writes a parameter's gradient here: into the leaf's own buffer, or into a fresh tensor
/// that `finish` emits in the parameter's dtype.
class ParamGrad {
 public:
  /// An undefined `param` or an input nobody wants gives an undefined view.
  ParamGrad(autograd::GradSink& sink, int input, const Tensor& param);

  bool wanted() const { return view_.defined(); }
  const TensorView& view() const { return view_; }
  /// Tells whether the buffer holds something: add to it.
  bool accumulate() const { return accumulate_; }
  /// Makes accumulate() true by clearing what holds nothing.
  void clear_if_empty();
  void finish();

 private:
  autograd::GradSink& sink_;
  int input_;
  Tensor param_;
  Tensor own_;  ///< undefined if the leaf's buffer is used
  TensorView view_;
  bool accumulate_ = false;
};

/// Returns, for kernels with one `accumulate` flag for both, the flag, after clearing the one that
/// is empty if they differ.
bool common_accumulate(ParamGrad& a, ParamGrad& b);

}  // namespace meshloom::ops
