// SPDX-License-Identifier: Apache-2.0
// Reductions over lists of tensors.
#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/vectors.h"
#include "kernels/cuda/reduce_launch.h"
#include "kernels/cuda/reduce_terms.h"
#include "kernels/cuda/strided_plan.h"
#include "kernels/cuda/tensor_list.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kThreads = 256;
// Elements of a block: no more than 64 a thread are added in float32.
constexpr std::int64_t kChunk = 16384;
constexpr std::int64_t kNoView = 0x7fffffffffffffff;

struct ListItem {
  const void* data;
  std::int64_t numel;
  int first_chunk;
  DType dtype;
};

// 512 tensors of 24 bytes: 12 KB.
using ViewList = TensorList<ListItem, 512>;

struct MinOf {
  __device__ __forceinline__ std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return a < b ? a : b;
  }
};

// The difference is 0 for finite x, else NaN.
template <class C>
__device__ __forceinline__ bool is_nonfinite(C x) {
  return !(x - x == C(0));
}

// Calls body(x) for every element of a block's chunk. Which thread takes which element, in which
// order, does not depend on the alignment.
template <class T, class Body>
__device__ __forceinline__ void for_chunk(const ListItem& item, std::int64_t begin,
                                          const Body& body) {
  constexpr int kVector = kVectorElements<T>;
  const T* data = static_cast<const T*>(item.data);
  const std::int64_t end = begin + kChunk < item.numel ? begin + kChunk : item.numel;
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % kVectorBytes == 0;
  for (std::int64_t i = begin + threadIdx.x * kVector; i < end; i += kThreads * kVector) {
    if (aligned && i + kVector <= end) {
      const Vector<T> vector = load_vector(data + i);
      for (int v = 0; v < kVector; ++v) body(to_compute(vector[v]));
    } else {
      for (int v = 0; v < kVector; ++v)
        if (i + v < end) body(to_compute(data[i + v]));
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    square_chunks(const __grid_constant__ ViewList list, double* partials) {
  const ListItem& item = list.items[item_of_chunk(list, static_cast<int>(blockIdx.x))];
  const std::int64_t begin =
      static_cast<std::int64_t>(static_cast<int>(blockIdx.x) - item.first_chunk) * kChunk;
  float squares = 0.0f;
  const auto add = [&squares](float x) { squares += x * x; };
  if (item.dtype == DType::kFloat32)
    for_chunk<float>(item, begin, add);
  else
    for_chunk<__nv_bfloat16>(item, begin, add);
  const double total = block_reduce<kThreads>(static_cast<double>(squares), SumOf{});
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads)
    add_squares(float* out, const double* partials, std::int64_t parts, bool accumulate) {
  double total = 0.0;
  for (std::int64_t i = threadIdx.x; i < parts; i += kThreads) total += partials[i];
  total = block_reduce<kThreads>(total, SumOf{});
  if (threadIdx.x == 0)
    *out = static_cast<float>(accumulate ? static_cast<double>(*out) + total : total);
}

// `first_view` is the index of the list's first item among all views.
__global__ void __launch_bounds__(kThreads)
    find_in_chunks(const __grid_constant__ ViewList list, std::int64_t first_view,
                   std::int64_t* found) {
  const int index = item_of_chunk(list, static_cast<int>(blockIdx.x));
  const ListItem& item = list.items[index];
  const std::int64_t begin =
      static_cast<std::int64_t>(static_cast<int>(blockIdx.x) - item.first_chunk) * kChunk;
  int bad = 0;
  const auto look = [&bad](auto x) { bad |= is_nonfinite(x) ? 1 : 0; };
  switch (item.dtype) {
    case DType::kFloat32: for_chunk<float>(item, begin, look); break;
    case DType::kBFloat16: for_chunk<__nv_bfloat16>(item, begin, look); break;
    case DType::kFloat16: for_chunk<__half>(item, begin, look); break;
    default: for_chunk<double>(item, begin, look); break;
  }
  bad = block_reduce<kThreads>(bad, MaxOf{});
  if (threadIdx.x == 0) found[blockIdx.x] = bad != 0 ? first_view + index : kNoView;
}

// The same for one view, whose elements are not dense.
__global__ void __launch_bounds__(kThreads)
    find_in_strided(const __grid_constant__ StridedPlan<1> plan, std::int64_t view,
                    std::int64_t* found) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kChunk;
  const std::int64_t end = begin + kChunk < plan.numel ? begin + kChunk : plan.numel;
  int bad = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    std::int64_t at[1];
    locate(plan, i, at);
    bad |= is_nonfinite(load_any<double>(plan.dtypes[0], plan.data[0], at[0])) ? 1 : 0;
  }
  bad = block_reduce<kThreads>(bad, MaxOf{});
  if (threadIdx.x == 0) found[blockIdx.x] = bad != 0 ? view : kNoView;
}

__global__ void __launch_bounds__(kThreads)
    first_found(std::int64_t* index, const std::int64_t* found, std::int64_t parts) {
  std::int64_t least = kNoView;
  for (std::int64_t i = threadIdx.x; i < parts; i += kThreads)
    if (found[i] < least) least = found[i];
  least = block_reduce<kThreads>(least, MinOf{});
  if (threadIdx.x == 0) *index = least == kNoView ? -1 : least;
}

std::int64_t chunks_of(const DeviceView& view) { return divide_up(view.numel, kChunk); }

// Whether the elements lie side by side, in whatever order.
bool is_dense(const StridedPlan<1>& plan) { return plan.dims == 1 && plan.row_stride(0) == 1; }

// Fills `list` with views from `at` on, as many as fit it and `goes_in` holds for; a view without
// chunks keeps its place. Returns the first view that is not in it.
template <class GoesIn>
int fill_list(ViewList& list, const DeviceView* views, int at, int count, GoesIn&& goes_in) {
  for (; at < count && list.count < ViewList::kCapacity && goes_in(views[at]); ++at) {
    const std::int64_t chunks = chunks_of(views[at]);
    if (list.count > 0 && list.chunks + chunks > kMostBlocks) break;
    list.items[list.count++] = {views[at].data, views[at].numel, list.chunks, views[at].dtype};
    list.chunks += static_cast<int>(chunks);
  }
  return at;
}

}  // namespace

