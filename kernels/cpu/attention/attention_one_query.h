// SPDX-License-Identifier: Apache-2.0
// Attention of a single query per head, as generation asks for at every token: bound by reading the
// keys and values once, where tiles would compute as many queries as a vector has lanes.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// Tells whether attention_one_query is for this call: one query that sees every key, no bias and
/// no dropout, dense rows of float32 or bfloat16 whose sizes are whole vectors, no carry.
bool is_one_query(const AttentionOutputs&, const AttentionInputs&, const AttentionOptions&);

/// Does what Backend::attention does for such calls. A head's result depends neither on the threads
/// nor on the other heads and batch rows.
void attention_one_query(const KernelContext&, const AttentionOutputs&, const AttentionInputs&,
                         const AttentionOptions&);

/// Tells the same for Backend::attention_rows: every row has dense keys and values that are worth
/// it, so that all rows' heads are split over the threads at once.
bool is_one_query_each(const AttentionOutputs&, const TensorView& q,
                       std::span<const AttentionMemory>);

}  // namespace meshloom::kernels::cpu
