// SPDX-License-Identifier: Apache-2.0
// Scores of the attention kernels, for one target: exp2, and what masks and biases do to them.
// Included once per target after hwy/highway.h (the guard toggles).
//
// Score tiles are stored transposed, tile[key][query] with rows of kTile floats: lanes are queries,
// so that softmax needs no sum or maximum across lanes.
#if defined(MESHLOOM_KERNELS_CPU_ATTENTION_TILE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_ATTENTION_TILE_H_
#undef MESHLOOM_KERNELS_CPU_ATTENTION_TILE_H_
#else
#define MESHLOOM_KERNELS_CPU_ATTENTION_TILE_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/attention/attention_problem.h"
#include "kernels/cpu/attention/attention_products.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace tile {

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2 = 0.693147181f;
// Minimax fit of (2^f - 1) / f on [-1/2, 1/2], relative error of 2^f 9e-8.
inline constexpr float kExp2C1 = 0.693147004f;
inline constexpr float kExp2C2 = 0.240222424f;
inline constexpr float kExp2C3 = 0.0555073358f;
inline constexpr float kExp2C4 = 0.00967151299f;
inline constexpr float kExp2C5 = 0.00132647273f;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Computes 2^x for x <= 127; below 2^-126.5 the result is 0; NaN stays NaN. Within 2 ulp.
HWY_INLINE V exp2(V x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  // Adding 1.5 * 2^23 + 127 rounds to an integer whose low bits are the exponent field of 2^n. At
  // the lower bound that field is 0, which makes the factor, and so the result, 0.
  const V magic = hn::Set(d, 12582912.0f + 127.0f);
  x = hn::Max(hn::Set(d, -127.0f), x);
  const V shifted = hn::Add(x, magic);
  const V f = hn::Sub(x, hn::Sub(shifted, magic));
  V p = hn::MulAdd(hn::Set(d, kExp2C5), f, hn::Set(d, kExp2C4));
  p = hn::MulAdd(p, f, hn::Set(d, kExp2C3));
  p = hn::MulAdd(p, f, hn::Set(d, kExp2C2));
  p = hn::MulAdd(p, f, hn::Set(d, kExp2C1));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

/// HeadScope is one (batch row, query head) and what the score modifiers of AttentionOptions mean
/// there.
struct HeadScope {
  HeadScope(const AttentionProblem& of, std::int64_t batch_row, std::int64_t query_head)
      : problem(of),
        options(*of.options),
        b(batch_row),
        h(query_head),
        query_documents(of.documents_of_queries(b)),
        key_documents(of.documents_of_keys(b)) {
    if (options.bias.defined()) bias = head_rows(options.bias, b, h);
    if (options.alibi_slopes.defined())
      slope = options.alibi_slopes.as<float>()[h * options.alibi_slopes.stride(0)];
  }

  const AttentionProblem& problem;
  const AttentionOptions& options;
  std::int64_t b, h;
  IdTable query_documents, key_documents;
  HeadRows bias;
  float slope = 0.0f;
};

// Scores here and below are in units of log 2: natural scores times log2(e).
HWY_INLINE void add_bias(const HeadScope& head, float* scores, std::int64_t query,
                         std::int64_t key) {
  const std::int64_t keys = std::min(kUnit, head.problem.keys - key);
  const std::int64_t queries = std::min(kPanel, head.problem.queries - query);
  for (std::int64_t q = 0; q < queries; ++q) {
    const float* bias =
        reinterpret_cast<const float*>(head.bias.row(query + q)) + key * head.bias.stride;
    for (std::int64_t k = 0; k < keys; ++k)
      scores[k * kTile + q] += kLog2E * bias[k * head.bias.stride];
  }
}

HWY_INLINE void add_alibi(const HeadScope& head, float* scores, std::int64_t query,
                          std::int64_t key) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const V slope = hn::Set(d, -kLog2E * head.slope);
  const std::int32_t* queries = head.problem.query_positions.ids + query;
  const std::int32_t* keys = head.problem.key_positions.ids + key;
  for (std::int64_t k = 0; k < kUnit; ++k)
    for (std::int64_t q = 0; q < kPanel; q += lanes()) {
      float* at = scores + k * kTile + q;
      const auto distance = hn::Sub(hn::LoadU(di, queries + q), hn::Set(di, keys[k]));
      const V far = hn::Abs(hn::ConvertTo(d, distance));
      hn::StoreU(hn::MulAdd(slope, far, hn::LoadU(d, at)), d, at);
    }
}

// Returns position + by, held within int32.
HWY_INLINE std::int32_t shifted_position(std::int32_t position, std::int64_t by) {
  constexpr std::int64_t kLow = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t kHigh = std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int32_t>(std::clamp(position + by, kLow, kHigh));
}

/// Turns products of one unit of keys by one panel of queries into scores.
HWY_INLINE void scale_unit(float* scores, float factor) {
  const F32 d;
  const V scale = hn::Set(d, factor);
  for (std::int64_t k = 0; k < kUnit; ++k)
    for (std::int64_t q = 0; q < kPanel; q += lanes()) {
      float* at = scores + k * kTile + q;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), scale), d, at);
    }
}

/// row *= factor; whole vectors.
HWY_INLINE void scale_row(float* row, std::int64_t count, float factor) {
  if (factor == 1.0f) return;
  const F32 d;
  const V scale = hn::Set(d, factor);
  for (std::int64_t i = 0; i < count; i += lanes())
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), scale), d, row + i);
}

/// Sets -inf where a query does not see a key.
HWY_INLINE void mask_unit(const HeadScope& head, float* scores, std::int64_t query,
                          std::int64_t key) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const AttentionProblem& p = head.problem;
  const V hidden = hn::Set(d, kMinusInfinity);
  const std::int32_t* queries = p.query_positions.ids + query;
  for (std::int64_t k = 0; k < kUnit; ++k) {
    float* row = scores + k * kTile;
    if (key + k >= p.keys) {
      std::fill_n(row, kPanel, kMinusInfinity);
      continue;
    }
    const std::int32_t position = p.key_positions.ids[key + k];
    const auto lowest = hn::Set(di, shifted_position(position, -std::int64_t{p.farthest}));
    const auto highest = hn::Set(di, shifted_position(position, -std::int64_t{p.nearest}));
    for (std::int64_t q = 0; q < kPanel; q += lanes()) {
      const auto at = hn::LoadU(di, queries + q);
      auto outside = hn::Or(hn::Lt(at, lowest), hn::Gt(at, highest));
      if (head.query_documents) {
        const auto document = hn::LoadU(di, head.query_documents.ids + query + q);
        outside = hn::Or(outside, hn::Ne(document, hn::Set(di, head.key_documents.ids[key + k])));
      }
      hn::StoreU(hn::IfThenElse(hn::RebindMask(d, outside), hidden, hn::LoadU(d, row + q)), d,
                 row + q);
    }
  }
}

/// Does everything but the product q k that makes a score, on one unit of keys by one panel of
/// queries that start at the given indices.
HWY_INLINE void modify_unit(const HeadScope& head, float* scores, std::int64_t query,
                            std::int64_t key, bool partly) {
  if (head.bias.data != nullptr) add_bias(head, scores, query, key);
  if (head.slope != 0.0f) add_alibi(head, scores, query, key);
  if (partly) mask_unit(head, scores, query, key);
}

}  // namespace tile
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