std::size_t tensors_workspace(const DeviceView* views, int count) {
  std::int64_t chunks = 0;
  for (int i = 0; i < count; ++i) chunks += chunks_of(views[i]);
  return static_cast<std::size_t>(chunks) * sizeof(double);
}

void launch_sum_of_squares(float* out, const DeviceView* views, int count, bool accumulate,
                           void* workspace, cudaStream_t stream) {
  for (int i = 0; i < count; ++i)
    if (views[i].dtype != DType::kFloat32 && views[i].dtype != DType::kBFloat16)
      refuse_dtype("sum_of_squares", views[i].dtype);
  auto* const partials = static_cast<double*>(workspace);
  std::int64_t parts = 0;
  for (int at = 0; at < count;) {
    ViewList list;
    at = fill_list(list, views, at, count, [](const DeviceView&) { return true; });
    if (list.chunks > 0)
      launch(square_chunks, grid_for(list.chunks, 1), dim3(kThreads), 0, stream, list,
             partials + parts);
    parts += list.chunks;
  }
  launch(add_squares, dim3(1), dim3(kThreads), 0, stream, out, partials, parts, accumulate);
}

void launch_first_nonfinite(std::int64_t* index, const DeviceView* views, int count,
                            void* workspace, cudaStream_t stream) {
  for (int i = 0; i < count; ++i) check_computed("first_nonfinite", views[i].dtype);
  auto* const found = static_cast<std::int64_t*>(workspace);
  std::int64_t parts = 0;
  const auto listed = [](const DeviceView& view) {
    return dtype_is_floating(view.dtype) &&
           (view.numel == 0 || is_dense(make_strided_plan<1>({&view})));
  };
  for (int at = 0; at < count;) {
    const DeviceView& view = views[at];
    ViewList list;
    const int next = fill_list(list, views, at, count, listed);
    if (list.chunks > 0)
      launch(find_in_chunks, grid_for(list.chunks, 1), dim3(kThreads), 0, stream, list,
             static_cast<std::int64_t>(at), found + parts);
    parts += list.chunks;
    if (next > at) {
      at = next;
      continue;
    }
    if (dtype_is_floating(view.dtype)) {
      launch(find_in_strided, grid_for(chunks_of(view), 1), dim3(kThreads), 0, stream,
             make_strided_plan<1>({&view}), static_cast<std::int64_t>(at), found + parts);
      parts += chunks_of(view);
    }
    ++at;
  }
  launch(first_found, dim3(1), dim3(kThreads), 0, stream, index, found, parts);
}

}  // namespace meshloom::kernels::cuda
