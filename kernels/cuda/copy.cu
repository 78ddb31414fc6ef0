// SPDX-License-Identifier: Apache-2.0
// Copy, cast and fill of strided views. What keeps its bits moves in units of up to 16 bytes, and a
// transpose by tiles; the floating dtypes convert four elements at a time where rows are dense.
#include <bit>

#include "kernels/base/dtype.h"
#include "kernels/base/float8.h"
#include "kernels/base/half.h"
#include "kernels/cuda/copy_launch.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/primitives/any_element.h"
#include "kernels/cuda/primitives/convert.h"
#include "kernels/cuda/primitives/dtype_switch.h"
#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/vectors.h"
#include "kernels/cuda/strided_plan.h"

namespace meshloom::kernels::cuda {
namespace {

using CopyPlan = StridedPlan<2>;  // 0: dst, 1: src
using FillPlan = StridedPlan<1>;

constexpr int kCopyThreads = 256;

/// Bytes that move as one, where no number is so long.
struct alignas(16) Unit16 {
  std::uint32_t words[4];
};

template <class T>
__global__ void copy_units(CopyPlan plan) {
  for (std::int64_t i = grid_thread<kCopyThreads>(); i < plan.numel;
       i += grid_threads<kCopyThreads>()) {
    std::int64_t at[2];
    locate(plan, i, at);
    static_cast<T*>(plan.data[0])[at[0]] = static_cast<const T*>(plan.data[1])[at[1]];
  }
}

template <class T>
__global__ void fill_units(FillPlan plan, T value) {
  for (std::int64_t i = grid_thread<kCopyThreads>(); i < plan.numel;
       i += grid_threads<kCopyThreads>()) {
    std::int64_t at[1];
    locate(plan, i, at);
    static_cast<T*>(plan.data[0])[at[0]] = value;
  }
}

/// Units of kCount elements, whose rows are dense in both views unless kCount is 1.
template <class To, class From, int kCount>
__global__ void convert_units(CopyPlan plan) {
  for (std::int64_t i = grid_thread<kCopyThreads>(); i < plan.numel;
       i += grid_threads<kCopyThreads>()) {
    std::int64_t at[2];
    locate(plan, i, at);
    const auto from = static_cast<const Vector<From, kCount>*>(plan.data[1])[at[1]];
    Vector<To, kCount> to;
#pragma unroll
    for (int k = 0; k < kCount; ++k) to[k] = from_compute<To>(to_compute(from[k]));
    static_cast<Vector<To, kCount>*>(plan.data[0])[at[0]] = to;
  }
}

/// C: how elements of the source are held.
template <class C>
__global__ void convert_any(CopyPlan plan) {
  for (std::int64_t i = grid_thread<kCopyThreads>(); i < plan.numel;
       i += grid_threads<kCopyThreads>()) {
    std::int64_t at[2];
    locate(plan, i, at);
    store_any<C>(plan.dtypes[0], plan.data[0], at[0],
                 load_any<C>(plan.dtypes[1], plan.data[1], at[1]));
  }
}

constexpr int kTile = 32;
constexpr int kTileRows = kCopyThreads / kTile;

/// Where the last dim is dense in dst, `dense` is so in the source.
struct TransposePlan {
  CopyPlan views;
  int dense = 0;
  std::int64_t tiles_across = 0;  ///< of the last dim
  std::int64_t tiles_down = 0;    ///< of the dense one
};

/// A block moves one tile: it reads along `dense` and writes along the last dim.
template <class T>
__global__ void transpose_tiles(TransposePlan plan) {
  MESHLOOM_SHARED(tile, T[kTile][kTile + 1]);
  const int last = plan.views.dims - 1, dense = plan.dense;
  std::int64_t rest = blockIdx.x;
  const std::int64_t across = rest % plan.tiles_across * kTile;
  rest /= plan.tiles_across;
  const std::int64_t down = rest % plan.tiles_down * kTile;
  rest /= plan.tiles_down;
  T* dst = static_cast<T*>(plan.views.data[0]);
  const T* src = static_cast<const T*>(plan.views.data[1]);
  for (int d = last - 1; d >= 0; --d) {
    if (d == dense) continue;
    const std::int64_t place = rest % plan.views.sizes[d];
    rest /= plan.views.sizes[d];
    dst += place * plan.views.strides[0][d];
    src += place * plan.views.strides[1][d];
  }
  const int lane = threadIdx.x % kTile;
  const std::int64_t columns = plan.views.sizes[last] - across;
  const std::int64_t rows = plan.views.sizes[dense] - down;
  src += across * plan.views.strides[1][last] + down;
  dst += down * plan.views.strides[0][dense] + across;
  for (int c = threadIdx.x / kTile; c < kTile; c += kTileRows)
    if (c < columns && lane < rows) tile[c][lane] = src[c * plan.views.strides[1][last] + lane];
  __syncthreads();
  for (int r = threadIdx.x / kTile; r < kTile; r += kTileRows)
    if (r < rows && lane < columns) dst[r * plan.views.strides[0][dense] + lane] = tile[lane][r];
}

/// A dim but the last that is dense in the source where the last is dense in dst alone; -1: none.
int transposed_dim(const CopyPlan& plan) {
  const int last = plan.dims - 1;
  if (plan.strides[0][last] != 1 || plan.strides[1][last] == 1) return -1;
  for (int d = 0; d < last; ++d)
    if (plan.strides[1][d] == 1 && plan.sizes[d] >= 4) return d;
  return -1;
}

/// Whether `count` neighbours of a row can be one unit in every view, of `bytes[view]` each.
template <int kViews>
bool units_fit(const StridedPlan<kViews>& plan, std::int64_t count, const std::size_t* bytes) {
  if (plan.row_size() % count != 0) return false;
  for (int k = 0; k < kViews; ++k) {
    if (plan.row_stride(k) != 1) return false;
    if (reinterpret_cast<std::uintptr_t>(plan.data[k]) % (bytes[k] * count) != 0) return false;
    for (int d = 0; d + 1 < plan.dims; ++d)
      if (plan.strides[k][d] % count != 0) return false;
  }
  return true;
}

/// The plan in units of `count` elements.
template <int kViews>
void join_units(StridedPlan<kViews>& plan, std::int64_t count) {
  plan.numel /= count;
  plan.sizes[plan.dims - 1] /= count;
  for (int k = 0; k < kViews; ++k)
    for (int d = 0; d + 1 < plan.dims; ++d) plan.strides[k][d] /= count;
}

/// Makes units as long as fit. Returns their bytes.
template <int kViews>
int join_widest(StridedPlan<kViews>& plan, int element_bytes) {
  for (int bytes = kVectorBytes; bytes > element_bytes; bytes /= 2) {
    std::size_t sizes[kViews];
    for (std::size_t& size : sizes) size = static_cast<std::size_t>(element_bytes);
    if (!units_fit(plan, bytes / element_bytes, sizes)) continue;
    join_units(plan, bytes / element_bytes);
    return bytes;
  }
  return element_bytes;
}

/// Calls `body(TypeTag<T>{})` for an unsigned number of so many bytes.
template <class Body>
void for_number(int bytes, Body&& body) {
  switch (bytes) {
    case 1: return body(TypeTag<std::uint8_t>{});
    case 2: return body(TypeTag<std::uint16_t>{});
    case 4: return body(TypeTag<std::uint32_t>{});
    default: return body(TypeTag<std::uint64_t>{});
  }
}

/// The same, and for 16 bytes Unit16.
template <class Body>
void for_unit(int bytes, Body&& body) {
  if (bytes == 16) return body(TypeTag<Unit16>{});
  for_number(bytes, body);
}

int element_bytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64: return 8;
    case DType::kFloat32:
    case DType::kInt32: return 4;
    case DType::kBFloat16:
    case DType::kFloat16: return 2;
    default: return 1;
  }
}

