// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: a thread rotates some neighbouring pairs (x[i], x[i + D/2]), so that
// it may write where it has read.
#include "kernels/cuda/rope_launch.h"

#include "kernels/cuda/device.h"
#include "kernels/cuda/primitives/dtype_switch.h"
#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/rows.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kThreads = 128;

struct Heads {
  void* data;
  std::int64_t batch, head, token;  // strides

  explicit Heads(const DeviceView& view)
      : data(view.data), batch(view.strides[0]), head(view.strides[1]), token(view.strides[2]) {}
  template <class T>
  __device__ __forceinline__ T* at(std::int64_t b, std::int64_t h, std::int64_t s) const {
    return static_cast<T*>(data) + b * batch + h * head + s * token;
  }
};

struct Rotation {
  Heads y, x;
  std::int64_t heads, length, half, pairs;
  const float *cosine, *sine;
  std::int64_t cosine_row, sine_row, table_rows;
  const std::int64_t* positions;
  std::int64_t position_batch, position_token, position_offset;
  bool inverse;

  explicit Rotation(const RopeArguments& a)
      : y(a.y),
        x(a.x),
        heads(a.x.sizes[1]),
        length(a.x.sizes[2]),
        half(a.x.sizes[3] / 2),
        pairs(a.x.sizes[0] * heads * length * half),
        cosine(static_cast<const float*>(a.cosine.data)),
        sine(static_cast<const float*>(a.sine.data)),
        cosine_row(a.cosine.strides[0]),
        sine_row(a.sine.strides[0]),
        table_rows(a.cosine.sizes[0]),
        positions(static_cast<const std::int64_t*>(a.positions.data)),
        position_batch(a.positions.strides[0]),
        position_token(a.positions.strides[1]),
        position_offset(a.position_offset),
        inverse(a.inverse) {}

  /// A position that the table has not stands for the first.
  __device__ __forceinline__ std::int64_t position(std::int64_t b, std::int64_t s) const {
    if (positions == nullptr) return position_offset + s;
    const std::int64_t given = positions[b * position_batch + s * position_token];
    return given >= 0 && given < table_rows ? given : 0;
  }
};

// Threads count pairs within heads within tokens, so that the heads of a token find its row of the
// table in the cache.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) rotate(Rotation args) {
  using F = Compute<T>;
  const std::int64_t pieces = args.half / kCount, all = args.pairs / kCount;
  for (std::int64_t n = grid_thread<kThreads>(); n < all; n += grid_threads<kThreads>()) {
    const std::int64_t row = n / pieces, i = (n - row * pieces) * kCount;
    const std::int64_t token = row / args.heads, h = row - token * args.heads;
    const std::int64_t b = token / args.length, s = token - b * args.length;
    const std::int64_t position = args.position(b, s);
    const T* x = args.x.at<const T>(b, h, s) + i;
    const auto low = load_values<kCount>(x);
    const auto high = load_values<kCount>(x + args.half);
    const auto cosine = load_values<kCount>(args.cosine + position * args.cosine_row + i);
    const auto sine = load_values<kCount>(args.sine + position * args.sine_row + i);
    Values<F, kCount> first, second;
    for (int j = 0; j < kCount; ++j) {
      const F c = cosine[j], turn = args.inverse ? -sine[j] : sine[j];
      first[j] = low[j] * c - high[j] * turn;
      second[j] = high[j] * c + low[j] * turn;
    }
    T* y = args.y.at<T>(b, h, s) + i;
    store_values(y, first);
    store_values(y + args.half, second);
  }
}

bool rope_vectors_fit(const RopeArguments& arguments, std::size_t element) {
  const std::int64_t half = arguments.x.sizes[3] / 2;
  bool fit = true;
  for (const DeviceView* view : {&arguments.y, &arguments.x}) {
    for (int dim = 0; dim < 3; ++dim)
      fit = fit && vectors_fit(view->data, view->strides[dim], element);
    fit = fit && vectors_fit(view->data, half, element);
  }
  for (const DeviceView* table : {&arguments.cosine, &arguments.sine})
    fit = fit && vectors_fit(table->data, table->strides[0], sizeof(float));
  return fit;
}

}  // namespace

void launch_rope(const RopeArguments& arguments, cudaStream_t stream) {
  const Rotation rotation(arguments);
  for_floating("rope", arguments.x.dtype, [&]<class T>(TypeTag<T>) {
    const auto run = [&]<int kCount>(IntTag<kCount>) {
      launch(rotate<T, kCount>, strided_grid(rotation.pairs / kCount, kThreads), dim3(kThreads), 0,
             stream, rotation);
    };
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, __nv_bfloat16>) {
      if (rope_vectors_fit(arguments, sizeof(T))) return run(IntTag<kVectorElements<T>>{});
    }
    run(IntTag<1>{});
  });
}

}  // namespace meshloom::kernels::cuda
