// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/batch_invariant_matmul.h"

#include <algorithm>
#include <optional>

#include "kernels/base/error.h"
#include "kernels/base/half.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/matmul/few_rows.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/matmul_direct.h"
#include "kernels/cpu/span_workspace.h"

namespace meshloom::kernels::cpu {
namespace {

// A product of all rows, so many of them at once: by few_rows, or matmul of one row after the
// other.
class RowGroups {
 public:
  RowGroups(Threads threads, const TensorView& y, const TensorView& a, const TensorView& b,
            const MatmulOptions& options)
      : y_(y), a_(a), b_(b), options_(options) {
    check(y.ndim() == 2 && a.ndim() == 2 && !options.pre_activation.defined(),
          "matmul: batch_invariant is for matrices without a pre-activation, y has {} dims",
          y.ndim());
    const std::int64_t most = std::min(y.size(0), kMostFewRows);
    by_few_rows_ = few_rows(threads, 0, 1) && few_rows(threads, 0, most);
    if (by_few_rows_) {
      rows_ = most;
      bytes_ = few_rows(threads, 0, most)->scratch_bytes();
      return;
    }
    options_.batch_invariant = false;
    // A row alone begins at an address that pairs of bfloat16 may be read from.
    realigned_ = a.dtype == DType::kBFloat16 && a.stride(0) % 2 != 0;
    bytes_ = matmul_workspace_bytes(threads, rows_of(y, 0, 1), rows_of(a, 0, 1), b, options_);
  }

  std::size_t workspace_bytes() const { return row_bytes() + bytes_; }

  void run(const KernelContext& context, std::span<std::byte> scratch) const {
    SpanCutter cutter(scratch);
    const std::int64_t k = a_.size(1);
    TensorView row{nullptr, a_.dtype, {1, k}, {k, 1}, kCpuDevice};
    if (realigned_) row.data = cutter.take<bfloat16>(k);
    SpanWorkspace rest(cutter.rest());
    KernelContext inner = context;
    inner.workspace = &rest;
    for (std::int64_t first = 0; first < y_.size(0); first += rows_) {
      if (by_few_rows_) {
        const std::int64_t count = std::min(rows_, y_.size(0) - first);
        few_rows(context.threads, first, count)->run(context, cutter.rest());
        continue;
      }
      if (realigned_) cpu_backend().copy(context, row, rows_of(a_, first, 1));
      cpu_backend().matmul(inner, rows_of(y_, first, 1), realigned_ ? row : rows_of(a_, first, 1),
                           b_, options_);
    }
  }

 private:
  // Rows [first, first + count) by few_rows; none where the table or the views do not allow it.
  std::optional<DirectProduct> few_rows(Threads threads, std::int64_t first,
                                        std::int64_t count) const {
    const std::optional<DirectProduct> product = DirectProduct::plan(
        threads, rows_of(y_, first, count), rows_of(a_, first, count), b_, options_, {});
    return product && product->provider() == MatmulProvider::kFewRows ? product : std::nullopt;
  }

  std::size_t row_bytes() const { return realigned_ ? piece_bytes<bfloat16>(a_.size(1)) : 0; }

  const TensorView &y_, &a_, &b_;
  MatmulOptions options_;
  bool by_few_rows_ = false;
  std::int64_t rows_ = 1;  // at once
  bool realigned_ = false;
  std::size_t bytes_ = 0;  // of the workspace, for a product
};

}  // namespace

void batch_invariant_matmul(const KernelContext& context, const TensorView& y, const TensorView& a,
                            const TensorView& b, const MatmulOptions& options) {
  const RowGroups groups(context.threads, y, a, b, options);
  groups.run(context, reserve_workspace(context, groups.workspace_bytes(), "matmul"));
}

std::size_t batch_invariant_workspace_bytes(Threads threads, const TensorView& y,
                                            const TensorView& a, const TensorView& b,
                                            const MatmulOptions& options) {
  return RowGroups(threads, y, a, b, options).workspace_bytes();
}

}  // namespace meshloom::kernels::cpu
