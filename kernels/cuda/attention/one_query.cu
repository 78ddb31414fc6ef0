// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/one_query_launch.h"
#include "kernels/cuda/attention/score_rules.h"
#include "kernels/cuda/primitives/any_element.h"
#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/reductions.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kBlock = 128;
constexpr int kLanes = 8;  // threads of a key's product

// What a split leaves: the largest score, the sum of exp(score - top), and Dv sums of values. It is
// written for each (row, head, split).
template <class C>
__device__ __forceinline__ C* partial_of(const OneQueryCall& call, std::int64_t row,
                                         std::int64_t head, std::int64_t split) {
  const std::int64_t at = (row * call.heads + head) * call.splits + split;
  return static_cast<C*>(call.partial) + at * (call.o.dims + 2);
}

__device__ __forceinline__ std::int64_t splits_of(std::int64_t length) {
  return (length + kSplitKeys - 1) / kSplitKeys;
}

// Scores of a split's keys: kLanes threads a key.
template <class C>
__device__ void split_scores(C* scores, const C* query, const OneQueryCall& call,
                             const RowMemory& memory, std::int64_t base, std::int64_t first,
                             int keys) {
  const int lane = threadIdx.x % kLanes;
  // All threads of a warp meet in the sum, those without a key as well.
  for (int start = 0; start < keys; start += kBlock / kLanes) {
    const int key = start + static_cast<int>(threadIdx.x) / kLanes;
    C sum = 0;
    if (key < keys)
      for (std::int64_t d = lane; d < call.q.dims; d += kLanes)
        sum += query[d] * load_any<C>(call.dtype, memory.k,
                                      base + (first + key) * memory.k_row + d * memory.k_last);
    for (int offset = kLanes / 2; offset > 0; offset /= 2)
      sum += __shfl_xor_sync(kWholeWarp, sum, offset);
    if (key < keys && lane == 0) scores[key] = sum * static_cast<C>(call.scale);
  }
}

template <class C>
__global__ void __launch_bounds__(kBlock, 1)
    one_query_split(const __grid_constant__ OneQueryCall call) {
  MESHLOOM_SHARED(query, C[kMostHeadDims]);
  MESHLOOM_SHARED(scores, C[kSplitKeys]);
  const std::int64_t split = static_cast<std::int64_t>(blockIdx.x) % call.splits;
  const std::int64_t head = static_cast<std::int64_t>(blockIdx.x) / call.splits % call.heads;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) / call.splits / call.heads;
  const RowMemory& memory = call.memories[row];
  if (split >= splits_of(memory.length)) return;
  const std::int64_t kv_head = head / (call.heads / call.kv_heads);
  const std::int64_t first = split * kSplitKeys, left = memory.length - first;
  const int keys = left < kSplitKeys ? static_cast<int>(left) : static_cast<int>(kSplitKeys);
  const HeadStrides& strides = call.q.strides;
  for (std::int64_t d = threadIdx.x; d < call.q.dims; d += kBlock)
    query[d] = load_any<C>(call.q.dtype, call.q.data,
                           row * strides.batch + head * strides.head + d * strides.last);
  __syncthreads();
  split_scores(scores, query, call, memory, kv_head * memory.k_head, first, keys);
  __syncthreads();
  constexpr C kNone = -std::numeric_limits<C>::infinity();
  C top = kNone;
  for (int key = threadIdx.x; key < keys; key += kBlock) top = MaxOf{}(top, scores[key]);
  top = block_reduce<kBlock>(top, MaxOf{});
  const C base = top == kNone ? C(0) : top;
  C sum = 0;
  for (int key = threadIdx.x; key < keys; key += kBlock) {
    scores[key] = exp(scores[key] - base);
    sum += scores[key];
  }
  sum = block_reduce<kBlock>(sum, SumOf{});  // its barriers let every thread see all scores
  C* partial = partial_of<C>(call, row, head, split);
  if (threadIdx.x == 0) {
    partial[0] = top;
    partial[1] = sum;
  }
  const std::int64_t values = kv_head * memory.v_head + first * memory.v_row;
  for (std::int64_t d = threadIdx.x; d < call.o.dims; d += kBlock) {
    C value = 0;
    for (int key = 0; key < keys; ++key)
      value += scores[key] *
               load_any<C>(call.dtype, memory.v, values + key * memory.v_row + d * memory.v_last);
    partial[2 + d] = value;
  }
}

template <class C>
__global__ void __launch_bounds__(kBlock, 1)
    one_query_merge(const __grid_constant__ OneQueryCall call) {
  constexpr C kNone = -std::numeric_limits<C>::infinity();
  const std::int64_t head = static_cast<std::int64_t>(blockIdx.x) % call.heads;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) / call.heads;
  const std::int64_t splits = splits_of(call.memories[row].length);
  C top = kNone;
  for (std::int64_t s = 0; s < splits; ++s)
    top = MaxOf{}(top, partial_of<C>(call, row, head, s)[0]);
  const C base = top == kNone ? C(0) : top;
  C sum = 0;
  for (std::int64_t s = 0; s < splits; ++s) {
    const C* partial = partial_of<C>(call, row, head, s);
    sum += partial[1] * exp(partial[0] - base);
  }
  const SoftmaxEnd<C> end(top, sum);
  if (threadIdx.x == 0) store_number(call.lse, number_offset(call.lse, row, head, 0), end.lse);
  const HeadStrides& strides = call.o.strides;
  for (std::int64_t d = threadIdx.x; d < call.o.dims; d += kBlock) {
    C value = 0;
    for (std::int64_t s = 0; s < splits; ++s) {
      const C* partial = partial_of<C>(call, row, head, s);
      value += partial[2 + d] * exp(partial[0] - base);
    }
    store_any(call.o.dtype, call.o.data,
              row * strides.batch + head * strides.head + d * strides.last,
              end.factor == C(0) ? C(0) : value * end.factor);
  }
}

template <class C>
void launch_both(const OneQueryCall& call, cudaStream_t stream) {
  const std::int64_t heads = call.rows * call.heads;
  launch(one_query_split<C>, grid_for(heads * call.splits, 1), dim3(kBlock), 0, stream, call);
  launch(one_query_merge<C>, grid_for(heads, 1), dim3(kBlock), 0, stream, call);
}

}  // namespace

std::size_t one_query_bytes(const OneQueryCall& call) {
  const std::size_t each = call.dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  return static_cast<std::size_t>(call.rows * call.heads * call.splits * (call.o.dims + 2)) * each;
}

void launch_one_query(const OneQueryCall& call, cudaStream_t stream) {
  if (call.rows * call.heads == 0) return;
  if (call.dtype == DType::kFloat64)
    launch_both<double>(call, stream);
  else
    launch_both<float>(call, stream);
}

}  // namespace meshloom::kernels::cuda
