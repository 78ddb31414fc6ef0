// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/invariant_rows.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/cuda/matmul/product.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {
namespace {

TensorView row_group(void* data, const TensorView& like) {
  return make_view(data, like.dtype, {kInvariantRows, like.size(1)}, like.device);
}

// Rows [first, ...) of `from`, then zeros.
void fill_group(Backend& copies, const KernelContext& context, const TensorView& group,
                const TensorView& from, std::int64_t first, std::int64_t count) {
  copies.copy(context, rows_of(group, 0, count), rows_of(from, first, count));
  if (count < kInvariantRows)
    copies.fill(context, rows_of(group, count, kInvariantRows - count), 0.0);
}

}  // namespace

void invariant_rows_matmul(Backend& copies, int device, const KernelContext& context,
                           const TensorView& y, const TensorView& a, const TensorView& b,
                           const MatmulOptions& options) {
  check(y.ndim() == 2 && a.ndim() == 2 && !options.pre_activation.defined(),
        "matmul: batch_invariant is for matrices without a pre-activation, y has {} dims",
        y.ndim());
  MatmulOptions together = options;
  together.batch_invariant = false;
  const auto product_of = [&](void* y_rows, void* a_rows) {
    return Product(copies, device, row_group(y_rows, y), row_group(a_rows, a), b, together);
  };
  const std::size_t y_bytes = scratch_piece(row_group(nullptr, y).bytes());
  const std::size_t a_bytes = scratch_piece(row_group(nullptr, a).bytes());
  const std::size_t product_bytes = product_of(nullptr, nullptr).scratch_bytes();
  const std::span<std::byte> scratch =
      reserve_scratch(context, y_bytes + a_bytes + product_bytes, "matmul");
  const TensorView y_rows = row_group(scratch.data(), y);
  const TensorView a_rows = row_group(scratch.data() + y_bytes, a);
  const Product product = product_of(y_rows.data, a_rows.data);
  KernelContext inner = context;
  inner.workspace = nullptr;
  for (std::int64_t first = 0; first < y.size(0); first += kInvariantRows) {
    const std::int64_t count = std::min(kInvariantRows, y.size(0) - first);
    fill_group(copies, inner, a_rows, a, first, count);
    if (options.beta != 0.0f) fill_group(copies, inner, y_rows, y, first, count);
    product.run(context, scratch.last(product_bytes));
    copies.copy(inner, rows_of(y, first, count), rows_of(y_rows, 0, count));
  }
}

}  // namespace meshloom::kernels::cuda
