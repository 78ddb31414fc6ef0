// SPDX-License-Identifier: Apache-2.0
// Reductions over any dims: calls of Backend on the CPU.
#include "kernels/cpu/cpu_backend.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/reduce_plan.h"
#include "kernels/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/column_terms.h"
#include "kernels/cpu/simd/rows.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using simd::FloatTag;
using V = hn::Vec<FloatTag>;

template <class T>
bool has_nan(const T* x, std::size_t n) {
  const FloatTag d;
  const V one = hn::Set(d, 1.0f);
  return simd::reduce_row(
             n, [one](V v) HWY_ATTR { return hn::IfThenElseZero(hn::IsNaN(v), one); }, x) != 0.0f;
}

// x dense; n is small enough for a float32 sum.
float row_term(Term term, DType dtype, const void* data, std::size_t n, float center) {
  float result = 0.0f;
  dispatch_float(dtype, "reduce", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    const T* x = static_cast<const T*>(data);
    const V c = hn::Set(FloatTag(), center);
    const auto squared = [c](V v) HWY_ATTR {
      const V distance = hn::Sub(v, c);
      return hn::Mul(distance, distance);
    };
    switch (term) {
      case Term::kSum:
        result = simd::reduce_row(
            n, [](V v) HWY_ATTR { return v; }, x);
        break;
      case Term::kSquares: result = simd::reduce_row(n, squared, x); break;
      case Term::kMax:
        result = has_nan(x, n) ? std::numeric_limits<float>::quiet_NaN()
                               : simd::row_max(x, n, -std::numeric_limits<float>::infinity());
        break;
    }
  });
  return result;
}

// acc[c] takes in column c of up to kFoldedRows rows, while what lies `ahead` bytes further is
// asked for. For kSquares the center of column c is center[c].
void column_terms(Term term, DType dtype, float* acc, const float* center, const void* const* rows,
                  int count, std::ptrdiff_t ahead, std::size_t n) {
  dispatch_float(dtype, "reduce", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    switch (term) {
      case Term::kSum:
        return simd::fold_all_rows<Term::kSum, T>(acc, center, rows, count, ahead, n);
      case Term::kMax:
        return simd::fold_all_rows<Term::kMax, T>(acc, center, rows, count, ahead, n);
      case Term::kSquares:
        return simd::fold_all_rows<Term::kSquares, T>(acc, center, rows, count, ahead, n);
    }
  });
}

// total += partial, partial = 0.
void flush_sums(double* total, float* partial, std::size_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, hn::ScalableTag<double>> df;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto sum = hn::PromoteTo(d, hn::LoadU(df, partial + i));
    hn::StoreU(hn::Add(hn::LoadU(d, total + i), sum), d, total + i);
    hn::StoreU(hn::Zero(df), df, partial + i);
  }
  for (; i < n; ++i) {
    total[i] += partial[i];
    partial[i] = 0.0f;
  }
}

// Whether any of the n dense elements is NaN or infinite.
bool any_nonfinite(DType dtype, const void* data, std::size_t n) {
  bool found = false;
  dispatch_float(dtype, "first_nonfinite", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    // x - x is 0 for finite x, else NaN.
    const float sum = simd::reduce_row(
        n, [](V v) HWY_ATTR { return hn::Sub(v, v); }, static_cast<const T*>(data));
    found = sum != 0.0f;
  });
  return found;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(row_term);
HWY_EXPORT(column_terms);
HWY_EXPORT(flush_sums);
HWY_EXPORT(any_nonfinite);

// Elements summed in float32 before the sum goes on in float64.
constexpr std::int64_t kRowBlock = 4096;
// Rows summed in float32 per column before that.
constexpr std::int64_t kColumnRows = 64;
constexpr std::int64_t kColumnBlock = 2048;
// Most threads that share one sum.
constexpr int kMaxParts = 128;

bool is_short_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

double start_of(Term term) {
  return term == Term::kMax ? -std::numeric_limits<double>::infinity() : 0.0;
}

double join(Term term, double a, double b) {
  if (term != Term::kMax) return a + b;
  return std::isnan(a) || a > b ? a : b;
}

const std::byte* at(const TensorView& view, std::int64_t offset) {
  return view.as<const std::byte>() + offset * static_cast<std::int64_t>(dtype_size(view.dtype));
}