void launch_transpose(const CopyPlan& views, int dense, int bytes, cudaStream_t stream) {
  TransposePlan plan;
  plan.views = views;
  plan.dense = dense;
  const std::int64_t across = views.row_size(), down = views.sizes[dense];
  plan.tiles_across = divide_up<std::int64_t>(across, kTile);
  plan.tiles_down = divide_up<std::int64_t>(down, kTile);
  const std::int64_t tiles = plan.tiles_across * plan.tiles_down * (views.numel / (across * down));
  for_number(bytes, [&]<class T>(TypeTag<T>) {
    launch(transpose_tiles<T>, grid_for(tiles, 1), dim3(kCopyThreads), 0, stream, plan);
  });
}

void copy_bits(CopyPlan plan, int bytes, cudaStream_t stream) {
  if (plan.dims == 1 && plan.row_stride(0) == 1 && plan.row_stride(1) == 1)
    return check_launch(
        cudaMemcpyAsync(plan.data[0], plan.data[1], static_cast<std::size_t>(plan.numel) * bytes,
                        cudaMemcpyDeviceToDevice, stream),
        "a copy of bytes");
  const int dense = transposed_dim(plan);
  if (dense >= 0) return launch_transpose(plan, dense, bytes, stream);
  for_unit(join_widest(plan, bytes), [&]<class T>(TypeTag<T>) {
    launch(copy_units<T>, strided_grid(plan.numel, kCopyThreads), dim3(kCopyThreads), 0, stream,
           plan);
  });
}

