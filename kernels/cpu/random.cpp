// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/random.h"

#include <cmath>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/random.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd_math.h"
#include "kernels/cpu/simd_philox.h"

#ifndef MESHLOOM_KERNELS_CPU_RANDOM_CHUNK_
#define MESHLOOM_KERNELS_CPU_RANDOM_CHUNK_
namespace meshloom::kernels::cpu {
namespace {

// Values drawn at a time; a multiple of every target's vectors of four-word blocks.
constexpr std::int64_t kChunk = 1024;

// Random values for elements [first, first + n), n <= kChunk: `values` holds those of whole blocks,
// and element `first` is values[skip].
struct Chunk {
  alignas(64) float values[kChunk + 128];
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

// Uniform values of elements first_block * 4 and on, at least n of them.
void uniforms(const PhiloxStream& stream, std::uint64_t first_block, std::size_t n, float* values) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < n; i += 4 * lanes, first_block += lanes) {
    const simd::PhiloxVectors random = simd::philox_blocks(stream, first_block);
    hn::StoreInterleaved4(simd::to_uniform(random.words[0]), simd::to_uniform(random.words[1]),
                          simd::to_uniform(random.words[2]), simd::to_uniform(random.words[3]), d,
                          values + i);
  }
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

void normals(const PhiloxStream& stream, std::uint64_t first_block, std::size_t n, float* values) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < n; i += 4 * lanes, first_block += lanes) {
    const simd::PhiloxVectors random = simd::philox_blocks(stream, first_block);
    V z0, z1, z2, z3;
    normal_pair(random.words[0], random.words[1], z0, z1);
    normal_pair(random.words[2], random.words[3], z2, z3);
    hn::StoreInterleaved4(z0, z1, z2, z3, d, values + i);
  }
}

// Fills and dropout of elements [first, first + n) of the sequence, n <= kChunk.
void draw(bool normal, const PhiloxStream& stream, std::uint64_t first, std::size_t n,
          Chunk& chunk) {
  const std::size_t whole = n + first % 4;
  if (normal)
    normals(stream, first / 4, whole, chunk.values);
  else
    uniforms(stream, first / 4, whole, chunk.values);
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

void dropout_row(DType dtype, void* y, const void* x, const float* values, std::size_t n, float p) {
  dispatch_float(dtype, "dropout", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    const FloatTag d;
    const V threshold = hn::Set(d, p);
    const V scale = hn::Set(d, 1.0f / (1.0f - p));
    simd::map_row(
        false, static_cast<T*>(y), n,
        [threshold, scale](V v, V u)
            HWY_ATTR { return hn::IfThenElseZero(hn::Ge(u, threshold), hn::Mul(v, scale)); },
        static_cast<const T*>(x), values);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(draw);
HWY_EXPORT(affine_row);
HWY_EXPORT(dropout_row);

std::byte* at(const TensorView& view, std::int64_t offset) {
  return view.as<std::byte>() + offset * static_cast<std::int64_t>(dtype_size(view.dtype));
}

// Calls fn(index, n, values) for chunks that cover [0, total): values[i] belongs to element index +
// i.
template <typename Fn>
void for_each_chunk(Threads threads, bool normal, const PhiloxStream& stream, std::uint64_t first,
                    std::int64_t total, Fn&& fn) {
  parallel_for(threads, total, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    Chunk chunk;
    for (std::int64_t i = begin; i < end; i += kChunk) {
      const std::int64_t n = std::min(kChunk, end - i);
      const std::uint64_t index = first + static_cast<std::uint64_t>(i);
      HWY_DYNAMIC_DISPATCH(draw)(normal, stream, index, n, chunk);
      fn(i, n, chunk.values + index % 4);
    }
  });
}

void fill_random(const KernelContext& context, const TensorView& dst, const PhiloxStream& stream,
                 std::uint64_t first, bool normal, float scale, float offset) {
  for_each_chunk(context.threads, normal, stream, first, dst.numel(),
                 [&](std::int64_t i, std::int64_t n, const float* values) {
                   if (dst.dtype != DType::kFloat64) {
                     HWY_DYNAMIC_DISPATCH(affine_row)
                     (dst.dtype, at(dst, i), values, n, scale, offset);
                     return;
                   }
                   double* to = dst.as<double>() + i;
                   for (std::int64_t j = 0; j < n; ++j)
                     to[j] = static_cast<double>(values[j]) * scale + offset;
                 });
}

}  // namespace

void dropout(const KernelContext& context, const TensorView& y, const TensorView& x,
             const DropoutOptions& options) {
  const auto threshold = static_cast<float>(options.p);
  for_each_chunk(
      context.threads, false, options.random, options.first_index, x.numel(),
      [&](std::int64_t i, std::int64_t n, const float* values) {
        if (x.dtype != DType::kFloat64) {
          HWY_DYNAMIC_DISPATCH(dropout_row)(x.dtype, at(y, i), at(x, i), values, n, threshold);
          return;
        }
        for (std::int64_t j = 0; j < n; ++j)
          y.as<double>()[i + j] =
              values[j] >= threshold ? x.as<const double>()[i + j] / (1.0 - options.p) : 0.0;
      });
}

void fill_normal(const KernelContext& context, const TensorView& dst, const PhiloxStream& random,
                 std::uint64_t first_index, float mean, float std) {
  fill_random(context, dst, random, first_index, true, std, mean);
}

void fill_uniform(const KernelContext& context, const TensorView& dst, const PhiloxStream& random,
                  std::uint64_t first_index, float low, float high) {
  fill_random(context, dst, random, first_index, false, high - low, low);
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
