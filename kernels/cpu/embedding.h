// SPDX-License-Identifier: Apache-2.0
// Rows of a table by id, and the gradient of the table: calls of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::embedding.
void embedding(const KernelContext&, const TensorView& y, const TensorView& weight,
               const TensorView& ids);
/// As Backend::embedding_backward.
void embedding_backward(const KernelContext&, const TensorView& dweight, const TensorView& dy,
                        const TensorView& ids, std::int64_t padding_idx);

}  // namespace meshloom::kernels::cpu