// The term over reduced elements [begin, end) of the output at `base`.
double row_range(Term term, const TensorView& x, const ReducePlan& plan, std::int64_t base,
                 std::int64_t begin, std::int64_t end, double center) {
  double result = start_of(term);
  walk_rows(plan.reduced, begin, end, [&](const auto& offsets, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += kRowBlock) {
      const float part =
          HWY_DYNAMIC_DISPATCH(row_term)(term, x.dtype, at(x, base + offsets[0] + i),
                                         std::min(kRowBlock, n - i), static_cast<float>(center));
      result = join(term, result, part);
    }
  });
  return result;
}

template <typename T>
double scalar_range(Term term, const TensorView& x, const ReducePlan& plan, std::int64_t base,
                    std::int64_t begin, std::int64_t end, double center) {
  double result = start_of(term);
  walk_rows(plan.reduced, begin, end, [&](const auto& offsets, std::int64_t n) {
    const T* from = x.as<const T>() + base + offsets[0];
    for (std::int64_t i = 0; i < n; ++i) {
      const double value = convert<double>(from[i * plan.reduced.row_stride(0)]);
      result =
          join(term, result, term == Term::kSquares ? (value - center) * (value - center) : value);
    }
  });
  return result;
}

double range_term(Term term, const TensorView& x, const ReducePlan& plan, std::int64_t base,
                  std::int64_t begin, std::int64_t end, double center) {
  if (is_short_float(x.dtype) && plan.dense_rows())
    return row_range(term, x, plan, base, begin, end, center);
  double result = 0.0;
  dispatch_any(x.dtype, "reduce", [&]<typename T>(TypeTag<T>) {
    result = scalar_range<T>(term, x, plan, base, begin, end, center);
  });
  return result;
}

// One output, its elements split over threads in fixed ranges that are joined in order.
double shared_term(Threads threads, Term term, const TensorView& x, const ReducePlan& plan,
                   std::int64_t base, double center) {
  const std::int64_t n = plan.reduced.numel();
  const std::int64_t parts = std::min<std::int64_t>(
      {std::max(threads.count, 1), kMaxParts, (n + kElementGrain - 1) / kElementGrain});
  std::array<double, kMaxParts> results;
  parallel_for({static_cast<int>(parts)}, parts, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t p = first; p < last; ++p)
      results[p] = range_term(term, x, plan, base, n * p / parts, n * (p + 1) / parts, center);
  });
  double total = start_of(term);
  for (std::int64_t p = 0; p < parts; ++p) total = join(term, total, results[p]);
  return total;
}

double finish(ReduceOp op, double value, std::int64_t n, double correction) {
  if (op == ReduceOp::kMean) return value / static_cast<double>(n);
  if (op == ReduceOp::kVar) return value / std::max(0.0, static_cast<double>(n) - correction);
  return value;
}

Term term_of(ReduceOp op) {
  if (op == ReduceOp::kAmax) return Term::kMax;
  return op == ReduceOp::kVar ? Term::kSquares : Term::kSum;
}

void reduce_output(Threads threads, ReduceOp op, const TensorView& y, const TensorView& x,
                   const ReducePlan& plan, std::int64_t x_at, std::int64_t y_at,
                   double correction) {
  const std::int64_t n = plan.reduced.numel();
  double center = 0.0;
  if (op == ReduceOp::kVar)
    center = shared_term(threads, Term::kSum, x, plan, x_at, 0.0) / static_cast<double>(n);
  const double value =
      finish(op, shared_term(threads, term_of(op), x, plan, x_at, center), n, correction);
  dispatch_any(y.dtype, "reduce",
               [&]<typename T>(TypeTag<T>) { y.as<T>()[y_at] = convert<T>(value); });
}

// Output by output: many outputs are split over threads, few share all threads one after the other.
void reduce_rows(Threads threads, ReduceOp op, const TensorView& y, const TensorView& x,
                 const ReducePlan& plan, double correction) {
  const std::int64_t outputs = plan.kept.numel();
  const bool share = outputs < threads.count;
  const Threads inner = share ? threads : Threads{1};
  const std::int64_t grain =
      std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(plan.reduced.numel(), 1));
  parallel_for(share ? Threads{1} : threads, outputs, grain,
               [&](std::int64_t begin, std::int64_t end) {
                 walk_rows(plan.kept, begin, end, [&](const auto& offsets, std::int64_t n) {
                   for (std::int64_t i = 0; i < n; ++i)
                     reduce_output(inner, op, y, x, plan, offsets[0] + i * plan.kept.row_stride(0),
                                   offsets[1] + i * plan.kept.row_stride(1), correction);
                 });
               });
}

