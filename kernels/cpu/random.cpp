// SPDX-License-Identifier: Apache-2.0
// Dropout and random fills by Philox on the global element index: calls of Backend on the CPU.
#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/random.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/simd/simd_math.h"
#include "kernels/cpu/simd/simd_philox.h"

#ifndef MESHLOOM_KERNELS_CPU_RANDOM_CHUNK_
#define MESHLOOM_KERNELS_CPU_RANDOM_CHUNK_
namespace meshloom::kernels::cpu {
namespace {

// Values drawn at a time; a multiple of every target's vectors of four-word blocks.
constexpr std::int64_t kChunk = 1024;

// What is drawn for elements [first, first + n), n <= kChunk: of whole blocks, so that element
// `first` is at first % 4.
template <typename Value>
struct Chunk {
  alignas(64) Value values[kChunk + 128];
};

}  // namespace
}  // namespace meshloom::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using simd::FloatTag;
using V = hn::Vec<FloatTag>;

// Calls fn(half, i) for halves whose values are at [i, i + 2 * lanes) of those of elements
// first_block * 4 and on: at least n values.
template <class Fn>
HWY_INLINE void for_each_half(const PhiloxStream& stream, std::uint64_t first_block, std::size_t n,
                              const Fn& fn) {
  const simd::PhiloxKeys keys = simd::philox_keys(stream);
  const std::size_t blocks = simd::philox_half_blocks();
  for (std::size_t i = 0; i < n; first_block += simd::kPhiloxHalves * blocks) {
    simd::PhiloxHalf halves[simd::kPhiloxHalves];
    simd::philox_halves(keys, stream.stream, first_block, halves);
    HWY_UNROLL(4)
    for (int h = 0; h < simd::kPhiloxHalves; ++h, i += 4 * blocks) fn(halves[h], i);
  }
}

// Random bits as they come, in order.
void bits(const PhiloxStream& stream, std::uint64_t first, std::size_t n, std::uint32_t* values) {
  for_each_half(stream, first / 4, n + first % 4,
                [values](const simd::PhiloxHalf& half, std::size_t i) HWY_ATTR {
                  const simd::PhiloxTag d;
                  const hn::RepartitionToWide<simd::PhiloxTag> dw;
                  const auto a = hn::BitCast(dw, simd::join_halves(half.words[0], half.words[1]));
                  const auto b = hn::BitCast(dw, simd::join_halves(half.words[2], half.words[3]));
                  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, a, b)), d, values + i);
                  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, a, b)), d,
                             values + i + hn::Lanes(d));
                });
}

// Two normal values from two uniform ones (Box and Muller, 1958).
HWY_INLINE void normal_pair(simd::PhiloxV a, simd::PhiloxV b, V& first, V& second) {
  const FloatTag d;
  // 1 - u is in (0, 1], so that the logarithm is finite.
  const V u = hn::Sub(hn::Set(d, 1.0f), simd::to_uniform(a));
  const V radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0f), simd::log(d, u)));
  V sine, cosine;
  simd::sincos_turns(d, simd::to_uniform(b), sine, cosine);
  first = hn::Mul(radius, cosine);
  second = hn::Mul(radius, sine);
}

// The pairs of a block are its words 0 and 1, 2 and 3.
void normals(const PhiloxStream& stream, std::uint64_t first, std::size_t n, float* values) {
  for_each_half(stream, first / 4, n + first % 4,
                [values](const simd::PhiloxHalf& half, std::size_t i) HWY_ATTR {
                  const FloatTag d;
                  V z0, z1;
                  normal_pair(simd::join_halves(half.words[0], half.words[2]),
                              simd::join_halves(half.words[1], half.words[3]), z0, z1);
                  hn::StoreU(hn::InterleaveLower(d, z0, z1), d, values + i);
                  hn::StoreU(hn::InterleaveUpper(d, z0, z1), d, values + i + hn::Lanes(d));
                });
}

void to_uniforms(const std::uint32_t* bits, float* values, std::size_t n) {
  const simd::PhiloxTag d;
  const FloatTag df;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(simd::to_uniform(hn::LoadU(d, bits + i)), df, values + i);
  for (; i < n; ++i) values[i] = philox_uniform(bits[i]);
}

void affine_row(DType dtype, void* y, const float* values, std::size_t n, float scale,
                float offset) {
  dispatch_float(dtype, "fill_normal", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    const FloatTag d;
    const V s = hn::Set(d, scale);
    const V o = hn::Set(d, offset);
    simd::map_row(
        false, static_cast<T*>(y), n, [s, o](V v) HWY_ATTR { return hn::MulAdd(v, s, o); }, values);
  });
}

