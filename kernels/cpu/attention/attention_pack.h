// SPDX-License-Identifier: Apache-2.0
// Rows of attention's operands and results to and from the layouts that its products read, for one
// target. Included once per target after hwy/highway.h (the guard toggles).
#if defined(MESHLOOM_KERNELS_CPU_ATTENTION_PACK_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_ATTENTION_PACK_H_
#undef MESHLOOM_KERNELS_CPU_ATTENTION_PACK_H_
#else
#define MESHLOOM_KERNELS_CPU_ATTENTION_PACK_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/attention/attention_problem.h"
#include "kernels/cpu/attention/attention_products.h"
#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace tile {

// Fetches rows to come, at about the distance that hides a fetch from the last-level cache: the
// rows of one head lie pages apart, where the hardware does not look ahead.
template <typename T>
HWY_INLINE void prefetch_row(const T* row, std::int64_t dims) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t i = 0; i < dims; i += kLine) hwy::Prefetch(row + i);
}
inline constexpr std::int64_t kRowsAhead = 12;
/// Fetches a row that store_row writes soon.
HWY_INLINE void prefetch_stored(const HeadRows& rows, std::int64_t row, std::int64_t dims) {
  prefetch_row(rows.row(row), dims * static_cast<std::int64_t>(dtype_size(rows.dtype)));
}

