// SPDX-License-Identifier: Apache-2.0
// What columns take in of several dense rows at once: for sums and maxima over rows. Included once
// per target after hwy/highway.h (the guard toggles).
#if defined(MESHLOOM_KERNELS_CPU_COLUMN_TERMS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_COLUMN_TERMS_H_
#undef MESHLOOM_KERNELS_CPU_COLUMN_TERMS_H_
#else
#define MESHLOOM_KERNELS_CPU_COLUMN_TERMS_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>

#include "kernels/cpu/reduce_plan.h"
#include "kernels/cpu/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace simd {

using ColumnV = hn::Vec<FloatTag>;

HWY_INLINE ColumnV larger_or_nan(ColumnV a, ColumnV b) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Max(a, b)));
}

// Returns the column with its next element taken in.
HWY_INLINE ColumnV with_term(TermTag<Term::kSum>, ColumnV acc, ColumnV x, ColumnV) {
  return hn::Add(acc, x);
}
HWY_INLINE ColumnV with_term(TermTag<Term::kMax>, ColumnV acc, ColumnV x, ColumnV) {
  return larger_or_nan(acc, x);
}
HWY_INLINE ColumnV with_term(TermTag<Term::kSquares>, ColumnV acc, ColumnV x, ColumnV center) {
  const ColumnV distance = hn::Sub(x, center);
  return hn::MulAdd(distance, distance, acc);
}

// Folds one vector of columns of kRows rows. Sums go by pairs of rows, which rounds less than one
// after the other.
template <int kRows, Term term, class Load, class Row>
HWY_INLINE ColumnV fold_column(ColumnV acc, ColumnV center, const Load& load,
                               const Row* const* rows, std::size_t at) {
  constexpr TermTag<term> tag;
  if constexpr (term == Term::kSum && kRows == 8) {
    const ColumnV a = hn::Add(load(rows[0] + at), load(rows[1] + at));
    const ColumnV b = hn::Add(load(rows[2] + at), load(rows[3] + at));
    const ColumnV c = hn::Add(load(rows[4] + at), load(rows[5] + at));
    const ColumnV d = hn::Add(load(rows[6] + at), load(rows[7] + at));
    return hn::Add(acc, hn::Add(hn::Add(a, b), hn::Add(c, d)));
  } else {
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) acc = with_term(tag, acc, load(rows[r] + at), center);
    return acc;
  }
}

template <int kRows, Term term, class T>
void fold_rows(float* acc, const float* center, const void* const* data, std::ptrdiff_t ahead,
               std::size_t n) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  constexpr std::size_t kLine = 64 / sizeof(T);
  const T* rows[kRows];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) rows[r] = static_cast<const T*>(data[r]);
  const auto whole = [d](const auto* p) HWY_ATTR { return load(d, p); };
  ColumnV middle = hn::Zero(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    if (i % kLine == 0) {
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r)
        hwy::Prefetch(reinterpret_cast<const std::byte*>(rows[r] + i) + ahead);
    }
    if constexpr (term == Term::kSquares) middle = hn::LoadU(d, center + i);
    hn::StoreU(fold_column<kRows, term>(hn::LoadU(d, acc + i), middle, whole, rows, i), d, acc + i);
  }
  if (i == n) return;
  const std::size_t rest = n - i;
  const auto part = [d, rest](const auto* p) HWY_ATTR { return load_n(d, p, rest); };
  if constexpr (term == Term::kSquares) middle = part(center + i);
  store_n(d, fold_column<kRows, term>(part(acc + i), middle, part, rows, i), acc + i, rest);
}

template <Term term, class T>
void fold_all_rows(float* acc, const float* center, const void* const* rows, int count,
                   std::ptrdiff_t ahead, std::size_t n) {
  if (count == kFoldedRows) return fold_rows<kFoldedRows, term, T>(acc, center, rows, ahead, n);
  for (int r = 0; r < count; ++r) fold_rows<1, term, T>(acc, center, rows + r, ahead, n);
}

}  // namespace simd
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