// Keeps elements whose bits are at least `threshold`, and multiplies them by `scale`.
template <class T>
void dropout_typed(T* y, const T* x, const std::uint32_t* bits, std::size_t n,
                   std::uint32_t threshold, float scale) {
  const FloatTag d;
  const simd::PhiloxTag du;
  const std::size_t lanes = hn::Lanes(d);
  const V s = hn::Set(d, scale);
  const auto least = hn::Set(du, threshold);
  const auto kept = [=](V v, simd::PhiloxV u) HWY_ATTR {
    return hn::IfThenZeroElse(hn::RebindMask(d, hn::Lt(u, least)), hn::Mul(v, s));
  };
  std::size_t i = 0;
  if constexpr (simd::kStoresTwo<T>) {
    for (; i + 2 * lanes <= n; i += 2 * lanes)
      simd::store_two(d, kept(simd::load(d, x + i), hn::LoadU(du, bits + i)),
                      kept(simd::load(d, x + i + lanes), hn::LoadU(du, bits + i + lanes)), y + i);
  }
  for (; i + lanes <= n; i += lanes)
    simd::store(d, kept(simd::load(d, x + i), hn::LoadU(du, bits + i)), y + i);
  // The chunk goes on beyond the last element's bits.
  if (i < n)
    simd::store_n(d, kept(simd::load_n(d, x + i, n - i), hn::LoadU(du, bits + i)), y + i, n - i);
}

void dropout_row(DType dtype, void* y, const void* x, const std::uint32_t* bits, std::size_t n,
                 std::uint32_t threshold, float scale) {
  simd::dispatch_computed(dtype, "dropout", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    dropout_typed(static_cast<T*>(y), static_cast<const T*>(x), bits, n, threshold, scale);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(bits);
HWY_EXPORT(normals);
HWY_EXPORT(to_uniforms);
HWY_EXPORT(affine_row);
HWY_EXPORT(dropout_row);

std::byte* at(const TensorView& view, std::int64_t offset) {
  return view.as<std::byte>() + offset * static_cast<std::int64_t>(dtype_size(view.dtype));
}

// Calls fn(i, n, index) for chunks that cover [0, total): their elements are [index, index + n) of
// the sequence.
template <typename Fn>
void for_each_chunk(Threads threads, std::uint64_t first, std::int64_t total, Fn&& fn) {
  parallel_for(threads, total, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += kChunk)
      fn(i, std::min(kChunk, end - i), first + static_cast<std::uint64_t>(i));
  });
}

void fill_random(const KernelContext& context, const TensorView& dst, const PhiloxStream& stream,
                 std::uint64_t first, bool normal, float scale, float offset) {
  for_each_chunk(context.threads, first, dst.numel(),
                 [&](std::int64_t i, std::int64_t n, std::uint64_t index) {
                   Chunk<float> chunk;
                   if (normal) {
                     HWY_DYNAMIC_DISPATCH(normals)(stream, index, n, chunk.values);
                   } else {
                     Chunk<std::uint32_t> drawn;
                     HWY_DYNAMIC_DISPATCH(bits)(stream, index, n, drawn.values);
                     HWY_DYNAMIC_DISPATCH(to_uniforms)(drawn.values, chunk.values, n + index % 4);
                   }
                   const float* values = chunk.values + index % 4;
                   if (dst.dtype != DType::kFloat64)
                     return HWY_DYNAMIC_DISPATCH(affine_row)(dst.dtype, at(dst, i), values, n,
                                                             scale, offset);
                   double* to = dst.as<double>() + i;
                   for (std::int64_t j = 0; j < n; ++j)
                     to[j] = static_cast<double>(values[j]) * scale + offset;
                 });
}

}  // namespace

// An element is kept where its uniform value is not below p, which is said of the bits that it is
// made of: nothing is rounded on the way.
void CpuBackend::dropout(const KernelContext& context, const TensorView& y, const TensorView& x,
                         const DropoutOptions& options) {
  const auto p = static_cast<float>(options.p);
  const double least = std::ceil(static_cast<double>(p) * 0x1p24);
  const auto threshold = static_cast<std::uint32_t>(std::clamp(least, 0.0, 0x1p24 - 1.0)) << 8;
  const bool all = p >= 1.0f;
  const float scale = all ? 0.0f : 1.0f / (1.0f - p);
  for_each_chunk(context.threads, options.first_index, x.numel(),
                 [&](std::int64_t i, std::int64_t n, std::uint64_t index) {
                   Chunk<std::uint32_t> chunk;
                   HWY_DYNAMIC_DISPATCH(bits)(options.random, index, n, chunk.values);
                   const std::uint32_t* drawn = chunk.values + index % 4;
                   if (x.dtype != DType::kFloat64)
                     return HWY_DYNAMIC_DISPATCH(dropout_row)(x.dtype, at(y, i), at(x, i), drawn, n,
                                                              threshold, scale);
                   for (std::int64_t j = 0; j < n; ++j)
                     y.as<double>()[i + j] = !all && drawn[j] >= threshold
                                                 ? x.as<const double>()[i + j] / (1.0 - options.p)
                                                 : 0.0;
                 });
}

void CpuBackend::fill_normal(const KernelContext& context, const TensorView& dst,
                             const PhiloxStream& random, std::uint64_t first_index, float mean,
                             float std) {
  fill_random(context, dst, random, first_index, true, std, mean);
}

void CpuBackend::fill_uniform(const KernelContext& context, const TensorView& dst,
                              const PhiloxStream& random, std::uint64_t first_index, float low,
                              float high) {
  fill_random(context, dst, random, first_index, false, high - low, low);
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
