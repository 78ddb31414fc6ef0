// SPDX-License-Identifier: Apache-2.0
// Cross entropy from logits: calls of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::cross_entropy.
void cross_entropy(const KernelContext&, const CrossEntropyRows&, const CrossEntropyOptions&);
/// As Backend::combine_class_slices.
void combine_class_slices(const CrossEntropyRows&, const TensorView& slices,
                          std::int64_t ignore_index);
/// As Backend::cross_entropy_backward.
void cross_entropy_backward(const KernelContext&, const TensorView& dlogits,
                            const TensorView& grad_losses, const CrossEntropyRows&,
                            const CrossEntropyOptions&);

}  // namespace meshloom::kernels::cpu
