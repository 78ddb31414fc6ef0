// SPDX-License-Identifier: Apache-2.0
// Ids of tokens and classes: calls of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::slice_ids.
void slice_ids(const TensorView& places, const TensorView& ids, const IdSlice& slice);
/// As Backend::first_id_outside.
void first_id_outside(const TensorView& found, const TensorView& ids, std::int64_t limit,
                      std::optional<std::int64_t> allowed);
/// As Backend::count_ids.
void count_ids(const TensorView& count, const TensorView& ids, std::int64_t id);

}  // namespace meshloom::kernels::cpu
