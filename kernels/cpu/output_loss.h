// SPDX-License-Identifier: Apache-2.0
// Output projection and cross entropy by chunks of rows: the calls of Backend of the same names.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

OutputLossPlan output_loss_plan(const TensorView& hidden, const TensorView& weight,
                                std::int64_t widest);
void output_loss_chunk(const KernelContext& context, const TensorView& losses,
                       const TensorView& lse, const TensorView& logits, const TensorView& hidden,
                       const TensorView& weight, const TensorView& bias, const TensorView& targets,
                       const CrossEntropyOptions& options);
void output_loss_products(const KernelContext& context, const TensorView& dhidden,
                          const TensorView& dweight, const TensorView& dbias,
                          const TensorView& gradient, const TensorView& hidden,
                          const TensorView& weight, bool accumulate_params);

}  // namespace meshloom::kernels::cpu
