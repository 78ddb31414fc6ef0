// SPDX-License-Identifier: Apache-2.0
// Products whose rows have the bits that each has alone (MatmulOptions::batch_invariant).
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cuda {

/// Rows of one product, whatever the call has.
inline constexpr std::int64_t kInvariantRows = 16;

/// Multiplies as Backend::matmul with batch_invariant does; none of the sizes is 0. Libraries
/// choose a kernel by the number of rows and promise nothing between two, so all rows go through
/// the plan for kInvariantRows, in scratch memory, padded with zeros. `device` and `copies` as
/// Product has them.
void invariant_rows_matmul(Backend& copies, int device, const KernelContext& context,
                           const TensorView& y, const TensorView& a, const TensorView& b,
                           const MatmulOptions& options);

}  // namespace meshloom::kernels::cuda