template <class To, class From>
void launch_convert(CopyPlan plan, cudaStream_t stream) {
  constexpr int kCount = 4;
  const std::size_t bytes[] = {sizeof(To), sizeof(From)};
  const bool joined = units_fit(plan, kCount, bytes);
  if (joined) join_units(plan, kCount);
  launch(joined ? convert_units<To, From, kCount> : convert_units<To, From, 1>,
         strided_grid(plan.numel, kCopyThreads), dim3(kCopyThreads), 0, stream, plan);
}

bool is_short_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

template <class Body>
void for_short_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kBFloat16: return body(TypeTag<__nv_bfloat16>{});
    case DType::kFloat16: return body(TypeTag<__half>{});
    default: return body(TypeTag<float>{});
  }
}

/// The element that a value is stored as, in the low bytes.
std::uint64_t element_bits(DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat64: return std::bit_cast<std::uint64_t>(value);
    case DType::kFloat32: return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::kBFloat16: return bfloat16::from_float(round_to_odd(value));
    case DType::kFloat16: return float16::from_float(round_to_odd(value));
    case DType::kFloat8E4M3: return float8_e4m3::from_float(round_to_odd(value));
    case DType::kFloat8E5M2: return float8_e5m2::from_float(round_to_odd(value));
    case DType::kInt64: return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
    case DType::kInt32: return static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
    case DType::kUInt8: return static_cast<std::uint8_t>(value);
    case DType::kBool: return value != 0 ? 1 : 0;
  }
  return 0;
}

/// Repeats the `bytes` low bytes of a value until they fill a unit.
template <class T>
T repeated_unit(std::uint64_t bits, int bytes) {
  for (; bytes < 8; bytes *= 2) bits |= bits << (8 * bytes);
  if constexpr (sizeof(T) <= 8) {
    return static_cast<T>(bits);
  } else {
    const auto low = static_cast<std::uint32_t>(bits),
               high = static_cast<std::uint32_t>(bits >> 32);
    return {{low, high, low, high}};
  }
}

}  // namespace

void launch_copy(const DeviceView& dst, const DeviceView& src, cudaStream_t stream) {
  const CopyPlan plan = make_strided_plan<2>({&dst, &src});
  if (dst.dtype == src.dtype) return copy_bits(plan, element_bytes(dst.dtype), stream);
  if (is_short_float(dst.dtype) && is_short_float(src.dtype)) {
    for_short_float(dst.dtype, [&]<class To>(TypeTag<To>) {
      for_short_float(src.dtype, [&]<class From>(TypeTag<From>) {
        if constexpr (!std::is_same_v<To, From>) launch_convert<To, From>(plan, stream);
      });
    });
    return;
  }
  launch(dtype_is_floating(src.dtype) ? convert_any<double> : convert_any<std::int64_t>,
         strided_grid(plan.numel, kCopyThreads), dim3(kCopyThreads), 0, stream, plan);
}

void launch_fill(const DeviceView& dst, double value, cudaStream_t stream) {
  FillPlan plan = make_strided_plan<1>({&dst});
  const int bytes = element_bytes(dst.dtype);
  const std::uint64_t bits = element_bits(dst.dtype, value);
  for_unit(join_widest(plan, bytes), [&]<class T>(TypeTag<T>) {
    launch(fill_units<T>, strided_grid(plan.numel, kCopyThreads), dim3(kCopyThreads), 0, stream,
           plan, repeated_unit<T>(bits, bytes));
  });
}

}  // namespace meshloom::kernels::cuda
