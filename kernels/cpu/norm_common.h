// SPDX-License-Identifier: Apache-2.0
// What the files of the norms share: plain arguments of the row kernels and the float64 versions.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// NormArgs holds arguments of the forward row kernels for elements T, parameters F and statistics
/// S; what is null is not read or not kept.
template <typename T, typename F, typename S = float>
struct NormArgs {
  std::int64_t columns = 0;
  F eps = 0;
  bool rms = false;
  bool stream = false;
  const T* x = nullptr;
  const T* residual = nullptr;
  T* sum = nullptr;
  T* y = nullptr;
  const F* weight = nullptr;
  const F* bias = nullptr;
  S* mean = nullptr;
  S* rstd = nullptr;
};

/// NormBackwardArgs holds arguments of the backward row kernels. mean is null for RMS norm; dweight
/// and dbias are this thread's own sums.
template <typename T, typename F, typename S = float>
struct NormBackwardArgs {
  std::int64_t columns = 0;
  bool accumulate_dx = false;
  bool stream = false;
  const T* x = nullptr;
  const T* dy = nullptr;
  T* dx = nullptr;
  const F* weight = nullptr;
  const S* mean = nullptr;
  const S* rstd = nullptr;
  F* dweight = nullptr;
  F* dbias = nullptr;
};

/// float64, rows [begin, end); S is float or double.
template <typename S>
void norm_rows_double(const NormArgs<double, double, S>& args, std::int64_t begin,
                      std::int64_t end);
template <typename S>
void norm_backward_rows_double(const NormBackwardArgs<double, double, S>& args, std::int64_t begin,
                               std::int64_t end);

/// Returns the number of rows of a [.., C] view, 0 where C is 0.
inline std::int64_t row_count(const TensorView& view) {
  return view.shape.back() == 0 ? 0 : view.numel() / view.shape.back();
}

/// Returns a float32 copy of an optional [C] parameter at `scratch`, or the parameter itself where
/// it is float32 already; null where not given.
const float* as_float32(const TensorView& parameter, float* scratch);

}  // namespace meshloom::kernels::cpu
