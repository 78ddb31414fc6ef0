// SPDX-License-Identifier: Apache-2.0
// Rows of a table by id, and the gradient of the table: calls of Backend on the CPU.
#include "kernels/cpu/cpu_backend.h"

#include <cstring>

#include "kernels/cpu/simd/dispatch.h"
#include "kernels/cpu/simd/streaming.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/rows.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Copies a row. Rows lie anywhere in a table that no cache holds, so that only this code knows
// which comes next: `next` is asked for meanwhile. `stream` writes past the caches, for a
// destination that is aligned and a whole number of vectors long.
void copy_row(std::byte* to, const std::byte* from, const std::byte* next, std::size_t bytes,
              bool stream) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t step = hn::Lanes(d);
  auto* out = reinterpret_cast<std::uint8_t*>(to);
  const auto* in = reinterpret_cast<const std::uint8_t*>(from);
  const std::size_t whole = bytes - bytes % step;
  for (std::size_t i = 0; i < whole; i += step) {
    hwy::Prefetch(next + i);
    const auto v = hn::LoadU(d, in + i);
    if (stream)
      hn::Stream(v, d, out + i);
    else
      hn::StoreU(v, d, out + i);
  }
  std::memcpy(to + whole, from + whole, bytes - whole);
}

// to += from, n elements; `next`, the row that is added to later, is asked for meanwhile.
void add_row(float* to, DType dtype, const void* from, const float* next, std::size_t n) {
  const simd::FloatTag d;
  dispatch_float(dtype, "embedding_backward", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    const T* addend = static_cast<const T*>(from);
    simd::write_row(false, to, n, [=](std::size_t i, std::size_t count) HWY_ATTR {
      hwy::Prefetch(next + i);
      return hn::Add(simd::load_up_to(d, to + i, count), simd::load_up_to(d, addend + i, count));
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(copy_row);
HWY_EXPORT(add_row);

// Columns a thread owns are whole cache lines, so that no two threads write to one.
constexpr std::int64_t kLineColumns = 16;

// The id whose row is worked on kAhead rows later, or this one's where that is none.
std::int64_t later_id(const std::int64_t* ids, std::int64_t i, std::int64_t end,
                      std::int64_t rows) {
  constexpr std::int64_t kAhead = 2;
  const std::int64_t later = ids[std::min(i + kAhead, end - 1)];
  return later >= 0 && later < rows ? later : ids[i];
}

void add_columns(const TensorView& dweight, const TensorView& dy, const std::int64_t* ids,
                 std::int64_t count, std::int64_t padding_idx, std::int64_t first,
                 std::int64_t columns) {
  const std::int64_t dy_row = dy.shape.back();
  const std::int64_t row_stride = dweight.stride(0);
  const auto size = static_cast<std::int64_t>(dtype_size(dy.dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    if (ids[i] == padding_idx || ids[i] < 0 || ids[i] >= dweight.size(0)) continue;
    const std::int64_t to = ids[i] * row_stride + first;
    const std::int64_t from = i * dy_row + first;
    if (dy.dtype == DType::kFloat64) {
      for (std::int64_t c = 0; c < columns; ++c)
        dweight.as<double>()[to + c] += dy.as<const double>()[from + c];
    } else {
      HWY_DYNAMIC_DISPATCH(add_row)
      (dweight.as<float>() + to, dy.dtype, dy.as<const std::byte>() + from * size,
       dweight.as<float>() + later_id(ids, i, count, dweight.size(0)) * row_stride + first,
       columns);
    }
  }
}

}  // namespace

void CpuBackend::embedding(const KernelContext& context, const TensorView& y,
                           const TensorView& weight, const TensorView& ids) {
  const std::int64_t columns = weight.size(1);
  const auto size = static_cast<std::int64_t>(dtype_size(weight.dtype));
  const auto* id = ids.as<const std::int64_t>();
  const std::int64_t row_bytes = columns * size;
  const std::int64_t weight_row_bytes = weight.stride(0) * size;
  const auto* table = weight.as<const std::byte>();
  const bool stream = y.bytes() >= kStreamingBytes && row_bytes % HWY_MAX_BYTES == 0 &&
                      reinterpret_cast<std::uintptr_t>(y.data) % HWY_MAX_BYTES == 0;
  const std::int64_t grain =
      std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(columns, 1));
  parallel_for(context.threads, ids.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::byte* to = y.as<std::byte>() + i * row_bytes;
      if (id[i] < 0 || id[i] >= weight.size(0)) {
        std::memset(to, 0, static_cast<std::size_t>(row_bytes));
        continue;
      }
      HWY_DYNAMIC_DISPATCH(copy_row)
      (to, table + id[i] * weight_row_bytes,
       table + later_id(id, i, end, weight.size(0)) * weight_row_bytes, row_bytes, stream);
    }
    finish_streaming(stream);
  });
}

// Every thread goes through all ids for columns of its own: the order of additions never depends on
// threads.
void CpuBackend::embedding_backward(const KernelContext& context, const TensorView& dweight,
                                    const TensorView& dy, const TensorView& ids,
                                    std::int64_t padding_idx) {
  const std::int64_t columns = dweight.size(1);
  const std::int64_t count = ids.numel();
  const std::int64_t blocks = (columns + kLineColumns - 1) / kLineColumns;
  const std::int64_t grain =
      std::max<std::int64_t>(1, kElementGrain / (kLineColumns * std::max<std::int64_t>(count, 1)));
  parallel_for(context.threads, blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kLineColumns;
    add_columns(dweight, dy, ids.as<const std::int64_t>(), count, padding_idx, first,
                std::min(end * kLineColumns, columns) - first);
  });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
