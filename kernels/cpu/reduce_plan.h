// SPDX-License-Identifier: Apache-2.0
// How a reduction walks its input: kept and reduced dims apart, merged and ordered by stride; and
// what it takes of it.
#pragma once

#include "kernels/base/tensor_view.h"
#include "kernels/cpu/strided_loop.h"

namespace meshloom::kernels::cpu {

/// A reduction takes this over the elements: their sum, the sum of squared distances to a center,
/// the maximum.
enum class Term { kSum, kSquares, kMax };
template <Term term>
struct TermTag {};

/// Rows whose columns are taken in at once: enough that the running sums cost little, few enough
/// that the CPU follows them all on their way from memory.
inline constexpr int kFoldedRows = 8;

/// kept: views {x, y}; reduced: view {x}. Both have at least one dim.
struct ReducePlan {
  StridedLoop<2> kept;
  StridedLoop<1> reduced;

  /// Tells whether the reduced elements of one output are dense in x.
  bool dense_rows() const { return reduced.row_stride(0) == 1; }
  /// Tells whether neighbouring outputs are neighbours in x.
  bool dense_columns() const { return kept.row_stride(0) == 1; }
};

/// The dims of x are reduced where y's size is 1 and x's is not.
inline ReducePlan make_reduce_plan(const TensorView& y, const TensorView& x) {
  TensorView kept_x, kept_y, reduced_x;
  for (int d = 0; d < x.ndim(); ++d) {
    if (x.size(d) == 1) continue;
    if (y.size(d) == 1) {
      reduced_x.shape.push_back(x.size(d));
      reduced_x.strides.push_back(x.stride(d));
    } else {
      kept_x.shape.push_back(x.size(d));
      kept_x.strides.push_back(x.stride(d));
      kept_y.shape.push_back(x.size(d));
      kept_y.strides.push_back(y.stride(d));
    }
  }
  ReducePlan plan;
  plan.kept = make_strided_loop<2>({&kept_x, &kept_y});
  plan.reduced = make_strided_loop<1>({&reduced_x});
  // A single reduced or kept element is as good as dense.
  if (reduced_x.shape.empty()) plan.reduced.strides[0][0] = 1;
  return plan;
}

}  // namespace meshloom::kernels::cpu
