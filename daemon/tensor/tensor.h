// SPDX-License-Identifier: Apache-2.0
// Tensor: a strided view on a storage, with an optional place in the autograd graph.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/storage.h"
#include "kernels/base/tensor_view.h"

namespace meshloom {

namespace autograd {
class Node;
class LeafGrad;
}  // namespace autograd

struct TensorImpl;
struct TensorLayout;

/// Tensor is a handle (shared ownership; copying is cheap and aliases). A default Tensor is
/// undefined. All ops on tensors are free functions in daemon/tensor/ops.
///
/// A tensor with a layout (layout.h) is one of many ranks: shape, strides and numel are global, its
/// gradient is that of its local tensor, and what looks at memory (view, data, item, to_vector,
/// storage) throws FailedPrecondition.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return defined(); }

  ExecutionContext& context() const;
  DType dtype() const;
  Device device() const;
  const Shape& shape() const;
  const Strides& strides() const;
  int ndim() const { return shape().size(); }
  /// Returns the size of a dim, counted from the end if negative.
  std::int64_t size(std::int64_t dim) const;
  std::int64_t numel() const { return meshloom::numel(shape()); }
  bool contiguous() const { return is_contiguous(shape(), strides()); }
  std::int64_t storage_offset() const;  ///< in elements
  const std::shared_ptr<Storage>& storage() const;

  /// Returns the window that kernels and collectives take. An undefined tensor gives an undefined
  /// view.
  TensorView view() const;
  /// Returns the first element; float for kFloat32 and so on. The caller knows the dtype.
  template <typename T>
  T* data() const {
    return view().as<T>();
  }

  // --- Autograd
  bool requires_grad() const;
  /// Makes this a leaf that collects a gradient. Only for floating tensors without a grad_fn.
  Tensor& set_requires_grad(bool requires_grad);
  bool is_leaf() const;
  /// Returns the node that made this tensor, or null.
  const std::shared_ptr<autograd::Node>& grad_fn() const;
  /// Returns where the gradient of a leaf that requires one is collected (autograd/leaf_grad.h),
  /// else null.
  const std::shared_ptr<autograd::LeafGrad>& leaf_grad() const;
  /// Returns the collected gradient (float32; float64 of float64), or undefined. Same shape as the
  /// tensor; of a tensor with a layout it has that of gradient_spec.
  Tensor grad() const;
  /// Returns the same data without the graph.
  Tensor detach() const;

  /// Returns the one element as double, for tests and host code. Throws InvalidArgument unless
  /// numel is 1.
  double item() const;
  /// Returns all elements in row-major order, converted.
  std::vector<double> to_vector() const;

  const std::shared_ptr<TensorImpl>& impl() const { return impl_; }
  bool has_layout() const;
  /// Returns null for a plain tensor.
  const std::shared_ptr<TensorLayout>& layout() const;

 private:
  std::shared_ptr<TensorImpl> impl_;
};

/// A Tensor handle points to one of these. Only tensor/ and its subfolders touch it.
struct TensorImpl {
  ExecutionContext* context = nullptr;
  std::shared_ptr<Storage> storage;
  std::int64_t offset = 0;  ///< in elements
  Shape shape;
  Strides strides;
  DType dtype = DType::kFloat32;
  bool requires_grad = false;
  std::shared_ptr<autograd::Node> grad_fn;
  int output_index = 0;  ///< which output of grad_fn this is
  std::shared_ptr<autograd::LeafGrad> leaf_grad;
  /// Makes the same values again from tensors that backward keeps anyway. Set by cheap ops; an op
  /// that would keep this tensor for its own backward keeps the recipe instead.
  std::function<Tensor()> recompute;
  /// Set for a tensor of many ranks, which has no storage of its own.
  std::shared_ptr<TensorLayout> layout;
};

inline bool Tensor::has_layout() const { return impl_ && impl_->layout; }

// --- Factories (no gradient)
/// kDevice: of the kind that an OutputMemory of the context asks for, if there is one.
Tensor empty(ExecutionContext&, const Shape&, DType, MemoryKind = MemoryKind::kDevice);
/// Returns a tensor described without memory: `provider` is asked for it at every first use (and
/// outlives the tensor); without one the tensor can be looked at, but not used, until
/// materialize().
Tensor deferred(ExecutionContext&, const Shape&, DType, StorageProvider* provider = nullptr);
bool has_memory(const Tensor&);
/// Takes a tensor's memory away: from here on it is asked for from `provider`.
void defer(const Tensor&, StorageProvider* provider);
/// Gives a deferred tensor memory of its own (undefined values); nothing if it has some. Other
/// tensors on the same storage stay without.
void materialize(const Tensor&);
Tensor zeros(ExecutionContext&, const Shape&, DType, MemoryKind = MemoryKind::kDevice);
Tensor full(ExecutionContext&, const Shape&, double value, DType);
Tensor empty_like(const Tensor&);
/// Copies host values.
Tensor from_values(ExecutionContext&, const Shape&, std::span<const float> values,
                   DType = DType::kFloat32);
Tensor from_values(ExecutionContext&, const Shape&, std::span<const double> values, DType);
Tensor from_values(ExecutionContext&, const Shape&, std::span<const std::int64_t> values);
/// Returns a tensor on memory of someone else; `owner`, null where the memory outlives it anyway,
/// is held as long as any view of it.
Tensor from_external(ExecutionContext&, const TensorView&,
                     std::shared_ptr<const MemoryOwner> owner);
/// Copies src's elements into dst (same shape; converts dtype); no gradient is recorded.
void copy_into(const Tensor& dst, const Tensor& src);

}  // namespace meshloom