// Sums of one block of neighbouring columns.
struct ColumnBlock {
  float partial[kColumnBlock];
  float center[kColumnBlock];
  double total[kColumnBlock];
};

void flush(Term term, ColumnBlock& block, std::int64_t n) {
  if (term != Term::kMax) return HWY_DYNAMIC_DISPATCH(flush_sums)(block.total, block.partial, n);
  for (std::int64_t c = 0; c < n; ++c)
    block.total[c] = join(term, block.total[c], block.partial[c]);
  std::fill(block.partial, block.partial + n, static_cast<float>(start_of(term)));
}

void column_block(Term term, const TensorView& x, const ReducePlan& plan, std::int64_t base,
                  ColumnBlock& block, std::int64_t n) {
  std::fill(block.total, block.total + n, start_of(term));
  std::fill(block.partial, block.partial + n, static_cast<float>(start_of(term)));
  const void* rows[kFoldedRows];
  int waiting = 0;
  std::int64_t unflushed = 0;
  const auto size = static_cast<std::int64_t>(dtype_size(x.dtype));
  const std::ptrdiff_t ahead = kFoldedRows * plan.reduced.row_stride(0) * size;
  const auto add_waiting = [&] {
    HWY_DYNAMIC_DISPATCH(column_terms)
    (term, x.dtype, block.partial, block.center, rows, waiting, ahead, n);
    unflushed += waiting;
    waiting = 0;
  };
  walk_rows(plan.reduced, 0, plan.reduced.numel(), [&](const auto& offsets, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      rows[waiting++] = at(x, base + offsets[0] + i * plan.reduced.row_stride(0));
      if (waiting == kFoldedRows) add_waiting();
      if (unflushed < kColumnRows) continue;
      flush(term, block, n);
      unflushed = 0;
    }
  });
  add_waiting();
  flush(term, block, n);
}

// Neighbouring outputs at once; columns are split over threads.
void reduce_columns(Threads threads, ReduceOp op, const TensorView& y, const TensorView& x,
                    const ReducePlan& plan, double correction) {
  const std::int64_t n = plan.reduced.numel();
  const std::int64_t grain =
      std::max<std::int64_t>(16, kElementGrain / std::max<std::int64_t>(n, 1));
  parallel_for(threads, plan.kept.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    ColumnBlock block;
    walk_rows(plan.kept, begin, end, [&](const auto& offsets, std::int64_t row) {
      for (std::int64_t i = 0; i < row; i += kColumnBlock) {
        const std::int64_t columns = std::min(kColumnBlock, row - i);
        if (op == ReduceOp::kVar) {
          column_block(Term::kSum, x, plan, offsets[0] + i, block, columns);
          for (std::int64_t c = 0; c < columns; ++c)
            block.center[c] = static_cast<float>(block.total[c] / static_cast<double>(n));
        }
        column_block(term_of(op), x, plan, offsets[0] + i, block, columns);
        const std::int64_t to = offsets[1] + i * plan.kept.row_stride(1);
        dispatch_any(y.dtype, "reduce", [&]<typename T>(TypeTag<T>) {
          for (std::int64_t c = 0; c < columns; ++c)
            y.as<T>()[to + c * plan.kept.row_stride(1)] =
                convert<T>(finish(op, block.total[c], n, correction));
        });
      }
    });
  });
}

// Sum and maximum of integers stay in 64-bit integers, so that large values are exact.
template <typename T>
void reduce_integers(Threads threads, ReduceOp op, const TensorView& y, const TensorView& x,
                     const ReducePlan& plan) {
  parallel_for(threads, plan.kept.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
    walk_rows(plan.kept, begin, end, [&](const auto& offsets, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) {
        const T* from = x.as<const T>() + offsets[0] + i * plan.kept.row_stride(0);
        std::int64_t result = op == ReduceOp::kSum ? 0 : std::numeric_limits<std::int64_t>::min();
        walk_rows(plan.reduced, 0, plan.reduced.numel(), [&](const auto& at, std::int64_t count) {
          for (std::int64_t j = 0; j < count; ++j) {
            const auto value = convert<std::int64_t>(from[at[0] + j * plan.reduced.row_stride(0)]);
            result = op == ReduceOp::kSum ? result + value : std::max(result, value);
          }
        });
        dispatch_any(y.dtype, "reduce", [&]<typename Y>(TypeTag<Y>) {
          y.as<Y>()[offsets[1] + i * plan.kept.row_stride(1)] = convert<Y>(result);
        });
      }
    });
  });
}

