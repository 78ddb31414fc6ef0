// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/attention_delta_launch.h"

#include "kernels/cuda/primitives/convert.h"
#include "kernels/cuda/primitives/dtype_switch.h"
#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/reductions.h"
#include "kernels/cuda/primitives/vectors.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kDeltaThreads = 128;
/// A row is 128 bytes at the usual 64 dims of bfloat16: 8 loads of 16.
constexpr int kDeltaLanes = 8;
constexpr int kDeltaRows = kDeltaThreads / kDeltaLanes;

struct DeltaRows {
  DeviceView delta, grad_o, o;
};

// A lane takes kStep neighbouring dims at a time, by vectors where `kVectors`: sums run in the same
// order either way, wherever rows lie.
template <class G, class O, int kStep, bool kVectors>
__global__ void __launch_bounds__(kDeltaThreads) attention_delta(DeltaRows rows) {
  using C = Compute<G>;
  const std::int64_t count = rows.delta.numel;
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * kDeltaRows + threadIdx.x / kDeltaLanes;
  const int lane = static_cast<int>(threadIdx.x % kDeltaLanes);
  const std::int64_t heads = rows.delta.sizes[1], queries = rows.delta.sizes[2];
  const std::int64_t by_head = row / queries, s = row - by_head * queries;
  const std::int64_t b = by_head / heads, h = by_head - b * heads;
  const auto at = [&](const DeviceView& view) {
    return b * view.strides[0] + h * view.strides[1] + s * view.strides[2];
  };
  C sum = 0;
  if (row < count) {
    const G* grad_o = static_cast<const G*>(rows.grad_o.data) + at(rows.grad_o);
    const O* o = static_cast<const O*>(rows.o.data) + at(rows.o);
    const std::int64_t dims = rows.o.sizes[3];
    for (std::int64_t d = lane * kStep; d < dims; d += kDeltaLanes * kStep) {
      if constexpr (kVectors) {
        const auto x = *reinterpret_cast<const Vector<G, kStep>*>(grad_o + d);
        for (int part = 0; part < kStep; part += kVectorElements<O>) {
          const Vector<O> y = load_vector(o + d + part);
          for (int i = 0; i < kVectorElements<O>; ++i)
            sum += to_compute(x[part + i]) * to_compute(y[i]);
        }
      } else {
        for (std::int64_t i = d; i < d + kStep && i < dims; ++i)
          sum += to_compute(grad_o[i * rows.grad_o.strides[3]]) *
                 static_cast<C>(to_compute(o[i * rows.o.strides[3]]));
      }
    }
  }
  for (int offset = kDeltaLanes / 2; offset > 0; offset /= 2)
    sum += __shfl_xor_sync(kWholeWarp, sum, offset);
  if (row >= count || lane != 0) return;
  if (rows.delta.dtype == DType::kFloat64)
    static_cast<double*>(rows.delta.data)[at(rows.delta)] = static_cast<double>(sum);
  else
    static_cast<float*>(rows.delta.data)[at(rows.delta)] = static_cast<float>(sum);
}

bool rows_fit(const DeviceView& view, std::int64_t bytes) {
  bool fits =
      view.strides[3] == 1 && reinterpret_cast<std::uintptr_t>(view.data) % kVectorBytes == 0;
  for (int d = 0; d < 3; ++d) fits = fits && view.strides[d] * bytes % kVectorBytes == 0;
  return fits;
}

template <class G, class O>
void launch_rows(const DeltaRows& rows, cudaStream_t stream) {
  const dim3 grid = grid_for(rows.delta.numel, kDeltaRows);
  constexpr int kStep = kVectorElements<G>;
  if constexpr (std::is_same_v<G, float> || std::is_same_v<G, __nv_bfloat16>) {
    if (rows.o.sizes[3] % kStep == 0 && rows_fit(rows.grad_o, sizeof(G)) &&
        rows_fit(rows.o, sizeof(O)))
      return launch(attention_delta<G, O, kStep, true>, grid, dim3(kDeltaThreads), 0, stream, rows);
  }
  launch(attention_delta<G, O, kStep, false>, grid, dim3(kDeltaThreads), 0, stream, rows);
}

}  // namespace

void launch_attention_delta(const DeviceView& delta, const DeviceView& grad_o, const DeviceView& o,
                            cudaStream_t stream) {
  if (delta.numel == 0) return;
  const DeltaRows rows{delta, grad_o, o};
  for_floating("attention_delta", grad_o.dtype, [&](auto tag) {
    using G = typename decltype(tag)::Type;
    if (o.dtype == grad_o.dtype) return launch_rows<G, G>(rows, stream);
    if (o.dtype != DType::kFloat32) refuse_dtype("attention_delta", o.dtype);
    launch_rows<G, float>(rows, stream);
  });
}

}  // namespace meshloom::kernels::cuda
