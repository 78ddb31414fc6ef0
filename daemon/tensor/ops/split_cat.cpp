// SPDX-License-Identifier: Apache-2.0
// Taking tensors apart along a dim and joining them.
#include <algorithm>

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;
using planner::OpId;

/// View of `count` elements of dim from `start` on, every `step`-th.
Tensor window(const Tensor& x, int dim, std::int64_t start, std::int64_t count, std::int64_t step) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape[dim] = count;
  strides[dim] *= step;
  return alias(x, shape, strides, start * x.strides()[dim]);
}

/// Pieces that lie side by side along dim in one buffer, as attention's backward leaves them: that
/// buffer, else undefined.
Tensor already_joined(GradOutputs pieces, const Shape& whole, int dim) {
  const Tensor& first = pieces[0];
  const Strides dense = contiguous_strides(whole);
  std::int64_t offset = first.storage_offset();
  for (const Tensor& p : pieces) {
    if (!p || p.storage() != first.storage() || p.storage_offset() != offset) return {};
    for (int i = 0; i < whole.size(); ++i)
      if (p.shape()[i] != 1 && p.strides()[i] != dense[i]) return {};
    offset += p.shape()[dim] * dense[dim];
  }
  return alias(first, whole, dense);
}

Tensor join(GradOutputs pieces, const Shape& whole, int dim, std::int64_t split_size) {
  const auto given =
      std::find_if(pieces.begin(), pieces.end(), [](const Tensor& t) { return t.defined(); });
  if (pieces[0])
    if (Tensor joined = already_joined(pieces, whole, dim)) return joined;
  Tensor result = empty(given->context(), whole, given->dtype());
  std::int64_t start = 0;
  for (const Tensor& p : pieces) {
    const std::int64_t count = std::min(split_size, whole[dim] - start);
    const Tensor part = window(result, dim, start, count, 1);
    if (p)
      copy_into(part, p);
    else
      part.context().backend().fill(part.context().kernel_context(), part.view(), 0.0);
    start += count;
  }
  return result;
}

/// The shape of the whole, once all are checked to be alike but for `dim`.
Shape cat_shape(const std::vector<Tensor>& xs, int dim) {
  Shape whole = xs[0].shape();
  whole[dim] = 0;
  for (const Tensor& x : xs) {
    check_same_dtype("cat", xs[0], x);
    Shape expected = xs[0].shape();
    if (x.ndim() == expected.size()) expected[dim] = x.shape()[dim];
    check(x.shape() == expected, "cat: shapes {} and {} differ in more than dim {}", xs[0].shape(),
          x.shape(), dim);
    whole[dim] += x.shape()[dim];
  }
  return whole;
}

/// Python's clamping of a slice bound.
std::int64_t clamp_bound(std::int64_t bound, std::int64_t size) {
  return std::clamp<std::int64_t>(bound < 0 ? bound + size : bound, 0, size);
}

}  // namespace

Tensor slice(const Tensor& x, std::int64_t dim_given, std::int64_t start, std::int64_t end,
             std::int64_t step) {
  const int dim = normalize_dim(dim_given, x.ndim(), "slice");
  check(step > 0, "slice: step is {}, expected at least 1", step);
  const std::int64_t size = x.shape()[dim];
  const std::int64_t first = clamp_bound(start, size);
  const std::int64_t last = std::max(first, clamp_bound(end, size));
  const std::int64_t count = divide_up(last - first, step);
  if (LayoutEngine* engine = layout_engine({&x}))
    return run_call(*engine, OpId::kSlice, {&x}, {{}, {dim, first, last, step}},
                    [dim](const LocalCall& c) {
                      const auto& bounds = c.attributes.ints;
                      return slice(c.inputs[0], dim, bounds[1], bounds[2], bounds[3]);
                    });

  Tensor y = window(x, dim, first, count, step);

  if (autograd::should_record({&x}))
    autograd::record_op("slice", {&x}, {&y},
                        [=, whole = x.shape()](GradOutputs dy, GradSink& sink) {
                          Tensor dx = zeros(dy[0].context(), whole, dy[0].dtype());
                          copy_into(window(dx, dim, first, count, step), dy[0]);
                          sink.emit(0, std::move(dx));
                        });
  return y;
}

std::vector<Tensor> split(const Tensor& x, std::int64_t split_size, std::int64_t dim_given) {
  const int dim = normalize_dim(dim_given, x.ndim(), "split");
  check(split_size > 0, "split: split_size is {}, expected at least 1", split_size);
  const std::int64_t size = x.shape()[dim];
  if (LayoutEngine* engine = layout_engine({&x})) {
    const Tensor* inputs[] = {&x};
    return engine->run(OpId::kSplit, inputs, {{}, {split_size, dim}}, {},
                       [dim](const LocalCall& c) {
                         std::vector<Tensor> pieces = split(c.inputs[0], c.attributes.ints[0], dim);
                         // A rank that holds nothing gives as many pieces as the others.
                         while (pieces.size() < c.decision.outputs.size())
                           pieces.push_back(slice(c.inputs[0], dim, 0, 0));
                         return pieces;
                       });
  }

  std::vector<Tensor> pieces;
  for (std::int64_t start = 0; start < std::max<std::int64_t>(size, 1); start += split_size)
    pieces.push_back(window(x, dim, start, std::min(split_size, size - start), 1));

  if (autograd::should_record({&x})) {
    auto backward = [=, whole = x.shape()](GradOutputs dy, GradSink& sink) {
      sink.emit(0, join(dy, whole, dim, split_size));
    };
    autograd::record(
        std::make_shared<autograd::FunctionNode<decltype(backward)>>("split", backward),
        std::span<const Tensor>(&x, 1), pieces);
  }
  return pieces;
}

Tensor cat(const std::vector<Tensor>& xs, std::int64_t dim_given) {
  check(!xs.empty(), "cat: no tensors given");
  const int dim = normalize_dim(dim_given, xs[0].ndim(), "cat");
  const Shape whole = cat_shape(xs, dim);
  LayoutEngine* engine = nullptr;
  for (std::size_t i = 0; engine == nullptr && i < xs.size(); ++i) engine = layout_engine({&xs[i]});
  if (engine != nullptr) {
    std::vector<const Tensor*> inputs;
    for (const Tensor& x : xs) inputs.push_back(&x);
    const auto local = [dim](const LocalCall& c) -> std::vector<Tensor> {
      return {cat({c.inputs.begin(), c.inputs.end()}, dim)};
    };
    return engine->run(OpId::kCat, inputs, {{}, {dim}}, {}, local)[0];
  }

  Tensor y = empty(xs[0].context(), whole, xs[0].dtype());
  std::vector<std::int64_t> sizes;
  std::int64_t start = 0;
  for (const Tensor& x : xs) {
    sizes.push_back(x.shape()[dim]);
    copy_into(window(y, dim, start, sizes.back(), 1), x);
    start += sizes.back();
  }

  if (autograd::should_record(xs)) {
    auto backward = [dim, sizes = std::move(sizes)](GradOutputs dy, GradSink& sink) {
      std::int64_t at = 0;
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        sink.emit(static_cast<int>(i), window(dy[0], dim, at, sizes[i], 1));
        at += sizes[i];
      }
    };
    autograd::record(
        std::make_shared<autograd::FunctionNode<decltype(backward)>>("cat", std::move(backward)),
        xs, std::span<Tensor>(&y, 1));
  }
  return y;
}

}  // namespace meshloom::ops
