// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm, with and without the residual add before: calls of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::layer_norm.
void layer_norm(const KernelContext&, const TensorView& y, const TensorView& mean,
                const TensorView& rstd, const TensorView& x, const TensorView& weight,
                const TensorView& bias, const NormOptions&);
/// As Backend::layer_norm_backward.
void layer_norm_backward(const KernelContext&, const TensorView& dx, const TensorView& dweight,
                         const TensorView& dbias, const TensorView& dy, const TensorView& x,
                         const TensorView& weight, const TensorView& mean, const TensorView& rstd,
                         bool accumulate_dx, bool accumulate_params);
/// As Backend::rms_norm.
void rms_norm(const KernelContext&, const TensorView& y, const TensorView& rstd,
              const TensorView& x, const TensorView& weight, const NormOptions&);
/// As Backend::rms_norm_backward.
void rms_norm_backward(const KernelContext&, const TensorView& dx, const TensorView& dweight,
                       const TensorView& dy, const TensorView& x, const TensorView& weight,
                       const TensorView& rstd, bool accumulate_dx, bool accumulate_params);
/// As Backend::add_norm.
void add_norm(const KernelContext&, const TensorView& y, const TensorView& sum,
              const TensorView& mean, const TensorView& rstd, const TensorView& x,
              const TensorView& residual, const TensorView& weight, const TensorView& bias,
              bool rms, const NormOptions&);

}  // namespace meshloom::kernels::cpu
