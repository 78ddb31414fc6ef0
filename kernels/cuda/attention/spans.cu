// SPDX-License-Identifier: Apache-2.0
// Spans of positions and documents, which say what tiles of queries see of tiles of keys.
#include "kernels/cuda/attention/flash_launch.h"
#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/reductions.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kSpanBlock = 128;

struct Least {
  __device__ __forceinline__ std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return a < b ? a : b;
  }
};
struct Most {
  __device__ __forceinline__ std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return a < b ? b : a;
  }
};

// A warp for each span.
__global__ void __launch_bounds__(kSpanBlock) find_spans(SpansCall call) {
  static_assert(kSpanRows == kWarp);
  const std::int64_t spans = (call.count + kSpanRows - 1) / kSpanRows;
  const std::int64_t at =
      static_cast<std::int64_t>(blockIdx.x) * (kSpanBlock / kWarp) + threadIdx.x / kWarp;
  if (at >= call.batch * spans) return;
  const std::int64_t row = at % spans * kSpanRows + threadIdx.x % kWarp;
  const std::int64_t known = row < call.count ? row : call.count - 1;
  const std::int64_t id = call.ids[at / spans * call.batch_stride + known * call.row_stride];
  const std::int64_t low = warp_reduce(id, Least{}), high = warp_reduce(id, Most{});
  if (threadIdx.x % kWarp == 0) call.spans[at] = {low, high};
}

}  // namespace

void launch_spans(const SpansCall& call, cudaStream_t stream) {
  const std::int64_t spans = call.batch * ((call.count + kSpanRows - 1) / kSpanRows);
  if (spans == 0) return;
  constexpr int kEach = kSpanBlock / kWarp;
  launch(find_spans, grid_for(spans, kEach), dim3(kSpanBlock), 0, stream, call);
}

}  // namespace meshloom::kernels::cuda
