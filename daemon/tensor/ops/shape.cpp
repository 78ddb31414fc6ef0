// SPDX-License-Identifier: Apache-2.0
// Views and copies of one tensor; slicing and joining are in split_cat.cpp.
#include "daemon/tensor/ops/shape.h"

#include <array>
#include <optional>

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/op_support.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;
using planner::OpId;

/// Gives y, a view or copy of x, the gradient `inverse(dy)`.
template <typename Inverse>
Tensor recorded(const char* name, const Tensor& x, Tensor y, Inverse inverse) {
  if (autograd::should_record({&x}))
    autograd::record_op(name, {&x}, {&y}, [inverse](GradOutputs dy, GradSink& sink) {
      sink.emit(0, inverse(dy[0]));
    });
  return y;
}

/// Strides that show x's memory in another shape, if there are any. Works through groups of dims
/// with equal numbers of elements in both shapes: inside a group the old dims must follow each
/// other densely.
std::optional<Strides> view_strides(const Tensor& x, const Shape& shape) {
  const Shape& old = x.shape();
  if (x.contiguous()) return contiguous_strides(shape);
  Strides strides = shape;
  int o = old.size() - 1;
  int n = shape.size() - 1;
  while (true) {
    while (o >= 0 && old[o] == 1) --o;
    if (o < 0) break;
    const std::int64_t step = x.strides()[o];
    std::int64_t group = old[o];
    while (o > 0 && (old[o - 1] == 1 || x.strides()[o - 1] == group * step)) group *= old[--o];
    std::int64_t filled = 1;
    while (n >= 0 && (filled < group || shape[n] == 1)) {
      strides[n] = filled * step;
      filled *= shape[n--];
    }
    if (filled != group) return std::nullopt;
    --o;
  }
  for (; n >= 0; --n) strides[n] = 1;
  return strides;
}

Shape fill_in_size(const Tensor& x, const Shape& shape) {
  Shape result = shape;
  int unknown = -1;
  std::int64_t known = 1;
  for (int i = 0; i < shape.size(); ++i) {
    check(shape[i] >= -1, "reshape: size {} in shape {}", shape[i], shape);
    if (shape[i] == -1) {
      check(unknown < 0, "reshape: more than one -1 in shape {}", shape);
      unknown = i;
    } else {
      known *= shape[i];
    }
  }
  const std::int64_t total = x.numel();
  if (unknown >= 0 && known > 0) result[unknown] = total / known;
  check((unknown < 0 || known > 0) && numel(result) == total,
        "reshape: shape {} with {} elements does not fit {}", x.shape(), total, shape);
  return result;
}

Tensor copied(const Tensor& x) {
  Tensor y = empty_like(x);
  copy_into(y, x);
  return y;
}

}  // namespace

Tensor permute(const Tensor& x, const Dims& dims) {
  check(dims.size() == x.ndim(), "permute: dims {} given for shape {}", dims, x.shape());
  Shape shape = x.shape();
  Strides strides = shape;
  Dims inverse = shape;
  std::array<bool, kMaxDims> used{};
  for (int i = 0; i < dims.size(); ++i) {
    const int from = normalize_dim(dims[i], x.ndim(), "permute");
    check(!used[static_cast<std::size_t>(from)], "permute: dim {} is given twice in {}", dims[i],
          dims);
    used[static_cast<std::size_t>(from)] = true;
    shape[i] = x.shape()[from];
    strides[i] = x.strides()[from];
    inverse[from] = i;
  }
  if (LayoutEngine* engine = layout_engine({&x})) {
    planner::OpAttributes attributes;
    for (const std::int64_t d : dims)
      attributes.dims.push_back(normalize_dim(d, x.ndim(), "permute"));
    return run_call(*engine, OpId::kPermute, {&x}, attributes,
                    [](const LocalCall& c) { return permute(c.inputs[0], c.attributes.dims); });
  }
  return recorded("permute", x, alias(x, shape, strides),
                  [inverse](const Tensor& dy) { return permute(dy, inverse); });
}

