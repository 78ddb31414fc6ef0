// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/norm_common.h"
#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/simd/streaming.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/rows.h"

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

// One pass over a row's columns: dweight += dy * n, dbias += dy, and dx = a g + b (x - mean) + c
// with the row's own a, b, c. Out is T or a type that rounds faster. Nothing is asked for ahead: a
// row's share of the first-level cache is too large for more rows in it.
template <class Out, class T>
void finish_row(const NormBackwardArgs<T, float>& args, const RowStats& stats, const RowSums& sums,
                const T* dy, const T* x, T* dx) {
  const FloatTag d;
  const auto n = static_cast<float>(args.columns);
  const float rstd = hn::GetLane(stats.rstd);
  const V b = hn::Set(d, -rstd * rstd * sums.product / n);
  const V c = hn::Set(d, args.mean != nullptr ? -rstd * sums.grad / n : 0.0f);
  const V a = stats.rstd;
  const V mean = stats.mean;
  const float* weight = args.weight;
  float* dweight = args.dweight;
  float* dbias = args.dbias;
  const T* old = args.accumulate_dx ? dx : nullptr;
  const std::size_t lanes = hn::Lanes(d);
  const auto add_to = [=](float* to, std::size_t count, auto sum) HWY_ATTR {
    const V result = sum(simd::load_up_to(d, to, count));
    if (count == lanes)
      simd::store(d, result, to);
    else
      simd::store_n(d, result, to, count);
  };
  const bool stream = args.stream && old == nullptr;
  auto* out = reinterpret_cast<Out*>(dx);
  simd::write_row(stream, out, args.columns, [=](std::size_t i, std::size_t count) HWY_ATTR {
    V g = simd::load_up_to(d, dy + i, count);
    const V distance = hn::Sub(simd::load_up_to(d, x + i, count), mean);
    if (dweight != nullptr)
      add_to(dweight + i, count,
             [=](V sum) HWY_ATTR { return hn::MulAdd(g, hn::Mul(distance, a), sum); });
    if (dbias != nullptr) add_to(dbias + i, count, [=](V sum) HWY_ATTR { return hn::Add(sum, g); });
    if (weight != nullptr) g = hn::Mul(g, simd::load_up_to(d, weight + i, count));
    const V result = hn::MulAdd(g, a, hn::MulAdd(distance, b, c));
    return old == nullptr ? result : hn::Add(simd::load_up_to(d, old + i, count), result);
  });
}

template <class Out, class T>
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
    finish_row<Out>(args, stats, sums, dy, x, args.dx + at);
  }
}

void norm_backward_rows_float32(const NormBackwardArgs<float, float>& args, std::int64_t begin,
                                std::int64_t end) {
  norm_backward_rows_typed<float>(args, begin, end);
}
void norm_backward_rows_bfloat16(const NormBackwardArgs<bfloat16, float>& args, std::int64_t begin,
                                 std::int64_t end) {
#if HWY_TARGET == HWY_AVX3
  if (bfloat16_dot_products()) return norm_backward_rows_typed<NativeBFloat16>(args, begin, end);
#endif
  norm_backward_rows_typed<bfloat16>(args, begin, end);
}
void norm_backward_rows_float16(const NormBackwardArgs<float16, float>& args, std::int64_t begin,
                                std::int64_t end) {
  norm_backward_rows_typed<float16>(args, begin, end);
}

// total += block, block = 0.
void move_sums(float* total, float* block, std::size_t n) {
  simd::map_row(
      false, total, n, [](V a, V b) HWY_ATTR { return hn::Add(a, b); }, total, block);
  std::memset(block, 0, n * sizeof(float));
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
HWY_EXPORT(move_sums);

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

void move_sums(float* total, float* block, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(move_sums)(total, block, static_cast<std::size_t>(n));
}
void move_sums(double* total, double* block, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) total[i] += block[i];
  std::fill(block, block + n, 0.0);
}

// One thread's scratch: sums of the current block, then totals, for dweight and dbias.
template <typename F>
struct ThreadSums {
  F* data;
  std::int64_t columns;

  F* block(int which) const { return data + which * columns; }
  F* total(int which) const { return data + (2 + which) * columns; }
  void clear() const { std::fill(data, data + 4 * columns, F{0}); }
  void flush() const { move_sums(total(0), block(0), 2 * columns); }
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

}  // namespace

void CpuBackend::norm_backward(const KernelContext& context, const NormGrads& views) {
  if (views.x.numel() == 0) {
    if (views.accumulate_params) return;
    for (const TensorView* grad : {&views.dweight, &views.dbias})
      if (grad->defined()) std::memset(grad->data, 0, grad->bytes());
    return;
  }
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
