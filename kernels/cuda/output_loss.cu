// SPDX-License-Identifier: Apache-2.0
// The gradient of the output projection's bias; the rest of the output loss are other calls.
#include "kernels/cuda/output_loss_launch.h"

#include "kernels/cuda/device.h"
#include "kernels/cuda/primitives/column_sums.h"
#include "kernels/cuda/primitives/convert.h"
#include "kernels/cuda/primitives/dtype_switch.h"

namespace meshloom::kernels::cuda {
namespace {

// partials [slabs, columns].
template <class T>
__global__ void __launch_bounds__(kColumnSumThreads)
    sum_slabs(Compute<T>* partials, const T* x, std::int64_t row, std::int64_t rows,
              std::int64_t columns, std::int64_t slabs, std::int64_t slab_rows) {
  using F = Compute<T>;
  MESHLOOM_SHARED(shared, F[kColumnSumThreads]);
  const std::int64_t slab = blockIdx.x % slabs;
  const std::int64_t column = blockIdx.x / slabs * kColumnLanes + threadIdx.x % kColumnLanes;
  const std::int64_t first = slab * slab_rows;
  const std::int64_t last = first + slab_rows < rows ? first + slab_rows : rows;
  F sum = 0;
  if (column < columns)
    for (std::int64_t r = first + threadIdx.x / kColumnLanes; r < last; r += kRowLanes)
      sum += to_compute(x[r * row + column]);
  sum = add_row_lanes(shared, sum);
  if (threadIdx.x < kColumnLanes && column < columns) partials[slab * columns + column] = sum;
}

}  // namespace

std::size_t bias_grad_scratch(const DeviceView& x) {
  const std::size_t element = x.dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  return static_cast<std::size_t>(column_slabs(x.sizes[0]) * x.sizes[1]) * element;
}

void launch_bias_grad(const DeviceView& out, const DeviceView& x, bool accumulate, void* scratch,
                      cudaStream_t stream) {
  const std::int64_t rows = x.sizes[0], columns = x.sizes[1], slabs = column_slabs(rows);
  const std::int64_t tiles = divide_up<std::int64_t>(columns, kColumnLanes);
  for_floating("output_loss_products", x.dtype, [&]<class T>(TypeTag<T>) {
    using F = Compute<T>;
    auto* partials = static_cast<F*>(scratch);
    launch(sum_slabs<T>, grid_for(tiles * slabs, 1), dim3(kColumnSumThreads), 0, stream, partials,
           static_cast<const T*>(x.data), x.strides[0], rows, columns, slabs,
           divide_up(rows, slabs));
    launch_add_slabs<F>(static_cast<F*>(out.data), nullptr, partials, slabs, columns, accumulate,
                        stream);
  });
}

}  // namespace meshloom::kernels::cuda
