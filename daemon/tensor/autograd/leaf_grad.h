// SPDX-License-Identifier: Apache-2.0
// The gradient buffer of a leaf: float32, accumulated over micro batches, with a hook when it is
// final.
#pragma once

#include <functional>

#include "daemon/tensor/tensor.h"

namespace meshloom::autograd {

/// The buffer is made at first use (or given by `set_buffer`, so that gradients of many leaves
/// share one flat bucket) and kept across steps; `clear` only marks it empty, `release` lets it go.
class LeafGrad {
 public:
  LeafGrad(ExecutionContext& context, const Shape& shape, DType dtype)
      : context_(context),
        shape_(shape),
        dtype_(dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32) {}

  /// Returns the gradient; undefined while nothing was accumulated since the last clear.
  Tensor value() const { return has_value_ ? buffer_ : Tensor(); }
  bool has_value() const { return has_value_; }
  /// Returns the gradient's memory, float32 (float64 of a float64 leaf), contiguous, shape of the
  /// leaf; made if missing. Contents are undefined unless has_value().
  const Tensor& buffer();
  /// Replaces the buffer; throws InvalidArgument unless it is contiguous, of the shape and dtype
  /// above, and FailedPrecondition while a gradient is held.
  void set_buffer(Tensor buffer);

  /// Adds a gradient of the leaf's shape, any floating dtype, any strides.
  void accumulate(const Tensor& grad);
  void mark_written() { has_value_ = true; }
  void clear() { has_value_ = false; }
  void release() {
    clear();
    buffer_ = {};
  }

  /// Sets what is called by backward() as soon as this leaf's last contribution of that backward
  /// has arrived.
  void set_ready_hook(std::function<void()> hook) { ready_hook_ = std::move(hook); }
  void notify_ready() const {
    if (ready_hook_) ready_hook_();
  }

  /// Returns the number of contributions that running backwards still owe; kept by them.
  int pending() const { return pending_; }
  void add_pending(int contributions) { pending_ += contributions; }

 private:
  ExecutionContext& context_;
  Shape shape_;
  DType dtype_;  ///< of the buffer
  Tensor buffer_;
  bool has_value_ = false;
  int pending_ = 0;
  std::function<void()> ready_hook_;
};

}  // namespace meshloom::autograd