/// dst[i * ld + r] = factor * element (first + r, i), i < dims; rows r in [valid, total) are 0.
/// total is a multiple of 4.
template <typename T>
HWY_INLINE void pack_transposed_as(float* HWY_RESTRICT dst, std::int64_t ld, const HeadRows& src,
                                   std::int64_t first, std::int64_t valid, std::int64_t total,
                                   std::int64_t dims, float factor) {
  const hn::FixedTag<float, 4> d4;
  const auto scale = hn::Set(d4, factor);
  const T* base = reinterpret_cast<const T*>(src.row(first));
  std::int64_t r = 0;
  for (; src.stride == 1 && r + 4 <= valid; r += 4) {
    const T* row = base + r * src.row_stride;
    for (std::int64_t j = r + kRowsAhead; j < std::min(valid, r + kRowsAhead + 4); ++j)
      prefetch_row(base + j * src.row_stride, dims);
    std::int64_t i = 0;
    for (; i + 4 <= dims; i += 4) {
      auto r0 = simd::load(d4, row + i), r1 = simd::load(d4, row + src.row_stride + i);
      auto r2 = simd::load(d4, row + 2 * src.row_stride + i);
      auto r3 = simd::load(d4, row + 3 * src.row_stride + i);
      simd::transpose(d4, r0, r1, r2, r3);
      float* to = dst + i * ld + r;
      hn::StoreU(hn::Mul(scale, r0), d4, to);
      hn::StoreU(hn::Mul(scale, r1), d4, to + ld);
      hn::StoreU(hn::Mul(scale, r2), d4, to + 2 * ld);
      hn::StoreU(hn::Mul(scale, r3), d4, to + 3 * ld);
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

/// Returns elements 2 i and 2 i + 1 of a bfloat16 row; what lies behind `dims` is 0.
HWY_INLINE Bf16Pair pair_of(const bfloat16* row, std::int64_t stride, std::int64_t i,
                            std::int64_t dims) {
  const std::uint32_t low = row[2 * i * stride].bits;
  const std::uint32_t high = 2 * i + 1 < dims ? row[(2 * i + 1) * stride].bits : 0;
  return {low | high << 16};
}

/// dst[r * ld + i] = pair i of row first + r, i < ld; rows in [valid, total) are 0.
inline void pack_rows(Bf16Pair* HWY_RESTRICT dst, std::int64_t ld, const HeadRows& src,
                      std::int64_t first, std::int64_t valid, std::int64_t total,
                      std::int64_t dims) {
  const auto* base = reinterpret_cast<const bfloat16*>(src.row(first));
  for (std::int64_t r = 0; r < valid; ++r) {
    const bfloat16* row = base + r * src.row_stride;
    if (r + kRowsAhead < valid) prefetch_row(row + kRowsAhead * src.row_stride, dims);
    Bf16Pair* to = dst + r * ld;
    std::int64_t i = 0;
    if (src.stride == 1) {
      i = dims / 2;
      std::memcpy(static_cast<void*>(to), row, static_cast<std::size_t>(i) * sizeof(Bf16Pair));
    }
    for (; 2 * i < dims; ++i) to[i] = pair_of(row, src.stride, i, dims);
    std::fill(to + i, to + ld, Bf16Pair{});
  }
  std::fill(dst + valid * ld, dst + total * ld, Bf16Pair{});
}

/// dst[i * ld + r] = pair i of row first + r, i < dims / 2 rounded up; rows r in [valid, total) are
/// 0. total is a multiple of 4.
inline void pack_transposed(Bf16Pair* HWY_RESTRICT dst, std::int64_t ld, const HeadRows& src,
                            std::int64_t first, std::int64_t valid, std::int64_t total,
                            std::int64_t dims) {
  const hn::FixedTag<std::uint32_t, 4> d4;
  const hn::Repartition<std::uint16_t, decltype(d4)> d8;
  const auto* base = reinterpret_cast<const bfloat16*>(src.row(first));
  const std::int64_t pairs = (dims + 1) / 2;
  std::int64_t r = 0;
  for (; src.stride == 1 && r + 4 <= valid; r += 4) {
    const bfloat16* row = base + r * src.row_stride;
    for (std::int64_t j = r + kRowsAhead; j < std::min(valid, r + kRowsAhead + 4); ++j)
      prefetch_row(base + j * src.row_stride, dims);
    const auto load = [&](std::int64_t j, std::int64_t i) HWY_ATTR {
      return hn::BitCast(d4, hn::LoadU(d8, &row[j * src.row_stride + 2 * i].bits));
    };
    std::int64_t i = 0;
    for (; i + 4 <= dims / 2; i += 4) {
      auto r0 = load(0, i), r1 = load(1, i), r2 = load(2, i), r3 = load(3, i);
      simd::transpose(d4, r0, r1, r2, r3);
      std::uint32_t* to = &dst[i * ld + r].bits;
      hn::StoreU(r0, d4, to);
      hn::StoreU(r1, d4, to + ld);
      hn::StoreU(r2, d4, to + 2 * ld);
      hn::StoreU(r3, d4, to + 3 * ld);
    }
    for (; i < pairs; ++i)
      for (int j = 0; j < 4; ++j)
        dst[i * ld + r + j] = pair_of(row + j * src.row_stride, 1, i, dims);
  }
  for (; r < total; ++r)
    for (std::int64_t i = 0; i < pairs; ++i)
      dst[i * ld + r] =
          r < valid ? pair_of(base + r * src.row_stride, src.stride, i, dims) : Bf16Pair{};
}

/// Packs a tile's rows across, as pack_transposed; what lies behind `dims` up to `across` is 0.
inline void pack_across(Bf16Pair* dst, const HeadRows& src, std::int64_t first, std::int64_t valid,
                        std::int64_t dims, std::int64_t across) {
  pack_transposed(dst, kTile, src, first, valid, kTile, dims);
  std::fill(dst + elements_of<Bf16Pair>(dims) * kTile, dst + elements_of<Bf16Pair>(across) * kTile,
            Bf16Pair{});
}

/// dst[r / 2 * ld + i] = element i of rows first + r and first + r + 1, r even; columns from dims
/// to ld and rows from valid to total are 0. total is even.
inline void pack_row_pairs(Bf16Pair* HWY_RESTRICT dst, std::int64_t ld, const HeadRows& src,
                           std::int64_t first, std::int64_t valid, std::int64_t total,
                           std::int64_t dims) {
  const hn::RebindToUnsigned<F32> d;
  const hn::Rebind<std::uint16_t, F32> dh;
  const std::int64_t n = lanes();
  const auto* base = reinterpret_cast<const bfloat16*>(src.row(first));
  for (std::int64_t r = 0; r < valid; r += 2) {
    const bfloat16* low = base + r * src.row_stride;
    const bfloat16* high = r + 1 < valid ? low + src.row_stride : nullptr;
    for (std::int64_t j = r + kRowsAhead; j < std::min(valid, r + kRowsAhead + 2); ++j)
      prefetch_row(base + j * src.row_stride, dims);
    Bf16Pair* to = dst + r / 2 * ld;
    std::int64_t i = 0;
    if (src.stride == 1 && high != nullptr)
      for (; i + n <= dims; i += n) {
        const auto lower = hn::PromoteTo(d, hn::LoadU(dh, &low[i].bits));
        const auto upper = hn::PromoteTo(d, hn::LoadU(dh, &high[i].bits));
        hn::StoreU(hn::Or(lower, hn::ShiftLeft<16>(upper)), d, &to[i].bits);
      }
    for (; i < dims; ++i) {
      const std::uint32_t upper = high != nullptr ? high[i * src.stride].bits : 0;
      to[i] = {low[i * src.stride].bits | upper << 16};
    }
    std::fill(to + dims, to + ld, Bf16Pair{});
  }
  std::fill(dst + (valid + 1) / 2 * ld, dst + total / 2 * ld, Bf16Pair{});
}

}  // namespace tile
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
