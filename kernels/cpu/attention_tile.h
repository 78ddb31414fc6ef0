// SPDX-License-Identifier: Apache-2.0
// Building blocks of the attention kernels, for one target: small matrix products in registers,
// packing of rows into tiles, exp2, and what masks and biases do to scores. Included once per
// target after hwy/highway.h (the guard toggles).
//
// Score tiles are stored transposed, tile[key][query] with rows of kTile floats: lanes are queries,
// so that softmax needs no sum or maximum across lanes.
#if defined(MESHLOOM_KERNELS_CPU_ATTENTION_TILE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_ATTENTION_TILE_H_
#undef MESHLOOM_KERNELS_CPU_ATTENTION_TILE_H_
#else
#define MESHLOOM_KERNELS_CPU_ATTENTION_TILE_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/attention_problem.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace tile {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

// Rows of a register tile: with two vectors per row it fills the registers (32 or 16) but for the
// operands.
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
inline constexpr int kRegisterRows = 12;
#else
inline constexpr int kRegisterRows = 6;
#endif

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2 = 0.693147181f;
// Minimax fit of (2^f - 1) / f on [-1/2, 1/2], relative error of 2^f 9e-8.
inline constexpr float kExp2C1 = 0.693147004f;
inline constexpr float kExp2C2 = 0.240222424f;
inline constexpr float kExp2C3 = 0.0555073358f;
inline constexpr float kExp2C4 = 0.00967151299f;
inline constexpr float kExp2C5 = 0.00132647273f;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(F32())); }

// acc[m][v] += sum over p < depth of a[m * kRowStep + p * kDepthStep] * b[p * ldb + v * lanes ..].
template <int kRows, int kVectors, int kRowStep, int kDepthStep>
HWY_INLINE void multiply(std::int64_t depth, const float* HWY_RESTRICT a,
                         const float* HWY_RESTRICT b, std::int64_t ldb, V (&acc)[kRows][kVectors]) {
  const F32 d;
  const std::int64_t n = lanes();
  for (std::int64_t p = 0; p < depth; ++p) {
    V row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * n);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const V value = hn::Set(d, a[m * kRowStep]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[m][v] = hn::MulAdd(value, row[v], acc[m][v]);
    }
    a += kDepthStep;
    b += ldb;
  }
}

// As above with rows of a `row_step` apart and their elements next to each other. Three rows share
// a base pointer, which x86 addresses as base, base + step and base + 2 step: a pointer per row
// would not fit its registers.
template <int kRows, int kVectors>
HWY_INLINE void multiply_rows(std::int64_t depth, const float* HWY_RESTRICT a,
                              std::int64_t row_step, const float* HWY_RESTRICT b, std::int64_t ldb,
                              V (&acc)[kRows][kVectors]) {
  static_assert(kRows % 3 == 0);
  const F32 d;
  const std::int64_t n = lanes();
  const float* base[kRows / 3];
#pragma GCC unroll 4
  for (int g = 0; g < kRows / 3; ++g) base[g] = a + 3 * g * row_step;
  for (std::int64_t p = 0; p < depth; ++p) {
    V row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * n);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const V value = hn::Set(d, base[m / 3][(m % 3) * row_step]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[m][v] = hn::MulAdd(value, row[v], acc[m][v]);
    }
#pragma GCC unroll 4
    for (int g = 0; g < kRows / 3; ++g) ++base[g];
    b += ldb;
  }
}

template <int kRows, int kVectors>
HWY_INLINE void clear(V (&acc)[kRows][kVectors]) {
  const F32 d;
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[m][v] = hn::Zero(d);
}

// c[m][..] = c[m][..] * factor[m] + product; factor null: 1.
template <int kVectors, int kRowStep, int kDepthStep, bool kScaled>
HWY_INLINE void multiply_add_block(std::int64_t depth, const float* a, const float* b,
                                   std::int64_t ldb, float* c, std::int64_t ldc,
                                   const float* factor) {
  const F32 d;
  const std::int64_t n = lanes();
  V acc[kRegisterRows][kVectors];
  clear(acc);
  multiply<kRegisterRows, kVectors, kRowStep, kDepthStep>(depth, a, b, ldb, acc);
#pragma GCC unroll 16
  for (int m = 0; m < kRegisterRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* at = c + m * ldc + v * n;
      const V old = hn::LoadU(d, at);
      hn::StoreU(
          kScaled ? hn::MulAdd(old, hn::Set(d, factor[m]), acc[m][v]) : hn::Add(old, acc[m][v]), d,
          at);
    }
  }
}

