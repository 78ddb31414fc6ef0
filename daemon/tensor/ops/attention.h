// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention and rotary embedding.
#pragma once

#include <memory>
#include <span>

#include "daemon/tensor/tensor.h"
#include "kernels/options.h"
#include "planner/attention/document_rows.h"

namespace meshloom::ops {

struct SdpaOptions {
  bool is_causal = false;
  bool causal_bottom_right = false;  ///< query i sees keys j <= i + Skv - Sq (may be negative)
  double scale = 0.0;                ///< 0: 1 / sqrt(D)
  std::int64_t window_left = -1;     ///< -1: no limit
  std::int64_t window_right = -1;
  bool alibi = false;        ///< standard slopes, also for head counts that are no power of two
  bool enable_gqa = false;   ///< Hq may be a multiple of Hkv
  Tensor bias = {};          ///< float, broadcastable to [B,Hq,Sq,Skv]; may require a gradient
  Tensor document_ids = {};  ///< int64 [B,S]; Sq == Skv
  /// The rows say what document_ids say, for attention that is planned over ranks; null: it reads
  /// them there.
  std::shared_ptr<const planner::DocumentRows> document_rows = nullptr;
  float dropout_p = 0.0f;
  PhiloxStream dropout_random = {};
  std::int64_t dropout_first_head =
      0;  ///< global index of (batch 0, head 0): first row * Hq on dp ranks
};

struct SdpaResult {
  Tensor o;    ///< [B,Hq,Sq,Dv]
  Tensor lse;  ///< [B,Hq,Sq] float32, no gradient
};

/// q [B,Hq,Sq,D], k [B,Hkv,Skv,D], v [B,Hkv,Skv,Dv], any strides. Throws InvalidArgument naming
/// what does not fit.
SdpaResult scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                        const SdpaOptions& = {});

/// KeyValue holds the keys and values of one batch row.
struct KeyValue {
  Tensor k, v;  ///< [1,Hkv,L,D], [1,Hkv,L,Dv]
};
/// Computes attention of one query of each batch row over keys and values of its own: row b of q
/// [B,Hq,1,D] sees all of rows[b], Hq a multiple of Hkv, lengths L of any kind from 1 on. Each row
/// of the result [B,Hq,1,Dv] has the bits that scaled_dot_product_attention of it alone gives. No
/// gradient is recorded. Throws InvalidArgument naming what does not fit.
Tensor attention_of_rows(const Tensor& q, std::span<const KeyValue> rows, double scale = 0.0);

/// Rotates x [B,H,S,D]; cos and sin float32 [positions, D/2]; positions int64 [B,S] or undefined:
/// position_offset + s.
Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& positions = {},
            std::int64_t position_offset = 0);

/// Returns ALiBi slopes for `heads` heads (Press, Smith, Lewis, "Train Short, Test Long", 2022).
std::vector<float> alibi_slopes(int heads);

}  // namespace meshloom::ops
