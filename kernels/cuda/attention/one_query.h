// SPDX-License-Identifier: Apache-2.0
// Attention of one query over all of the keys there are: a token of generation.
#pragma once

#include <span>

#include "kernels/backend.h"

namespace meshloom::kernels::cuda {

/// Attention of a call with one query a batch row, which sees every key and whose scores nothing
/// changes; each row gets the bits that it has in one_query_rows.
void one_query_attention(const KernelContext&, const AttentionOutputs&, const AttentionInputs&,
                         const AttentionOptions&);
/// What Backend::attention_rows does. Partial sums are in the workspace.
void one_query_rows(const KernelContext&, const AttentionOutputs&, const TensorView& q,
                    std::span<const AttentionMemory>, double scale);

}  // namespace meshloom::kernels::cuda
