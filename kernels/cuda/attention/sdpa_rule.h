// SPDX-License-Identifier: Apache-2.0
// Which attention calls cuDNN is given. Its own checks accept more than its engines can run, so the
// rule is ours: bfloat16; no carry, accumulation, positions, documents, bias, ALiBi or dropout; a
// mask that is full or causal from either corner, with a window to the left; a key for every query;
// head dims in multiples of 8, at most 128; dense last dims and addresses of whole 16 bytes.
#pragma once

#include <compare>
#include <optional>

#include "kernels/options.h"

namespace meshloom::kernels::cuda {

enum class SdpaMask : std::uint8_t { kFull, kCausalTopLeft, kCausalBottomRight };

/// Strides in elements of [B, H, S, D] with dense D.
struct SdpaLayout {
  std::int64_t batch = 0, head = 0, row = 0;

  auto operator<=>(const SdpaLayout&) const = default;
};

/// All that a plan is made for.
struct SdpaShape {
  bool backward = false;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, dims = 0, dims_v = 0;
  SdpaMask mask = SdpaMask::kFull;
  /// Keys that a query of a causal mask sees to the left of its diagonal; -1: all.
  std::int64_t window_left = -1;
  float scale = 0.0f;
  SdpaLayout q, k, v, o;
  SdpaLayout grad_o, dq, dk, dv;  ///< of a backward plan

  auto operator<=>(const SdpaShape&) const = default;
};

/// What cuDNN is asked for, or why it is not asked, in a few words of
/// a table. Lse and delta are contiguous where it is asked.
struct SdpaChoice {
  std::optional<SdpaShape> shape;
  const char* why_not = nullptr;
};
SdpaChoice choose_sdpa(const AttentionOutputs&, const AttentionInputs&, const AttentionOptions&);
SdpaChoice choose_sdpa(const AttentionGrads&, const AttentionInputs&, const AttentionOptions&);

}  // namespace meshloom::kernels::cuda
