// SPDX-License-Identifier: Apache-2.0
// Copy, cast and fill of strided views: calls of Backend on the CPU.
#include "kernels/cpu/cpu_backend.h"

#include <cstring>

#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/simd/streaming.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/copy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/rows.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// dst and src dense; both of the 32-bit and 16-bit floating dtypes.
void convert_row(void* dst, DType dst_dtype, const void* src, DType src_dtype, std::size_t n,
                 bool stream) {
  dispatch_float(dst_dtype, "copy", [&]<typename To>(TypeTag<To>) {
    dispatch_float(src_dtype, "copy", [&]<typename From>(TypeTag<From>) {
      simd::map_row(
          stream, static_cast<To*>(dst), n, [](auto v) HWY_ATTR { return v; },
          static_cast<const From*>(src));
    });
  });
}

// Any bytes, past the caches.
void stream_row(std::byte* dst, const std::byte* src, std::size_t bytes) {
  const hwy::HWY_NAMESPACE::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hwy::HWY_NAMESPACE::Lanes(d);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(dst) % lanes;
  std::size_t i = past == 0 ? 0 : std::min(lanes - past, bytes);
  std::memcpy(dst, src, i);
  const auto* from = reinterpret_cast<const std::uint8_t*>(src);
  auto* to = reinterpret_cast<std::uint8_t*>(dst);
  for (; i + lanes <= bytes; i += lanes)
    hwy::HWY_NAMESPACE::Stream(hwy::HWY_NAMESPACE::LoadU(d, from + i), d, to + i);
  std::memcpy(dst + i, src + i, bytes - i);
}

// A full vector whose 128-bit blocks are at p, p + step, ...
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const std::uint32_t* p, std::size_t step) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<D> half;
    const std::size_t blocks = hn::Lanes(half) / 4;
    return hn::Combine(d, load_blocks(half, p + blocks * step, step), load_blocks(half, p, step));
  }
}

// Vectors of a cache line bring the source through a buffer, since its rows may all fall into one
// set of the first-level cache, which holds fewer than 16. Shorter ones are as fast from there as
// from the second level, and gain by leaving the copy out.
#if HWY_TARGET == HWY_AVX3
constexpr bool kBufferedTile = true;
#else
constexpr bool kBufferedTile = false;
#endif

// dst[r][c] = src[c][r] for 16 x 16 elements of 4 bytes; rows of dst and src lie dst_row and
// src_row elements apart.
void transpose_tile_32(std::uint32_t* dst, std::int64_t dst_row, const std::uint32_t* src,
                       std::int64_t src_row, bool stream) {
  const hn::ScalableTag<std::uint32_t> d;
  const std::size_t lanes = hn::Lanes(d);
  alignas(64) std::uint32_t tile[16 * 16];
  if constexpr (kBufferedTile) {
    for (std::size_t c = 0; c < 16; ++c)
      for (std::size_t r = 0; r < 16; r += lanes)
        hn::Store(hn::LoadU(d, src + c * src_row + r), d, tile + c * 16 + r);
    src = tile;
    src_row = 16;
  }
  for (std::size_t r = 0; r < 16; r += 4) {
    for (std::size_t c = 0; c < 16; c += lanes) {
      // Block b of row i holds row c + 4 b + i of the source.
      const std::uint32_t* from = src + c * src_row + r;
      auto v0 = load_blocks(d, from, 4 * src_row);
      auto v1 = load_blocks(d, from + src_row, 4 * src_row);
      auto v2 = load_blocks(d, from + 2 * src_row, 4 * src_row);
      auto v3 = load_blocks(d, from + 3 * src_row, 4 * src_row);
      simd::transpose(d, v0, v1, v2, v3);
      std::uint32_t* to = dst + r * dst_row + c;
      if (stream) {
        hn::Stream(v0, d, to);
        hn::Stream(v1, d, to + dst_row);
        hn::Stream(v2, d, to + 2 * dst_row);
        hn::Stream(v3, d, to + 3 * dst_row);
      } else {
        hn::StoreU(v0, d, to);
        hn::StoreU(v1, d, to + dst_row);
        hn::StoreU(v2, d, to + 2 * dst_row);
        hn::StoreU(v3, d, to + 3 * dst_row);
      }
    }
  }
}