Tensor transpose(const Tensor& x, std::int64_t dim0, std::int64_t dim1) {
  const int a = normalize_dim(dim0, x.ndim(), "transpose");
  const int b = normalize_dim(dim1, x.ndim(), "transpose");
  if (LayoutEngine* engine = layout_engine({&x}))
    return run_call(*engine, OpId::kTranspose, {&x}, {{}, {a, b}},
                    [=](const LocalCall& c) { return transpose(c.inputs[0], a, b); });
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return recorded("transpose", x, alias(x, shape, strides),
                  [a, b](const Tensor& dy) { return transpose(dy, a, b); });
}

Tensor reshape(const Tensor& x, const Shape& wanted) {
  const Shape shape = fill_in_size(x, wanted);
  if (shape == x.shape()) return x;
  if (LayoutEngine* engine = layout_engine({&x}))
    return run_call(*engine, OpId::kReshape, {&x}, {shape, {}},
                    [](const LocalCall& c) { return reshape(c.inputs[0], c.attributes.dims); });
  const auto strides = view_strides(x, shape);
  Tensor y =
      strides ? alias(x, shape, *strides) : alias(copied(x), shape, contiguous_strides(shape));
  return recorded("reshape", x, std::move(y),
                  [before = x.shape()](const Tensor& dy) { return reshape(dy, before); });
}

Tensor unsqueeze(const Tensor& x, std::int64_t dim) {
  const int at = normalize_dim(dim, x.ndim() + 1, "unsqueeze");
  if (LayoutEngine* engine = layout_engine({&x}))
    return run_call(*engine, OpId::kUnsqueeze, {&x}, {{}, {at}},
                    [=](const LocalCall& c) { return unsqueeze(c.inputs[0], at); });
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape.insert(at, 1);
  strides.insert(at, at < x.ndim() ? x.strides()[at] * x.shape()[at] : 1);
  return recorded("unsqueeze", x, alias(x, shape, strides),
                  [at](const Tensor& dy) { return squeeze(dy, at); });
}

Tensor squeeze(const Tensor& x, std::int64_t dim) {
  const int at = normalize_dim(dim, x.ndim(), "squeeze");
  if (x.shape()[at] != 1) return x;
  if (LayoutEngine* engine = layout_engine({&x}))
    return run_call(*engine, OpId::kSqueeze, {&x}, {{}, {at}},
                    [=](const LocalCall& c) { return squeeze(c.inputs[0], at); });
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape.erase(at);
  strides.erase(at);
  return recorded("squeeze", x, alias(x, shape, strides),
                  [at](const Tensor& dy) { return unsqueeze(dy, at); });
}

Tensor expand(const Tensor& x, const Shape& wanted) {
  const int shift = wanted.size() - x.ndim();
  check(shift >= 0, "expand: shape {} has fewer dims than {}", wanted, x.shape());
  Shape shape = wanted;
  for (int i = 0; i < shape.size(); ++i) {
    const std::int64_t before = i < shift ? 1 : x.shape()[i - shift];
    if (shape[i] == -1 && i >= shift) shape[i] = before;
    check(shape[i] >= 0 && (before == 1 || before == shape[i]),
          "expand: shape {} does not expand to {}", x.shape(), wanted);
  }
  if (shape == x.shape()) return x;
  if (LayoutEngine* engine = layout_engine({&x}))
    return run_call(*engine, OpId::kExpand, {&x}, {shape, {}},
                    [](const LocalCall& c) { return expand(c.inputs[0], c.attributes.dims); });
  return recorded("expand", x, alias(x, shape, broadcast_view(x, shape).strides),
                  [before = x.shape()](const Tensor& dy) { return reduce_to_shape(dy, before); });
}

Tensor contiguous(const Tensor& x) {
  if (LayoutEngine* engine = layout_engine({&x}))
    return run_local(*engine, OpId::kContiguous, {}, contiguous, x);
  if (x.contiguous()) return x;
  return recorded("contiguous", x, copied(x), [](const Tensor& dy) { return dy; });
}

}  // namespace meshloom::ops
