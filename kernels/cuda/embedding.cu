// SPDX-License-Identifier: Apache-2.0
// Rows of a table by id, and the gradient of the table. For the gradient, places are sorted by id
// (stably: places of one id stay in order), and a warp adds the rows of one id to the table's, one
// after the other. n ids cost about n log(rows) / 8 for the sort; the rows of the id that comes
// most often take the time of one after the other.
#include "kernels/cuda/embedding_launch.h"

#include "kernels/cuda/device.h"
#include "kernels/cuda/primitives/dtype_switch.h"
#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/rows.h"
#include "kernels/cuda/primitives/stable_sort.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// Rows of `units` elements U, whatever they stand for; steps of the table's rows count U as well.
template <class U>
__global__ void __launch_bounds__(kThreads)
    copy_rows(U* y, const U* table, const std::int64_t* ids, std::int64_t count, std::int64_t units,
              std::int64_t table_rows, std::int64_t table_step) {
  for (std::int64_t n = grid_thread<kThreads>(); n < count * units; n += grid_threads<kThreads>()) {
    const std::int64_t row = n / units;
    const std::int64_t id = ids[row];
    y[n] = id >= 0 && id < table_rows ? table[id * table_step + n - row * units] : U{};
  }
}

// Ids that are skipped sort behind all rows.
__global__ void __launch_bounds__(kThreads)
    embedding_keys(std::uint32_t* keys, const std::int64_t* ids, std::int64_t count,
                   std::int64_t rows, std::int64_t padding_idx) {
  for (std::int64_t i = grid_thread<kThreads>(); i < count; i += grid_threads<kThreads>()) {
    const std::int64_t id = ids[i];
    const bool counts = id != padding_idx && id >= 0 && id < rows;
    keys[i] = static_cast<std::uint32_t>(counts ? id : rows);
  }
}

constexpr int kRunsPerBlock = kThreads / kWarp;
// Rows that are loaded together before they are added in order.
constexpr int kAhead = 8;

// The warp of the first place of an id adds all of them; the others return. kCount columns a lane.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    add_runs(Compute<T>* dweight, std::int64_t dweight_row, const T* dy, SortedKeys sorted,
             std::int64_t count, std::int64_t rows, std::int64_t columns) {
  using F = Compute<T>;
  const int lane = threadIdx.x % kWarp;
  const std::int64_t begin =
      static_cast<std::int64_t>(blockIdx.x) * kRunsPerBlock + threadIdx.x / kWarp;
  if (begin >= count) return;
  const std::uint32_t key = sorted.keys[begin];
  if (key >= rows || (begin > 0 && sorted.keys[begin - 1] == key)) return;
  for (std::int64_t tile = blockIdx.y; tile * kWarp * kCount < columns; tile += gridDim.y) {
    const std::int64_t column = (tile * kWarp + lane) * kCount;
    const bool inside = column < columns;
    F* out = dweight + key * dweight_row + column;
    Values<F, kCount> sum{};
    if (inside) sum = load_values<kCount>(out);
    int run = kWarp;
    for (std::int64_t first = begin; run == kWarp; first += kWarp) {
      const std::int64_t mine = first + lane;
      const bool same = mine < count && sorted.keys[mine] == key;
      const std::uint32_t index = same ? sorted.indices[mine] : 0;
      run = static_cast<int>(__popc(__ballot_sync(kWholeWarp, same)));
      for (int i = 0; i < run; i += kAhead) {
        Values<F, kCount> terms[kAhead];
        for (int u = 0; u < kAhead; ++u) {
          const std::int64_t from = __shfl_sync(kWholeWarp, index, (i + u) % kWarp);
          terms[u] = Values<F, kCount>{};
          if (inside && i + u < run) terms[u] = load_values<kCount>(dy + from * columns + column);
        }
        for (int u = 0; u < kAhead; ++u)
          for (int j = 0; j < kCount; ++j) sum[j] = i + u < run ? sum[j] + terms[u][j] : sum[j];
      }
    }
    if (inside) store_values(out, sum);
  }
}

/// The largest power of two up to 16 that divides them all.
std::uintptr_t common_unit(std::uintptr_t a, std::uintptr_t b, std::uintptr_t c, std::uintptr_t d) {
  std::uintptr_t unit = 16;
  while ((a | b | c | d) % unit != 0) unit /= 2;
  return unit;
}

}  // namespace

void launch_embedding(const DeviceView& y, const DeviceView& weight, const DeviceView& ids,
                      cudaStream_t stream) {
  const auto size = static_cast<std::int64_t>(dtype_size(weight.dtype));
  const std::int64_t row = weight.sizes[1] * size, step = weight.strides[0] * size;
  const auto run = [&]<class U>(TypeTag<U>) {
    constexpr auto kUnit = static_cast<std::int64_t>(sizeof(U));
    launch(copy_rows<U>, strided_grid(ids.numel * (row / kUnit), kThreads), dim3(kThreads), 0,
           stream, static_cast<U*>(y.data), static_cast<const U*>(weight.data),
           static_cast<const std::int64_t*>(ids.data), ids.numel, row / kUnit, weight.sizes[0],
           step / kUnit);
  };
  switch (common_unit(reinterpret_cast<std::uintptr_t>(y.data),
                      reinterpret_cast<std::uintptr_t>(weight.data),
                      static_cast<std::uintptr_t>(row), static_cast<std::uintptr_t>(step))) {
    case 16: return run(TypeTag<Vector<std::uint32_t, 4>>{});
    case 8: return run(TypeTag<std::uint64_t>{});
    case 4: return run(TypeTag<std::uint32_t>{});
    case 2: return run(TypeTag<std::uint16_t>{});
    default: return run(TypeTag<std::uint8_t>{});
  }
}

std::size_t embedding_backward_scratch(std::int64_t ids) {
  return static_cast<std::size_t>(stable_sort_scratch(ids)) * sizeof(std::uint32_t);
}

void launch_embedding_backward(const DeviceView& dweight, const DeviceView& dy,
                               const DeviceView& ids, std::int64_t padding_idx, void* scratch,
                               cudaStream_t stream) {
  const std::int64_t rows = dweight.sizes[0], columns = dweight.sizes[1], count = ids.numel;
  auto* keys = static_cast<std::uint32_t*>(scratch);
  launch(embedding_keys, strided_grid(count, kThreads), dim3(kThreads), 0, stream, keys,
         static_cast<const std::int64_t*>(ids.data), count, rows, padding_idx);
  const SortedKeys sorted = stable_sort(keys, count, static_cast<std::uint32_t>(rows), stream);

  for_floating("embedding_backward", dy.dtype, [&]<class T>(TypeTag<T>) {
    using F = Compute<T>;
    const auto run = [&]<int kCount>(IntTag<kCount>) {
      const std::int64_t tiles = divide_up<std::int64_t>(columns, kWarp * kCount);
      launch(add_runs<T, kCount>,
             dim3(grid_for(count, kRunsPerBlock).x,
                  static_cast<unsigned>(tiles < 65535 ? tiles : 65535)),
             dim3(kThreads), 0, stream, static_cast<F*>(dweight.data), dweight.strides[0],
             static_cast<const T*>(dy.data), sorted, count, rows, columns);
    };
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, __nv_bfloat16>) {
      if (vectors_fit(dweight.data, dweight.strides[0], sizeof(F)) &&
          vectors_fit(dy.data, columns, sizeof(T)))
        return run(IntTag<4>{});
    }
    run(IntTag<1>{});
  });
}

}  // namespace meshloom::kernels::cuda
