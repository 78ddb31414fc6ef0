// SPDX-License-Identifier: Apache-2.0
// Output projection and cross entropy by chunks of rows: the calls of Backend of the same names.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

OutputLossPlan output_loss_plan(const TensorView& hidden, const TensorView& weight,
                                std::int64_t widest);
void output_loss_chunk(const KernelContext&, const CrossEntropyRows&, const OutputProjection&,
                       const CrossEntropyOptions&);
void output_loss_products(const KernelContext&, const OutputLossGrads&, const TensorView& gradient,
                          const OutputProjection&);

}  // namespace meshloom::kernels::cpu
