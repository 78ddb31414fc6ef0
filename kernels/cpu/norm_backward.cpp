// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/norm_common.h"
#include "kernels/cpu/streaming.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/rows.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using simd::FloatTag;
using V = hn::Vec<FloatTag>;

// With g = dy * weight and n = (x - mean) * rstd, over one row:
//   dx = rstd * (g - mean(g) - n * mean(g n)), without mean(g) for RMS norm.
struct RowSums {
  float grad = 0.0f;
  float product = 0.0f;
};

struct RowStats {
  V mean, rstd;
};

template <class T>
RowSums row_sums(const NormBackwardArgs<T, float>& args, const RowStats& stats, const T* dy,
                 const T* x) {
  const auto n = static_cast<std::size_t>(args.columns);
  const V mean = stats.mean;
  const V rstd = stats.rstd;
  const auto normalized = [mean, rstd](V v) HWY_ATTR { return hn::Mul(hn::Sub(v, mean), rstd); };
  float grad = 0.0f;
  float product = 0.0f;
  if (args.weight != nullptr) {
    simd::reduce_row_twice(
        n, grad, product,
        [normalized](V g, V v, V w, V& a, V& b) HWY_ATTR {
          a = hn::Mul(g, w);
          b = hn::Mul(a, normalized(v));
        },
        dy, x, args.weight);
  } else {
    simd::reduce_row_twice(
        n, grad, product,
        [normalized](V g, V v, V& a, V& b) HWY_ATTR {
          a = g;
          b = hn::Mul(g, normalized(v));
        },
        dy, x);
  }
  return {grad, product};
}

// dweight += dy * n, dbias += dy.
template <class T>
void add_to_parameters(const NormBackwardArgs<T, float>& args, const RowStats& stats, const T* dy,
                       const T* x) {
  const V mean = stats.mean;
  const V rstd = stats.rstd;
  if (args.dweight != nullptr)
    simd::map_row(
        false, args.dweight, args.columns,
        [mean, rstd](V sum, V g, V v)
            HWY_ATTR { return hn::MulAdd(g, hn::Mul(hn::Sub(v, mean), rstd), sum); },
        args.dweight, dy, x);
  if (args.dbias != nullptr)
    simd::map_row(
        false, args.dbias, args.columns, [](V sum, V g) HWY_ATTR { return hn::Add(sum, g); },
        args.dbias, dy);
}

template <class T>
void write_dx(const NormBackwardArgs<T, float>& args, const RowStats& stats, const RowSums& sums,
              const T* dy, const T* x, T* dx) {
  const FloatTag d;
  const auto n = static_cast<float>(args.columns);
  // dx = a g + b (x - mean) + c with the row's own a, b, c.
  const float rstd = hn::GetLane(stats.rstd);
  const float slope = -rstd * rstd * sums.product / n;
  const float offset = args.mean != nullptr ? -rstd * sums.grad / n : 0.0f;
  const V mean = stats.mean;
  const V a = stats.rstd;
  const V b = hn::Set(d, slope);
  const V c = hn::Set(d, offset);
  const auto weighted = [a, b, c, mean](V g, V v, V w) HWY_ATTR {
    return hn::MulAdd(hn::Mul(g, w), a, hn::MulAdd(hn::Sub(v, mean), b, c));
  };
  const auto plain = [a, b, c, mean](V g, V v)
                         HWY_ATTR { return hn::MulAdd(g, a, hn::MulAdd(hn::Sub(v, mean), b, c)); };
  const auto columns = static_cast<std::size_t>(args.columns);
  if (args.weight != nullptr && args.accumulate_dx)
    simd::map_row(
        false, dx, columns,
        [weighted](V old, V g, V v, V w) HWY_ATTR { return hn::Add(old, weighted(g, v, w)); }, dx,
        dy, x, args.weight);
  else if (args.weight != nullptr)
    simd::map_row(args.stream, dx, columns, weighted, dy, x, args.weight);
  else if (args.accumulate_dx)
    simd::map_row(
        false, dx, columns, [plain](V old, V g, V v) HWY_ATTR { return hn::Add(old, plain(g, v)); },
        dx, dy, x);
  else
    simd::map_row(args.stream, dx, columns, plain, dy, x);
}

template <class T>
void norm_backward_rows_typed(const NormBackwardArgs<T, float>& args, std::int64_t begin,
                              std::int64_t end) {
  const FloatTag d;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * args.columns;
    const RowStats stats{hn::Set(d, args.mean != nullptr ? args.mean[row] : 0.0f),
                         hn::Set(d, args.rstd[row])};
    const T* x = args.x + at;
    const T* dy = args.dy + at;
    const RowSums sums = row_sums(args, stats, dy, x);
    simd::prefetch_row(x, static_cast<std::size_t>(args.columns));
    simd::prefetch_row(dy, static_cast<std::size_t>(args.columns));
    add_to_parameters(args, stats, dy, x);
    write_dx(args, stats, sums, dy, x, args.dx + at);
  }
}

