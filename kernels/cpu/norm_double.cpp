// SPDX-License-Identifier: Apache-2.0
// Norms in float64: plain loops, since float64 serves tests.
#include <cmath>

#include "kernels/cpu/norm_common.h"
#include "kernels/cpu/staging.h"

namespace meshloom::kernels::cpu {
namespace {

double mean_of(const double* x, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  return sum / static_cast<double>(n);
}

double mean_square_about(const double* x, std::int64_t n, double center) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += (x[i] - center) * (x[i] - center);
  return sum / static_cast<double>(n);
}

}  // namespace

template <typename S>
void norm_rows_double(const NormArgs<double, double, S>& args, std::int64_t begin,
                      std::int64_t end) {
  const std::int64_t n = args.columns;
  for (std::int64_t row = begin; row < end; ++row) {
    const double* x = args.x + row * n;
    if (args.residual != nullptr) {
      for (std::int64_t i = 0; i < n; ++i)
        args.sum[row * n + i] = x[i] + args.residual[row * n + i];
      x = args.sum + row * n;
    }
    const double mean = args.rms ? 0.0 : mean_of(x, n);
    const double rstd = 1.0 / std::sqrt(mean_square_about(x, n, mean) + args.eps);
    if (args.mean != nullptr) args.mean[row] = static_cast<S>(mean);
    if (args.rstd != nullptr) args.rstd[row] = static_cast<S>(rstd);
    for (std::int64_t i = 0; i < n; ++i) {
      const double scaled = (x[i] - mean) * rstd * (args.weight != nullptr ? args.weight[i] : 1.0);
      args.y[row * n + i] = scaled + (args.bias != nullptr ? args.bias[i] : 0.0);
    }
  }
}

template <typename S>
void norm_backward_rows_double(const NormBackwardArgs<double, double, S>& args, std::int64_t begin,
                               std::int64_t end) {
  const std::int64_t n = args.columns;
  for (std::int64_t row = begin; row < end; ++row) {
    const double* x = args.x + row * n;
    const double* dy = args.dy + row * n;
    const double mean = args.mean != nullptr ? args.mean[row] : 0.0;
    const double rstd = args.rstd[row];
    double sum = 0.0;
    double product = 0.0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double normalized = (x[i] - mean) * rstd;
      const double grad = dy[i] * (args.weight != nullptr ? args.weight[i] : 1.0);
      sum += grad;
      product += grad * normalized;
      if (args.dweight != nullptr) args.dweight[i] += dy[i] * normalized;
      if (args.dbias != nullptr) args.dbias[i] += dy[i];
    }
    const double center = args.mean != nullptr ? sum / static_cast<double>(n) : 0.0;
    const double slope = product / static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) {
      const double grad = dy[i] * (args.weight != nullptr ? args.weight[i] : 1.0);
      const double dx = rstd * (grad - center - (x[i] - mean) * rstd * slope);
      args.dx[row * n + i] = args.accumulate_dx ? args.dx[row * n + i] + dx : dx;
    }
  }
}

template void norm_rows_double(const NormArgs<double, double, float>&, std::int64_t, std::int64_t);
template void norm_rows_double(const NormArgs<double, double, double>&, std::int64_t, std::int64_t);
template void norm_backward_rows_double(const NormBackwardArgs<double, double, float>&,
                                        std::int64_t, std::int64_t);
template void norm_backward_rows_double(const NormBackwardArgs<double, double, double>&,
                                        std::int64_t, std::int64_t);

const float* as_float32(const TensorView& parameter, float* scratch) {
  if (!parameter.defined()) return nullptr;
  if (parameter.dtype == DType::kFloat32) return parameter.as<const float>();
  gather(scratch, parameter, 0, 1, parameter.numel());
  return scratch;
}

}  // namespace meshloom::kernels::cpu
