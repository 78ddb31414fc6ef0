// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/embedding.h"

#include <cstring>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/strided_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/rows.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// to += from, n elements.
void add_row(float* to, DType dtype, const void* from, std::size_t n) {
  dispatch_float(dtype, "embedding_backward", [&]<typename T>(TypeTag<T>) HWY_ATTR {
    simd::map_row(
        false, to, n, [](auto a, auto b) HWY_ATTR { return hwy::HWY_NAMESPACE::Add(a, b); },
        static_cast<const float*>(to), static_cast<const T*>(from));
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(add_row);

// Columns a thread owns are whole cache lines, so that no two threads write to one.
constexpr std::int64_t kLineColumns = 16;

void check_id(const char* op, std::int64_t id, std::int64_t rows) {
  if (id >= 0 && id < rows) [[likely]]
    return;
  throw OutOfRange(fmt::format("{}: id {} is not in [0, {})", op, id, rows));
}

void add_columns(const TensorView& dweight, const TensorView& dy, const std::int64_t* ids,
                 std::int64_t count, std::int64_t padding_idx, std::int64_t first,
                 std::int64_t columns) {
  const std::int64_t dy_row = dy.shape.back();
  const std::int64_t row_stride = dweight.stride(0);
  const auto size = static_cast<std::int64_t>(dtype_size(dy.dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    if (ids[i] == padding_idx) continue;
    check_id("embedding_backward", ids[i], dweight.size(0));
    const std::int64_t to = ids[i] * row_stride + first;
    const std::int64_t from = i * dy_row + first;
    if (dy.dtype == DType::kFloat64) {
      for (std::int64_t c = 0; c < columns; ++c)
        dweight.as<double>()[to + c] += dy.as<const double>()[from + c];
    } else {
      HWY_DYNAMIC_DISPATCH(add_row)
      (dweight.as<float>() + to, dy.dtype, dy.as<const std::byte>() + from * size, columns);
    }
  }
}

}  // namespace

void embedding(const KernelContext& context, const TensorView& y, const TensorView& weight,
               const TensorView& ids) {
  const std::int64_t columns = weight.size(1);
  const auto size = static_cast<std::int64_t>(dtype_size(weight.dtype));
  const auto* id = ids.as<const std::int64_t>();
  const std::int64_t grain =
      std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(columns, 1));
  parallel_for(context.threads, ids.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::byte* to = y.as<std::byte>() + i * columns * size;
      if (id[i] == -1) {
        std::memset(to, 0, static_cast<std::size_t>(columns * size));
        continue;
      }
      check_id("embedding", id[i], weight.size(0));
      std::memcpy(to, weight.as<const std::byte>() + id[i] * weight.stride(0) * size,
                  columns * size);
    }
  });
}

// Every thread goes through all ids for columns of its own: the order of additions never depends on
// threads.
void embedding_backward(const KernelContext& context, const TensorView& dweight,
                        const TensorView& dy, const TensorView& ids, std::int64_t padding_idx) {
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
