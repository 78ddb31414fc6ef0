// SPDX-License-Identifier: Apache-2.0
// Dropout and random fills by Philox on the global element index: calls of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::dropout.
void dropout(const KernelContext&, const TensorView& y, const TensorView& x, const DropoutOptions&);
/// As Backend::fill_normal.
void fill_normal(const KernelContext&, const TensorView& dst, const PhiloxStream&,
                 std::uint64_t first_index, float mean, float std);
/// As Backend::fill_uniform.
void fill_uniform(const KernelContext&, const TensorView& dst, const PhiloxStream&,
                  std::uint64_t first_index, float low, float high);

}  // namespace meshloom::kernels::cpu
