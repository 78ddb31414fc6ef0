// SPDX-License-Identifier: Apache-2.0
// How attention's backward is cut into items of work, and the memory of a thread that does them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention/attention_problem.h"
#include "kernels/cpu/simd/bf16_pair.h"
#include "kernels/cpu/span_workspace.h"

namespace meshloom::kernels::cpu {

/// BackwardItem is one thread's work: one kv head with all its query heads, key tiles [stripe /
/// stripes ..).
struct BackwardItem {
  std::int64_t b = 0, kv = 0, stripe = 0, stripes = 1;
  float* dq = nullptr;  // [group][query tiles * kTile][dims_padded], this stripe's share, unscaled
};

/// Returns the number of rows of queries in whole tiles.
inline std::int64_t query_rows(const AttentionProblem& p) { return p.query_tiles * kTile; }

/// BackwardScratch is one thread's memory. Elements are floats or pairs of bfloat16.
template <typename Element>
struct BackwardScratch {
  Element* queries_across;  // per query tile: [dims][kTile], in pairs of dims; floats are scaled to
                            // units of log 2
  Element* grads_across;    // per query tile: [dims_v][kTile], in pairs of dims
  Element* queries;         // [query tiles * kTile][dims_padded], in pairs of queries
  Element* grads;           // [query tiles * kTile][dims_v_padded], in pairs of queries
  float* lse;               // [query tiles * kTile] in units of log 2; +inf where nothing is seen
  float* delta;             // [query tiles * kTile]
  Element* keys;            // [kTile][dims_padded], one key tile, in pairs of dims
  Element* values;          // [kTile][dims_v_padded], one key tile, in pairs of dims
  float* p;                 // [kTile keys][kTile queries] probabilities
  float* ds;                // [kTile keys][kTile queries] score gradients
  float* dk;                // [kTile][dims_padded], one key tile
  float* dv;                // [kTile][dims_v_padded]
  float* factors;           // [kUnit][kPanel] dropout
  // Pairs alone: keys in pairs of keys, p and ds in pairs of queries, ds in pairs of keys.
  Element *key_pairs, *p_pairs, *ds_pairs, *ds_key_pairs;

  static constexpr bool kPairs = kPerElement<Element> == 2;
  static std::int64_t elements(std::int64_t values) { return elements_of<Element>(values); }
  static std::size_t bytes(const AttentionProblem& p) {
    const std::int64_t rows = query_rows(p);
    return piece_bytes<Element>(rows * elements(p.dims_across())) +
           piece_bytes<Element>(rows * elements(p.dims_v_across())) +
           piece_bytes<Element>(elements(rows) * p.dims_padded) +
           piece_bytes<Element>(elements(rows) * p.dims_v_padded) + 2 * piece_bytes<float>(rows) +
           piece_bytes<Element>(kTile * elements(p.dims_padded)) +
           piece_bytes<Element>(kTile * elements(p.dims_v_padded)) +
           piece_bytes<float>(kTile * p.dims_padded) + piece_bytes<float>(kTile * p.dims_v_padded) +
           2 * piece_bytes<float>(kTile * kTile) + piece_bytes<float>(kUnit * kPanel) +
           piece_bytes<Element>(kPairs ? elements(kTile) * p.dims_padded : 0) +
           3 * piece_bytes<Element>(kPairs ? elements(kTile) * kTile : 0);
  }
  BackwardScratch(SpanCutter cutter, const AttentionProblem& problem) {
    const AttentionProblem& a = problem;
    const std::int64_t rows = query_rows(a);
    queries_across = cutter.take<Element>(rows * elements(a.dims_across()));
    grads_across = cutter.take<Element>(rows * elements(a.dims_v_across()));
    queries = cutter.take<Element>(elements(rows) * a.dims_padded);
    grads = cutter.take<Element>(elements(rows) * a.dims_v_padded);
    lse = cutter.take<float>(rows);
    delta = cutter.take<float>(rows);
    keys = cutter.take<Element>(kTile * elements(a.dims_padded));
    values = cutter.take<Element>(kTile * elements(a.dims_v_padded));
    p = cutter.take<float>(kTile * kTile);
    ds = cutter.take<float>(kTile * kTile);
    dk = cutter.take<float>(kTile * a.dims_padded);
    dv = cutter.take<float>(kTile * a.dims_v_padded);
    factors = cutter.take<float>(kUnit * kPanel);
    key_pairs = cutter.take<Element>(kPairs ? elements(kTile) * a.dims_padded : 0);
    p_pairs = cutter.take<Element>(kPairs ? elements(kTile) * kTile : 0);
    ds_pairs = cutter.take<Element>(kPairs ? elements(kTile) * kTile : 0);
    ds_key_pairs = cutter.take<Element>(kPairs ? elements(kTile) * kTile : 0);
  }
};

/// Tells whether heads, or keys of one query, share elements of grad_bias: then one thread at a
/// time may add.
inline bool shared_bias_gradient(const AttentionProblem& p, const TensorView& grad_bias) {
  if (!grad_bias.defined()) return false;
  return (p.batch > 1 && grad_bias.stride(0) == 0) || (p.heads > 1 && grad_bias.stride(1) == 0) ||
         grad_bias.stride(3) == 0;
}

}  // namespace meshloom::kernels::cpu