// The same for `columns` rows of the source, a multiple of 16, and `rows` of dst, at most
// kStripRows and a multiple of 16.
void transpose_strip_32(std::uint32_t* dst, std::int64_t dst_row, const std::uint32_t* src,
                        std::int64_t src_row, std::int64_t rows, std::int64_t columns,
                        bool stream) {
  // Rows of the source to come are asked for before the first tile, or some before each.
  const std::int64_t tiles = std::max<std::int64_t>(rows / 16, 1);
  const std::int64_t share = kBufferedTile ? 16 : (16 + tiles - 1) / tiles;
  for (std::int64_t c = 0; c < columns; c += 16) {
    const std::uint32_t* ahead = src + (c + 16) * src_row;
    const bool more = c + 16 < columns;
    for (std::int64_t r = 0, asked = 0; r < rows; r += 16) {
      for (const std::int64_t end = std::min<std::int64_t>(asked + share, 16); more && asked < end;
           ++asked)
        for (std::int64_t at = 0; at < rows; at += 16) hwy::Prefetch(ahead + asked * src_row + at);
      transpose_tile_32(dst + r * dst_row + c, dst_row, src + c * src_row + r, src_row, stream);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(convert_row);
HWY_EXPORT(stream_row);
HWY_EXPORT(transpose_strip_32);

using Loop = StridedLoop<2>;

constexpr std::int64_t kTile = 16;

bool is_short_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

std::byte* at(const TensorView& view, std::int64_t offset) {
  return view.as<std::byte>() + offset * static_cast<std::int64_t>(dtype_size(view.dtype));
}

void copy_dense_rows(Threads threads, const Loop& loop, const TensorView& dst,
                     const TensorView& src) {
  const std::size_t size = dtype_size(dst.dtype);
  const bool stream = dst.bytes() >= kStreamingBytes && loop.row_size() * size >= 4096;
  for_each_row(threads, loop, [&](const auto& offsets, std::int64_t n) {
    std::byte* to = at(dst, offsets[0]);
    const std::byte* from = at(src, offsets[1]);
    if (stream)
      HWY_DYNAMIC_DISPATCH(stream_row)(to, from, n * size);
    else
      std::memcpy(to, from, n * size);
    finish_streaming(stream);
  });
}

template <typename To, typename From>
void convert_any_rows(Threads threads, const Loop& loop, To* dst, const From* src) {
  const std::int64_t dst_stride = loop.row_stride(0);
  const std::int64_t src_stride = loop.row_stride(1);
  for_each_row(threads, loop, [&](const auto& offsets, std::int64_t n) {
    To* to = dst + offsets[0];
    const From* from = src + offsets[1];
    for (std::int64_t i = 0; i < n; ++i) to[i * dst_stride] = convert<To>(from[i * src_stride]);
  });
}

// One tile of a transpose: reads along `rows`, writes along `columns`, with the tile in registers
// or the first-level cache between.
template <typename T>
void transpose_tile(T* dst, std::int64_t dst_row, const T* src, std::int64_t src_column,
                    std::int64_t rows, std::int64_t columns) {
  T tile[kTile][kTile];
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = 0; r < rows; ++r) tile[r][c] = src[c * src_column + r];
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) dst[r * dst_row + c] = tile[r][c];
}

// Rows of the destination that are written together: four cache lines of every row of the source,
// so that finding its page pays.
constexpr std::int64_t kStripRows = 64;

// `rows` rows of `columns` elements of the destination, whose elements are columns of the source.
template <typename T>
void transpose_strip(T* dst, std::int64_t dst_row, const T* src, std::int64_t src_row,
                     std::int64_t rows, std::int64_t columns, bool stream) {
  std::int64_t whole_rows = 0, whole_columns = 0;
  if constexpr (sizeof(T) == 4) {
    whole_rows = rows / kTile * kTile;
    whole_columns = columns / kTile * kTile;
    const bool aligned = reinterpret_cast<std::uintptr_t>(dst) % 64 == 0 && dst_row % kTile == 0;
    HWY_DYNAMIC_DISPATCH(transpose_strip_32)
    (dst, dst_row, src, src_row, whole_rows, whole_columns, stream && aligned);
  }
  for (std::int64_t r = 0; r < rows; r += kTile) {
    const std::int64_t done = r < whole_rows ? whole_columns : 0;
    for (std::int64_t c = done; c < columns; c += kTile)
      transpose_tile(dst + r * dst_row + c, dst_row, src + c * src_row + r, src_row,
                     std::min(kTile, rows - r), std::min(kTile, columns - c));
  }
}

// The last dim is dense in dst, `dim` is dense in src: strips of rows of dst.
template <typename T>
void transpose(Threads threads, const Loop& loop, int dim, T* dst, const T* src) {
  Loop strips = loop;
  const int last = loop.ndim - 1;
  strips.sizes[dim] = (loop.sizes[dim] + kStripRows - 1) / kStripRows;
  strips.sizes[last] = 1;
  const std::int64_t columns = loop.sizes[last];
  const bool stream = loop.numel() * sizeof(T) >= kStreamingBytes;
  // Strips of `dim` are walked by index, so that the last, smaller one is known.
  strips.strides[0][dim] = loop.strides[0][dim] * kStripRows;
  strips.strides[1][dim] = kStripRows;
  std::int64_t inner = 1;
  for (int d = dim + 1; d < last; ++d) inner *= strips.sizes[d];
  const std::int64_t grain = std::max<std::int64_t>(1, kElementGrain / (kStripRows * columns));
  parallel_for(threads, strips.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t strip = t / inner % strips.sizes[dim];
      const std::int64_t rows = std::min(kStripRows, loop.sizes[dim] - strip * kStripRows);
      walk_rows(strips, t, t + 1, [&](const auto& offsets, std::int64_t) {
        transpose_strip(dst + offsets[0], loop.strides[0][dim], src + offsets[1],
                        loop.strides[1][last], rows, columns, stream);
      });
    }
    finish_streaming(stream);
  });
}