/// c [kUnit, columns] = c * factor (per row; kScaled) + a [kUnit, depth] b [depth, columns];
/// columns is a whole number of vectors.
template <int kRowStep, int kDepthStep, bool kScaled>
HWY_INLINE void multiply_add(std::int64_t depth, const float* a, const float* b, std::int64_t ldb,
                             float* c, std::int64_t ldc, std::int64_t columns,
                             const float* factor) {
  const std::int64_t n = lanes();
  for (int m = 0; m < kUnit; m += kRegisterRows) {
    const float* f = kScaled ? factor + m : nullptr;
    std::int64_t j = 0;
    for (; j + 2 * n <= columns; j += 2 * n)
      multiply_add_block<2, kRowStep, kDepthStep, kScaled>(depth, a + m * kRowStep, b + j, ldb,
                                                           c + m * ldc + j, ldc, f);
    if (j < columns)
      multiply_add_block<1, kRowStep, kDepthStep, kScaled>(depth, a + m * kRowStep, b + j, ldb,
                                                           c + m * ldc + j, ldc, f);
  }
}

/// 2^x for x <= 127; below 2^-126.5 the result is 0; NaN stays NaN. Within 2 ulp.
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

// Rows to come, at about the distance that hides a fetch from the last-level cache: the rows of one
// head lie pages apart, where the hardware does not look ahead.
template <typename T>
HWY_INLINE void prefetch_row(const T* row, std::int64_t dims) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t i = 0; i < dims; i += kLine) hwy::Prefetch(row + i);
}
inline constexpr std::int64_t kRowsAhead = 12;

/// dst[i * ld + r] = factor * element (first + r, i), i < dims; rows r in [valid, total) are 0.
/// total is a multiple of 4.
template <typename T>
HWY_INLINE void pack_transposed_as(float* HWY_RESTRICT dst, std::int64_t ld, const HeadRows& src,
                                   std::int64_t first, std::int64_t valid, std::int64_t total,
                                   std::int64_t dims, float factor) {
  const hn::FixedTag<float, 4> d4;
  const hn::RebindToUnsigned<hn::Repartition<double, decltype(d4)>> d2;
  const auto scale = hn::Set(d4, factor);
  const T* base = reinterpret_cast<const T*>(src.row(first));
  const auto pairs = [&](auto low, auto high) HWY_ATTR {
    return hn::BitCast(d4, hn::InterleaveLower(d2, hn::BitCast(d2, low), hn::BitCast(d2, high)));
  };
  const auto upper_pairs = [&](auto low, auto high) HWY_ATTR {
    return hn::BitCast(d4, hn::InterleaveUpper(d2, hn::BitCast(d2, low), hn::BitCast(d2, high)));
  };
  std::int64_t r = 0;
  for (; src.stride == 1 && r + 4 <= valid; r += 4) {
    const T* row = base + r * src.row_stride;
    for (std::int64_t j = r + kRowsAhead; j < std::min(valid, r + kRowsAhead + 4); ++j)
      prefetch_row(base + j * src.row_stride, dims);
    std::int64_t i = 0;
    for (; i + 4 <= dims; i += 4) {
      const auto r0 = simd::load(d4, row + i), r1 = simd::load(d4, row + src.row_stride + i);
      const auto r2 = simd::load(d4, row + 2 * src.row_stride + i);
      const auto r3 = simd::load(d4, row + 3 * src.row_stride + i);
      const auto a = hn::InterleaveLower(d4, r0, r1), b = hn::InterleaveLower(d4, r2, r3);
      const auto e = hn::InterleaveUpper(d4, r0, r1), g = hn::InterleaveUpper(d4, r2, r3);
      float* to = dst + i * ld + r;
      hn::StoreU(hn::Mul(scale, pairs(a, b)), d4, to);
      hn::StoreU(hn::Mul(scale, upper_pairs(a, b)), d4, to + ld);
      hn::StoreU(hn::Mul(scale, pairs(e, g)), d4, to + 2 * ld);
      hn::StoreU(hn::Mul(scale, upper_pairs(e, g)), d4, to + 3 * ld);
    }
    for (; i < dims; ++i)
      for (int j = 0; j < 4; ++j)
        dst[i * ld + r + j] = factor * static_cast<float>(row[j * src.row_stride + i]);
  }
  for (; r < total; ++r)
    for (std::int64_t i = 0; i < dims; ++i)
      dst[i * ld + r] =
          r < valid ? factor * static_cast<float>(base[r * src.row_stride + i * src.stride]) : 0.0f;
}

