// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/copy.h"

#include <cstring>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/streaming.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/copy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/rows.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(convert_row);
HWY_EXPORT(stream_row);

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

void convert_dense_rows(Threads threads, const Loop& loop, const TensorView& dst,
                        const TensorView& src) {
  const bool stream = dst.bytes() >= kStreamingBytes;
  for_each_row(threads, loop, [&](const auto& offsets, std::int64_t n) {
    HWY_DYNAMIC_DISPATCH(convert_row)
    (at(dst, offsets[0]), dst.dtype, at(src, offsets[1]), src.dtype, n, stream);
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

// The last dim is dense in dst, `dim` is dense in src: tiles of those two.
template <typename T>
void transpose(Threads threads, const Loop& loop, int dim, T* dst, const T* src) {
  Loop tiles = loop;
  const int last = loop.ndim - 1;
  tiles.sizes[dim] = (loop.sizes[dim] + kTile - 1) / kTile;
  tiles.sizes[last] = 1;
  const std::int64_t columns = loop.sizes[last];
  // Tiles of `dim` are walked by index, so that the last, smaller one is known.
  tiles.strides[0][dim] = loop.strides[0][dim] * kTile;
  tiles.strides[1][dim] = kTile;
  const std::int64_t grain = std::max<std::int64_t>(1, kElementGrain / (kTile * columns));
  parallel_for(threads, tiles.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      std::int64_t inner = 1;
      for (int d = dim + 1; d < last; ++d) inner *= tiles.sizes[d];
      const std::int64_t tile_row = t / inner % tiles.sizes[dim];
      const std::int64_t rows = std::min(kTile, loop.sizes[dim] - tile_row * kTile);
      walk_rows(tiles, t, t + 1, [&](const auto& offsets, std::int64_t) {
        for (std::int64_t c = 0; c < columns; c += kTile)
          transpose_tile(dst + offsets[0] + c, loop.strides[0][dim],
                         src + offsets[1] + c * loop.strides[1][last], loop.strides[1][last], rows,
                         std::min(kTile, columns - c));
      });
    }
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

void copy_same_dtype(Threads threads, const Loop& loop, const TensorView& dst,
                     const TensorView& src) {
  if (loop.row_stride(0) == 1 && loop.row_stride(1) == 1)
    return copy_dense_rows(threads, loop, dst, src);
  switch (dtype_size(dst.dtype)) {
    case 1: return copy_bits<std::uint8_t>(threads, loop, dst, src);
    case 2: return copy_bits<std::uint16_t>(threads, loop, dst, src);
    case 4: return copy_bits<std::uint32_t>(threads, loop, dst, src);
    default: return copy_bits<std::uint64_t>(threads, loop, dst, src);
  }
}

}  // namespace

void copy(const KernelContext& context, const TensorView& dst, const TensorView& src) {
  if (dst.numel() == 0) return;
  const Loop loop = make_strided_loop<2>({&dst, &src});
  if (dst.dtype == src.dtype) return copy_same_dtype(context.threads, loop, dst, src);
  const bool dense = loop.row_stride(0) == 1 && loop.row_stride(1) == 1;
  if (dense && is_short_float(dst.dtype) && is_short_float(src.dtype))
    return convert_dense_rows(context.threads, loop, dst, src);
  dispatch_any(dst.dtype, "copy", [&]<typename To>(TypeTag<To>) {
    dispatch_any(src.dtype, "copy", [&]<typename From>(TypeTag<From>) {
      convert_any_rows(context.threads, loop, dst.as<To>(), src.as<const From>());
    });
  });
}

void fill(const KernelContext& context, const TensorView& dst, double value) {
  if (dst.numel() == 0) return;
  const StridedLoop<1> loop = make_strided_loop<1>({&dst});
  dispatch_any(dst.dtype, "fill", [&]<typename T>(TypeTag<T>) {
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
