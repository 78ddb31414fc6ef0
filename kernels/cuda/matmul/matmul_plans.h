// SPDX-License-Identifier: Apache-2.0
// The plans of this process.
#pragma once

#include <memory>

#include "kernels/cuda/matmul/matmul_plan.h"

namespace meshloom::kernels::cuda {

/// The kernel that the table names (matmul_table.h).
inline constexpr int kTablesKernel = -1;

/// The plan of a shape on a device, made where there is none; null where the library has none.
/// `kernel`: its place among those that the library lists. For any thread.
std::shared_ptr<MatmulPlan> matmul_plan_of(int device, const MatmulShape& shape,
                                           int kernel = kTablesKernel);

}  // namespace meshloom::kernels::cuda