void norm_backward_rows_float32(const NormBackwardArgs<float, float>& args, std::int64_t begin,
                                std::int64_t end) {
  norm_backward_rows_typed(args, begin, end);
}
void norm_backward_rows_bfloat16(const NormBackwardArgs<bfloat16, float>& args, std::int64_t begin,
                                 std::int64_t end) {
  norm_backward_rows_typed(args, begin, end);
}
void norm_backward_rows_float16(const NormBackwardArgs<float16, float>& args, std::int64_t begin,
                                std::int64_t end) {
  norm_backward_rows_typed(args, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(norm_backward_rows_float32);
HWY_EXPORT(norm_backward_rows_bfloat16);
HWY_EXPORT(norm_backward_rows_float16);

// Rows summed in one go before they are added to the thread's total: bounds the rounding of long
// sums.
constexpr std::int64_t kRowBlock = 64;

void backward_rows(const NormBackwardArgs<float, float>& args, std::int64_t begin,
                   std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(norm_backward_rows_float32)(args, begin, end);
}
void backward_rows(const NormBackwardArgs<bfloat16, float>& args, std::int64_t begin,
                   std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(norm_backward_rows_bfloat16)(args, begin, end);
}
void backward_rows(const NormBackwardArgs<float16, float>& args, std::int64_t begin,
                   std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(norm_backward_rows_float16)(args, begin, end);
}
template <typename S>
void backward_rows(const NormBackwardArgs<double, double, S>& args, std::int64_t begin,
                   std::int64_t end) {
  norm_backward_rows_double(args, begin, end);
}

// One thread's scratch: sums of the current block, then totals, for dweight and dbias.
template <typename F>
struct ThreadSums {
  F* data;
  std::int64_t columns;

  F* block(int which) const { return data + which * columns; }
  F* total(int which) const { return data + (2 + which) * columns; }
  void clear_blocks() const { std::fill(data, data + 2 * columns, F{0}); }
  void clear() const { std::fill(data, data + 4 * columns, F{0}); }
  void flush() const {
    for (std::int64_t i = 0; i < 2 * columns; ++i) data[2 * columns + i] += data[i];
    clear_blocks();
  }
};

template <typename F>
void merge_threads(F* out, const F* sums, int which, std::int64_t threads, std::int64_t columns,
                   bool accumulate) {
  if (out == nullptr) return;
  for (std::int64_t c = 0; c < columns; ++c) {
    F total{0};
    for (std::int64_t t = 0; t < threads; ++t) total += sums[(4 * t + 2 + which) * columns + c];
    out[c] = accumulate ? out[c] + total : total;
  }
}

// `sums`: 4 * columns values a thread.
template <typename T, typename F, typename S>
void run(const NormGrads& views, const F* weight, F* sums, std::int64_t threads) {
  NormBackwardArgs<T, F, S> args;
  args.columns = views.x.shape.back();
  args.accumulate_dx = views.accumulate_dx;
  args.stream = views.dx.bytes() >= kStreamingBytes && args.columns >= 128;
  args.x = views.x.as<const T>();
  args.dy = views.dy.as<const T>();
  args.dx = views.dx.as<T>();
  args.weight = weight;
  args.mean = views.mean.as<const S>();
  args.rstd = views.rstd.as<const S>();
  const std::int64_t rows = row_count(views.x);
  parallel_for({static_cast<int>(threads)}, threads, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      const ThreadSums<F> mine{sums + 4 * t * args.columns, args.columns};
      mine.clear();
      NormBackwardArgs<T, F, S> own = args;
      own.dweight = views.dweight.defined() ? mine.block(0) : nullptr;
      own.dbias = views.dbias.defined() ? mine.block(1) : nullptr;
      const std::int64_t end = rows * (t + 1) / threads;
      for (std::int64_t row = rows * t / threads; row < end; row += kRowBlock) {
        backward_rows(own, row, std::min(row + kRowBlock, end));
        mine.flush();
      }
      finish_streaming(args.stream);
    }
  });
  merge_threads(views.dweight.as<F>(), sums, 0, threads, args.columns, views.accumulate_params);
  merge_threads(views.dbias.as<F>(), sums, 1, threads, args.columns, views.accumulate_params);
}

void clear_parameters(const NormGrads& views) {
  if (views.accumulate_params) return;
  for (const TensorView* grad : {&views.dweight, &views.dbias})
    if (grad->defined()) std::memset(grad->data, 0, grad->bytes());
}

}  // namespace

void norm_backward(const KernelContext& context, const NormGrads& views) {
  if (views.x.numel() == 0) return clear_parameters(views);
  const std::int64_t columns = views.x.shape.back();
  const std::int64_t rows = row_count(views.x);
  const std::int64_t useful = (rows * columns + kElementGrain - 1) / kElementGrain;
  const std::int64_t threads =
      std::min<std::int64_t>({std::max(context.threads.count, 1), rows, useful});
  const bool wide = views.x.dtype == DType::kFloat64;
  const std::size_t size = wide ? sizeof(double) : sizeof(float);
  // Per thread four rows of sums, and one row for a weight that is not float32.
  std::byte* scratch = context.workspace->reserve((4 * threads + 1) * columns * size).data();
  if (wide) {
    auto* sums = reinterpret_cast<double*>(scratch);
    const auto* weight = views.weight.as<const double>();
    return views.rstd.dtype == DType::kFloat64
               ? run<double, double, double>(views, weight, sums, threads)
               : run<double, double, float>(views, weight, sums, threads);
  }
  auto* sums = reinterpret_cast<float*>(scratch);
  const float* weight = as_float32(views.weight, sums + 4 * threads * columns);
  dispatch_float(views.x.dtype, "norm_backward", [&]<typename T>(TypeTag<T>) {
    run<T, float, float>(views, weight, sums, threads);
  });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