inline void pack_transposed(float* dst, std::int64_t ld, const HeadRows& src, std::int64_t first,
                            std::int64_t valid, std::int64_t total, std::int64_t dims,
                            float factor) {
  dispatch_float(src.dtype, "attention", [&](auto tag) HWY_ATTR {
    pack_transposed_as<typename decltype(tag)::type>(dst, ld, src, first, valid, total, dims,
                                                     factor);
  });
}

/// dst[r * ld + i] = element (first + r, i); columns from dims to ld and rows from valid to total
/// are 0.
template <typename T>
HWY_INLINE void pack_rows_as(float* HWY_RESTRICT dst, std::int64_t ld, const HeadRows& src,
                             std::int64_t first, std::int64_t valid, std::int64_t total,
                             std::int64_t dims) {
  const F32 d;
  const std::int64_t n = lanes();
  const T* base = reinterpret_cast<const T*>(src.row(first));
  for (std::int64_t r = 0; r < valid; ++r) {
    const T* row = base + r * src.row_stride;
    if (r + kRowsAhead < valid) prefetch_row(row + kRowsAhead * src.row_stride, dims);
    float* to = dst + r * ld;
    std::int64_t i = 0;
    if (src.stride == 1)
      for (; i + n <= dims; i += n) hn::StoreU(simd::load(d, row + i), d, to + i);
    for (; i < dims; ++i) to[i] = static_cast<float>(row[i * src.stride]);
    std::fill(to + dims, to + ld, 0.0f);
  }
  std::fill(dst + valid * ld, dst + total * ld, 0.0f);
}

inline void pack_rows(float* dst, std::int64_t ld, const HeadRows& src, std::int64_t first,
                      std::int64_t valid, std::int64_t total, std::int64_t dims) {
  dispatch_float(src.dtype, "attention", [&](auto tag) HWY_ATTR {
    pack_rows_as<typename decltype(tag)::type>(dst, ld, src, first, valid, total, dims);
  });
}

/// Element (row, i) = factor * src[i], plus what it held where `accumulate`.
template <typename T>
HWY_INLINE void store_row_as(const HeadRows& dst, std::int64_t row, const float* HWY_RESTRICT src,
                             std::int64_t dims, float factor, bool accumulate) {
  const F32 d;
  const std::int64_t n = lanes();
  T* to = reinterpret_cast<T*>(dst.row(row));
  const V scale = hn::Set(d, factor);
  std::int64_t i = 0;
  if (dst.stride == 1)
    for (; i + n <= dims; i += n) {
      V value = hn::Mul(scale, hn::LoadU(d, src + i));
      if (accumulate) value = hn::Add(value, simd::load(d, to + i));
      simd::store(d, value, to + i);
    }
  for (; i < dims; ++i) {
    float value = factor * src[i];
    T& at = to[i * dst.stride];
    if (accumulate) value += static_cast<float>(at);
    at = T(value);
  }
}

inline void store_row(const HeadRows& dst, std::int64_t row, const float* src, std::int64_t dims,
                      float factor, bool accumulate) {
  dispatch_float(dst.dtype, "attention", [&](auto tag) HWY_ATTR {
    store_row_as<typename decltype(tag)::type>(dst, row, src, dims, factor, accumulate);
  });
}

/// One (batch row, query head) and what the score modifiers of AttentionOptions mean there.
struct HeadScope {
  HeadScope(const AttentionProblem& problem, std::int64_t b, std::int64_t h)
      : problem(problem),
        options(*problem.options),
        b(b),
        h(h),
        query_documents(problem.documents_of_queries(b)),
        key_documents(problem.documents_of_keys(b)) {
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

// position + by, held within int32.
HWY_INLINE std::int32_t shifted_position(std::int32_t position, std::int64_t by) {
  constexpr std::int64_t kLow = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t kHigh = std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int32_t>(std::clamp(position + by, kLow, kHigh));
}

/// -inf where a query does not see a key.
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

/// Everything but the product q k that makes a score, on one unit of keys by one panel of queries
/// that start at the given indices.
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
