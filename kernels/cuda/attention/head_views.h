// SPDX-License-Identifier: Apache-2.0
// How the host makes plain data of attention's views and options. For .cpp files alone.
#pragma once

#include "kernels/cuda/attention/flash_launch.h"
#include "kernels/options.h"

namespace meshloom::kernels::cuda {

/// Takes views [B, H, S, D], or [B, H, S], whose last stride is 0 then.
HeadStrides head_strides(const TensorView& view);
HeadView head_view(const TensorView& view);
QueryNumbers query_numbers(const TensorView& view);
/// options.scale, or 1 / sqrt(D).
float scale_of(const AttentionInputs& in, double scale);
ScoreRules score_rules(const AttentionInputs& in, const AttentionOptions& options);
/// Throws Unimplemented for heads of more than kMostHeadDims or of float8, and for an lse that is
/// neither float32 nor float64.
void check_heads(const AttentionInputs& in);
void check_numbers(const TensorView& view, const char* what);

}  // namespace meshloom::kernels::cuda