// Elements [begin, end) of the views laid end to end.
double squares_range(std::span<const TensorView> xs, std::int64_t begin, std::int64_t end) {
  double total = 0.0;
  std::int64_t start = 0;
  for (const TensorView& x : xs) {
    const std::int64_t n = x.numel();
    const std::int64_t last = std::min(end - start, n);
    for (std::int64_t i = std::max<std::int64_t>(begin - start, 0); i < last; i += kRowBlock)
      total += HWY_DYNAMIC_DISPATCH(row_term)(Term::kSquares, x.dtype, at(x, i),
                                              std::min(kRowBlock, last - i), 0.0f);
    start += n;
    if (start >= end) break;
  }
  return total;
}

bool any_in_range(const TensorView& x, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; i += kRowBlock)
    if (HWY_DYNAMIC_DISPATCH(any_nonfinite)(x.dtype, at(x, i), std::min(kRowBlock, end - i)))
      return true;
  return false;
}

// Any strides and float64.
bool has_nonfinite_slow(const TensorView& x) {
  const Strides order = contiguous_strides(x.shape);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    std::int64_t offset = 0;
    for (int d = 0; d < x.ndim(); ++d) offset += i / order[d] % x.size(d) * x.stride(d);
    bool finite = true;
    dispatch_any(x.dtype, "first_nonfinite", [&]<typename T>(TypeTag<T>) {
      finite = std::isfinite(convert<double>(x.as<const T>()[offset]));
    });
    if (!finite) return true;
  }
  return false;
}

bool has_nonfinite(const KernelContext& context, const TensorView& x) {
  if (!dtype_is_floating(x.dtype) || x.numel() == 0) return false;
  if (!is_short_float(x.dtype) || !x.contiguous()) return has_nonfinite_slow(x);
  const std::int64_t n = x.numel();
  const std::int64_t parts = std::min<std::int64_t>(
      {std::max(context.threads.count, 1), kMaxParts, (n + kElementGrain - 1) / kElementGrain});
  std::array<bool, kMaxParts> found;
  parallel_for({static_cast<int>(parts)}, parts, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t p = first; p < last; ++p)
      found[p] = any_in_range(x, n * p / parts, n * (p + 1) / parts);
  });
  return std::find(found.begin(), found.begin() + parts, true) != found.begin() + parts;
}

}  // namespace

void CpuBackend::reduce(const KernelContext& context, ReduceOp op, const TensorView& y,
                        const TensorView& x, double correction) {
  if (y.numel() == 0) return;
  const ReducePlan plan = make_reduce_plan(y, x);
  const bool exact = op == ReduceOp::kSum || op == ReduceOp::kAmax;
  if (!dtype_is_floating(x.dtype) && exact)
    return dispatch_any(x.dtype, "reduce", [&]<typename T>(TypeTag<T>) {
      reduce_integers<T>(context.threads, op, y, x, plan);
    });
  if (is_short_float(x.dtype) && !plan.dense_rows() && plan.dense_columns())
    return reduce_columns(context.threads, op, y, x, plan, correction);
  reduce_rows(context.threads, op, y, x, plan, correction);
}

void CpuBackend::sum_of_squares(const KernelContext& context, const TensorView& out,
                                std::span<const TensorView> xs, bool accumulate) {
  std::int64_t n = 0;
  for (const TensorView& x : xs) n += x.numel();
  const std::int64_t parts = std::min<std::int64_t>(
      {std::max(context.threads.count, 1), kMaxParts, (n + kElementGrain - 1) / kElementGrain});
  std::array<double, kMaxParts> results;
  parallel_for({static_cast<int>(parts)}, parts, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t p = first; p < last; ++p)
      results[p] = squares_range(xs, n * p / parts, n * (p + 1) / parts);
  });
  auto* sum = out.as<float>();
  double total = accumulate ? *sum : 0.0;
  for (std::int64_t p = 0; p < parts; ++p) total += results[p];
  *sum = static_cast<float>(total);
}

void CpuBackend::first_nonfinite(const KernelContext& context, const TensorView& index,
                                 std::span<const TensorView> xs) {
  const auto found = std::find_if(xs.begin(), xs.end(),
                                  [&](const TensorView& x) { return has_nonfinite(context, x); });
  *index.as<std::int64_t>() = found == xs.end() ? -1 : found - xs.begin();
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
