// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/batch_invariant_matmul.h"

#include <algorithm>
#include <optional>

#include "kernels/base/error.h"
#include "kernels/base/half.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/matmul_direct.h"
#include "kernels/cpu/span_workspace.h"

namespace meshloom::kernels::cpu {
namespace {

// A product of some of the rows: matmul of views that it is given so many of at once.
class RowGroups {
 public:
  RowGroups(Threads threads, const TensorView& y, const TensorView& a, const TensorView& b,
            const MatmulOptions& options)
      : y_(y), a_(a), b_(b), options_(options) {
    check(y.ndim() == 2 && a.ndim() == 2 && !options.pre_activation.defined(),
          "matmul: batch_invariant is for matrices without a pre-activation, y has {} dims",
          y.ndim());
    options_.batch_invariant = false;
    const std::int64_t most = std::min(y.size(0), kMostFewRows);
    const auto by_few_rows = [&](std::int64_t count) {
      const std::optional<DirectProduct> product =
          DirectProduct::plan(threads, rows_of(y, 0, count), rows_of(a, 0, count), b, options_, {});
      return product && product->provider() == MatmulProvider::kFewRows;
    };
    if (by_few_rows(1) && by_few_rows(most)) rows_ = most;
    // A row alone begins at an address that pairs of bfloat16 may be read from.
    realigned_ = rows_ == 1 && a.dtype == DType::kBFloat16 && a.stride(0) % 2 != 0;
    bytes_ =
        matmul_workspace_bytes(threads, rows_of(y, 0, rows_), rows_of(a, 0, rows_), b, options_);
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
      const std::int64_t count = std::min(rows_, y_.size(0) - first);
      if (realigned_) copy(context, row, rows_of(a_, first, 1));
      matmul(inner, rows_of(y_, first, count), realigned_ ? row : rows_of(a_, first, count), b_,
             options_);
    }
  }

 private:
  std::size_t row_bytes() const { return realigned_ ? piece_bytes<bfloat16>(a_.size(1)) : 0; }

  const TensorView &y_, &a_, &b_;
  MatmulOptions options_;
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
