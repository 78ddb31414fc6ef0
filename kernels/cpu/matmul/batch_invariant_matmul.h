// SPDX-License-Identifier: Apache-2.0
// Products whose rows have the bits that each has alone (MatmulOptions::batch_invariant).
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// Does what matmul does of each row of y and a, which have 2 dims, by itself. The own kernel of a
/// few rows keeps rows apart, so that it takes as many as it can at once; libraries choose their
/// loops by the number of rows, so that they get one row at a time.
void batch_invariant_matmul(const KernelContext&, const TensorView& y, const TensorView& a,
                            const TensorView& b, const MatmulOptions&);

/// Returns the bytes that it takes of the workspace.
std::size_t batch_invariant_workspace_bytes(Threads threads, const TensorView& y,
                                            const TensorView& a, const TensorView& b,
                                            const MatmulOptions&);

}  // namespace meshloom::kernels::cpu