// A dim but the last that is dense in the source where the last is dense in the destination; -1:
// none.
int transposed_dim(const Loop& loop) {
  const int last = loop.ndim - 1;
  if (loop.strides[0][last] != 1 || loop.strides[1][last] == 1) return -1;
  for (int d = 0; d < last; ++d)
    if (loop.strides[1][d] == 1 && loop.sizes[d] >= 4) return d;
  return -1;
}

template <typename T>
void copy_bits(Threads threads, const Loop& loop, const TensorView& dst, const TensorView& src) {
  const int dim = transposed_dim(loop);
  if (dim >= 0)
    transpose(threads, loop, dim, dst.as<T>(), src.as<const T>());
  else
    convert_any_rows(threads, loop, dst.as<T>(), src.as<const T>());
}

}  // namespace

void CpuBackend::copy(const KernelContext& context, const TensorView& dst, const TensorView& src) {
  if (dst.numel() == 0) return;
  const Loop loop = make_strided_loop<2>({&dst, &src});
  const bool dense = loop.row_stride(0) == 1 && loop.row_stride(1) == 1;
  if (dst.dtype == src.dtype) {
    if (dense) return copy_dense_rows(context.threads, loop, dst, src);
    switch (dtype_size(dst.dtype)) {
      case 1: return copy_bits<std::uint8_t>(context.threads, loop, dst, src);
      case 2: return copy_bits<std::uint16_t>(context.threads, loop, dst, src);
      case 4: return copy_bits<std::uint32_t>(context.threads, loop, dst, src);
      default: return copy_bits<std::uint64_t>(context.threads, loop, dst, src);
    }
  }
  if (dense && is_short_float(dst.dtype) && is_short_float(src.dtype)) {
    const bool stream = dst.bytes() >= kStreamingBytes;
    return for_each_row(context.threads, loop, [&](const auto& offsets, std::int64_t n) {
      HWY_DYNAMIC_DISPATCH(convert_row)
      (at(dst, offsets[0]), dst.dtype, at(src, offsets[1]), src.dtype, n, stream);
      finish_streaming(stream);
    });
  }
  dispatch_stored(dst.dtype, "copy", [&]<typename To>(TypeTag<To>) {
    dispatch_stored(src.dtype, "copy", [&]<typename From>(TypeTag<From>) {
      convert_any_rows(context.threads, loop, dst.as<To>(), src.as<const From>());
    });
  });
}

// A host's memory is the device's.
void CpuBackend::copy_from_host(const KernelContext& context, const TensorView& dst,
                                const TensorView& host) {
  copy(context, dst, host);
}

void CpuBackend::copy_from_host_async(const KernelContext& context, const TensorView& dst,
                                      const TensorView& host) {
  copy(context, dst, host);
}

void CpuBackend::copy_to_host(const KernelContext& context, const TensorView& host,
                              const TensorView& src) {
  copy(context, host, src);
}

void CpuBackend::copy_to_host_async(const KernelContext& context, const TensorView& host,
                                    const TensorView& src) {
  copy(context, host, src);
}

void CpuBackend::fill(const KernelContext& context, const TensorView& dst, double value) {
  if (dst.numel() == 0) return;
  const StridedLoop<1> loop = make_strided_loop<1>({&dst});
  dispatch_stored(dst.dtype, "fill", [&]<typename T>(TypeTag<T>) {
    const T element = convert<T>(value);
    const std::int64_t stride = loop.row_stride(0);
    for_each_row(context.threads, loop, [&](const auto& offsets, std::int64_t n) {
      T* to = dst.as<T>() + offsets[0];
      if (stride == 1) {
        std::fill(to, to + n, element);
      } else {
        for (std::int64_t i = 0; i < n; ++i) to[i * stride] = element;
      }
    });
  });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
