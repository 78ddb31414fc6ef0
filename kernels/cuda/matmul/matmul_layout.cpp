// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/matmul_layout.h"

#include <array>
#include <utility>

#include "kernels/base/error.h"

namespace meshloom::kernels::cuda {
namespace {

// The defined ones of a call's views.
std::array<TensorView*, 4> all_views(ProductViews& views) {
  return {&views.y, &views.a, &views.b, views.kept.defined() ? &views.kept : nullptr};
}

// Leading dims as y has them, of stride 0 where a view repeats itself.
void match_dims(ProductViews& views) {
  const int dims = views.y.ndim();
  for (TensorView* view : all_views(views)) {
    if (view == nullptr) continue;
    while (view->ndim() < dims) {
      view->shape.insert(0, 1);
      view->strides.insert(0, 0);
    }
    for (int d = 0; d < dims - 2; ++d) {
      if (view->size(d) == 1) view->strides[d] = 0;
      view->shape[d] = views.y.size(d);
    }
  }
}

void erase_dim(ProductViews& views, int dim) {
  for (TensorView* view : all_views(views)) {
    if (view == nullptr) continue;
    view->shape.erase(dim);
    view->strides.erase(dim);
  }
}

// Whether a step of dim `outer` is as long as all of dim `inner`, in this view.
bool follows(const TensorView* view, int outer, int inner) {
  return view == nullptr || view->stride(outer) == view->stride(inner) * view->size(inner);
}

void merge_leading(ProductViews& views) {
  for (int d = views.y.ndim() - 4; d >= 0; --d) {
    bool fits = true;
    for (const TensorView* view : all_views(views)) fits = fits && follows(view, d, d + 1);
    if (!fits) continue;
    for (TensorView* view : all_views(views))
      if (view != nullptr) view->shape[d + 1] *= view->shape[d];
    erase_dim(views, d);
  }
}

// Whether rows and columns lie as before, with other numbers of rows.
bool same_kind(const TensorView& before, const TensorView& after) {
  if (!before.defined()) return true;
  const std::optional<MatrixLayout> was = matrix_layout(before), is = matrix_layout(after);
  return was.has_value() == is.has_value() && (!was || was->transposed == is->transposed);
}

// One taller product instead of a batch that shares b: a linear layer.
void absorb_batch(ProductViews& views) {
  while (views.y.ndim() > 2) {
    const int rows = views.y.ndim() - 2, batch = rows - 1;
    if (views.b.stride(batch) != 0) return;
    ProductViews taller = views;
    for (TensorView* view : {&taller.y, &taller.a, &taller.kept}) {
      if (!view->defined()) continue;
      if (view->size(rows) == 1)
        view->strides[rows] = view->stride(batch);
      else if (!follows(view, batch, rows))
        return;
      view->shape[rows] *= view->shape[batch];
    }
    erase_dim(taller, batch);
    if (!same_kind(views.y, taller.y) || !same_kind(views.a, taller.a) ||
        !same_kind(views.kept, taller.kept))
      return;
    views = taller;
  }
}

void move_largest(ProductViews& views) {
  const int last = views.y.ndim() - 3;
  int largest = last;
  for (int d = 0; d < last; ++d)
    if (views.y.size(d) > views.y.size(largest)) largest = d;
  if (last < 0 || largest == last) return;
  for (TensorView* view : all_views(views)) {
    if (view == nullptr) continue;
    std::swap(view->shape[largest], view->shape[last]);
    std::swap(view->strides[largest], view->strides[last]);
  }
}

MatrixLayout full_layout(const TensorView& view) {
  const std::optional<MatrixLayout> found = matrix_layout(view);
  check_internal(found.has_value(), "matmul: a matrix with strides {} has no layout", view.strides);
  MatrixLayout layout = *found;
  if (view.ndim() > 2) layout.batch_stride = view.stride(view.ndim() - 3);
  layout.alignment = matrix_alignment(view, layout);
  return layout;
}

}  // namespace

std::optional<MatrixLayout> matrix_layout(const TensorView& view) {
  const int last = view.ndim() - 1;
  const std::int64_t rows = view.size(last - 1), columns = view.size(last);
  const std::int64_t row_stride = view.stride(last - 1), column_stride = view.stride(last);
  if ((columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns))
    return MatrixLayout{false, rows == 1 ? columns : row_stride};
  if ((rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows))
    return MatrixLayout{true, columns == 1 ? rows : column_stride};
  return std::nullopt;
}

ProductViews folded(ProductViews views) {
  match_dims(views);
  for (int d = views.y.ndim() - 3; d >= 0; --d)
    if (views.y.size(d) == 1) erase_dim(views, d);
  absorb_batch(views);
  merge_leading(views);
  move_largest(views);
  return views;
}

ProductViews swapped(const ProductViews& views) {
  return {transposed_matrix(views.y), transposed_matrix(views.b), transposed_matrix(views.a),
          views.kept.defined() ? transposed_matrix(views.kept) : views.kept};
}

int address_alignment(const void* address) {
  const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(address) | 16;
  return static_cast<int>(bits & (~bits + 1));
}

int matrix_alignment(const TensorView& view, const MatrixLayout& layout) {
  auto steps = static_cast<std::uint64_t>(layout.ld);
  for (int d = 0; d < view.ndim() - 2; ++d) steps |= static_cast<std::uint64_t>(view.stride(d));
  return address_alignment(reinterpret_cast<const void*>(
      reinterpret_cast<std::uintptr_t>(view.data) | steps * dtype_size(view.dtype)));
}

std::int64_t loop_count(const TensorView& view) {
  std::int64_t count = 1;
  for (int d = 0; d < view.ndim() - 3; ++d) count *= view.size(d);
  return count;
}

std::int64_t loop_offset(const TensorView& view, std::int64_t i) {
  std::int64_t offset = 0;
  for (int d = view.ndim() - 4; d >= 0; --d) {
    offset += i % view.size(d) * view.stride(d);
    i /= view.size(d);
  }
  return offset;
}

MatmulShape matmul_shape(const ProductViews& views, LibraryEpilogue epilogue) {
  const int last = views.y.ndim() - 1;
  MatmulShape shape;
  shape.operands = views.a.dtype;
  shape.result = views.y.dtype;
  shape.m = views.y.size(last - 1);
  shape.n = views.y.size(last);
  shape.k = views.a.size(last);
  shape.batch = last > 1 ? views.y.size(last - 2) : 1;
  shape.y = full_layout(views.y);
  shape.a = full_layout(views.a);
  shape.b = full_layout(views.b);
  shape.epilogue = epilogue;
  if (epilogue == LibraryEpilogue::kBiasGeluTanhKept) shape.kept = full_layout(views.kept);
  return shape;
}

}  // namespace meshloom::kernels::cuda
