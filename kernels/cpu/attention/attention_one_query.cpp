// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/attention_one_query.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/span_workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_one_query.cpp"
#include <hwy/foreach_target.h>  // keep before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/attention/attention_tile.h"
#include "kernels/cpu/simd/register_products.h"
#include "kernels/cpu/simd/simd.h"

#ifndef MESHLOOM_KERNELS_CPU_ATTENTION_ONE_QUERY
#define MESHLOOM_KERNELS_CPU_ATTENTION_ONE_QUERY
namespace meshloom::kernels::cpu {

inline constexpr std::int64_t kMostDims = 256;
inline constexpr std::int64_t kWholeVectors = 16;  // floats, of any target

// One query head and its memory.
struct OneQuery {
  HeadRows q, k, v, o;
  float* lse;
  std::int64_t keys, dims, dims_v;
  float scale;
  float* scores;  // [keys], rounded up to kWholeVectors
};

}  // namespace meshloom::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using tile::F32;
using tile::V;

template <typename T>
const T* row(const HeadRows& rows, std::int64_t index) {
  return reinterpret_cast<const T*>(rows.data) + index * rows.row_stride;
}

// As many keys as leave registers for the query and a key, and whose sums fit a vector.
constexpr int kKeysAtOnce = HWY_TARGET == HWY_AVX3 ? 8 : 4;

// Scores of kKeys keys from `first` on: each has one vector of sums, whatever is beside it.
template <typename T, int kKeys>
HWY_INLINE void score_keys(const OneQuery& p, const float* query, std::int64_t first) {
  const F32 d;
  V sums[kKeys];
#pragma GCC unroll 8
  for (int c = 0; c < kKeys; ++c) sums[c] = hn::Zero(d);
  for (std::int64_t i = 0; i < p.dims; i += tile::lanes()) {
    const V q = hn::LoadU(d, query + i);
#pragma GCC unroll 8
    for (int c = 0; c < kKeys; ++c)
      sums[c] = hn::MulAdd(q, simd::load(d, row<T>(p.k, first + c) + i), sums[c]);
  }
  tile::sum_lanes_of_each(sums, p.scores + first);
}

template <typename T>
void score_all(const OneQuery& p) {
  const F32 d;
  alignas(64) float query[kMostDims];
  const V scale = hn::Set(d, p.scale * tile::kLog2E);
  for (std::int64_t i = 0; i < p.dims; i += tile::lanes())
    hn::StoreU(hn::Mul(scale, simd::load(d, row<T>(p.q, 0) + i)), d, query + i);
  std::int64_t j = 0;
  for (; j + kKeysAtOnce <= p.keys; j += kKeysAtOnce) score_keys<T, kKeysAtOnce>(p, query, j);
  for (; j < p.keys; ++j) score_keys<T, 1>(p, query, j);
}

// Scores to powers of 2 relative to their maximum. Returns the sum and leaves lse.
HWY_INLINE float make_weights(const OneQuery& p) {
  const F32 d;
  const std::int64_t padded = (p.keys + kWholeVectors - 1) / kWholeVectors * kWholeVectors;
  std::fill(p.scores + p.keys, p.scores + padded, tile::kMinusInfinity);
  V high = hn::Set(d, tile::kMinusInfinity);
  for (std::int64_t j = 0; j < padded; j += tile::lanes())
    high = hn::Max(hn::LoadU(d, p.scores + j), high);
  const float top = simd::max_lanes(d, high);
  V sums = hn::Zero(d);
  for (std::int64_t j = 0; j < padded; j += tile::lanes()) {
    const V weight = tile::exp2(hn::Sub(hn::LoadU(d, p.scores + j), hn::Set(d, top)));
    sums = hn::Add(sums, weight);
    hn::StoreU(weight, d, p.scores + j);
  }
  const float sum = simd::sum_lanes(d, sums);
  *p.lse = (top + std::log2(sum)) / tile::kLog2E;
  return sum;
}

// kVectors vectors of the result from column `first` on.
template <typename T, typename Out, int kVectors>
HWY_INLINE void add_values(const OneQuery& p, std::int64_t first, float sum) {
  const F32 d;
  V out[kVectors];
#pragma GCC unroll 4
  for (int c = 0; c < kVectors; ++c) out[c] = hn::Zero(d);
  for (std::int64_t j = 0; j < p.keys; ++j) {
    const V weight = hn::Set(d, p.scores[j]);
    const T* values = row<T>(p.v, j) + first;
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c)
      out[c] = hn::MulAdd(weight, simd::load(d, values + c * tile::lanes()), out[c]);
  }
  auto* o = reinterpret_cast<Out*>(p.o.row(0)) + first;
  const V factor = hn::Set(d, 1.0f / sum);
#pragma GCC unroll 4
  for (int c = 0; c < kVectors; ++c) simd::store(d, hn::Mul(out[c], factor), o + c * tile::lanes());
}

template <typename T, typename Out>
void attend(const OneQuery& p) {
  score_all<T>(p);
  const float sum = make_weights(p);
  const std::int64_t n = tile::lanes();
  std::int64_t first = 0;
  for (; first + 4 * n <= p.dims_v; first += 4 * n) add_values<T, Out, 4>(p, first, sum);
  for (; first < p.dims_v; first += n) add_values<T, Out, 1>(p, first, sum);
}

void attend_head(const OneQuery& p) {
  if (p.k.dtype == DType::kFloat32) return attend<float, float>(p);
  if (p.o.dtype == DType::kFloat32) return attend<bfloat16, float>(p);
  attend<bfloat16, bfloat16>(p);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(attend_head);

bool whole_rows(const TensorView& view) {
  return view.size(3) > 0 && view.size(3) <= kMostDims && view.size(3) % kWholeVectors == 0 &&
         view.stride(3) == 1;
}

bool is_plain(const AttentionOptions& options) {
  return !options.bias.defined() && !options.alibi_slopes.defined() &&
         !options.query_documents.defined() && !options.query_positions.defined() &&
         !options.key_positions.defined() && options.dropout_p == 0.0f && options.window_left < 0 &&
         options.window_right < 0;
}

// The keys and values of a batch row: row `index` of the views.
struct RowMemory {
  const TensorView* k;
  const TensorView* v;
  std::int64_t index;

  std::int64_t keys() const { return k->size(2); }
};

// Threads get equal shares of the keys of all heads, so that rows of different lengths keep all of
// them busy; a head belongs to the thread of its first key.
template <typename MemoryOf>
void attend_batch(const KernelContext& context, const AttentionOutputs& out, const TensorView& q,
                  double given_scale, const MemoryOf& memory_of) {
  const std::int64_t batch = q.size(0), heads = q.size(1), dims = q.size(3);
  const std::int64_t dims_v = out.o.size(3);
  std::int64_t keys = 0, most = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    keys += heads * memory_of(b).keys();
    most = std::max(most, memory_of(b).keys());
  }
  const double scale =
      given_scale != 0.0 ? given_scale : 1.0 / std::sqrt(static_cast<double>(dims));
  const std::size_t bytes = piece_bytes<float>(most);
  const std::span<std::byte> scratch =
      reserve_workspace(context, bytes * static_cast<std::size_t>(batch * heads), "attention");
  const auto attend = [&](const RowMemory& memory, std::int64_t b, std::int64_t h) {
    const std::int64_t kv_head = h / (heads / memory.k->size(1));
    SpanCutter room(scratch.subspan(bytes * static_cast<std::size_t>(b * heads + h), bytes));
    const std::int64_t lse = b * out.lse.stride(0) + h * out.lse.stride(1);
    HWY_DYNAMIC_DISPATCH(attend_head)
    ({head_rows(q, b, h), head_rows(*memory.k, memory.index, kv_head),
      head_rows(*memory.v, memory.index, kv_head), head_rows(out.o, b, h),
      out.lse.as<float>() + lse, memory.keys(), dims, dims_v, static_cast<float>(scale),
      room.take<float>(memory.keys())});
  };
  constexpr std::int64_t kWork = 64 << 10;  // multiply-adds that are worth a thread
  const std::int64_t grain = std::max<std::int64_t>(1, kWork / (dims + dims_v));
  parallel_for(context.threads, keys, grain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t key = 0;
    for (std::int64_t b = 0; b < batch && key < end; ++b) {
      const RowMemory memory = memory_of(b);
      for (std::int64_t h = 0; h < heads; ++h, key += memory.keys())
        if (key >= begin && key < end) attend(memory, b, h);
    }
  });
}

}  // namespace

bool is_one_query(const AttentionOutputs& out, const AttentionInputs& in,
                  const AttentionOptions& options) {
  const DType dtype = in.q.dtype;
  if (in.q.size(2) != 1 || in.k.size(2) == 0 || out.carry || !is_plain(options)) return false;
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16) return false;
  if (in.k.dtype != dtype || in.v.dtype != dtype) return false;
  const std::int64_t last_key = options.key_offset + in.k.size(2) - 1;
  return (!options.is_causal || last_key <= options.query_offset) && whole_rows(in.q) &&
         whole_rows(in.k) && whole_rows(in.v) && out.o.stride(3) == 1;
}

void attention_one_query(const KernelContext& context, const AttentionOutputs& out,
                         const AttentionInputs& in, const AttentionOptions& options) {
  attend_batch(context, out, in.q, options.scale, [&](std::int64_t b) {
    return RowMemory{&in.k, &in.v, b};
  });
}

bool is_one_query_each(const AttentionOutputs& out, const TensorView& q,
                       std::span<const AttentionMemory> memories) {
  for (const auto& [k, v] : memories)
    if (!is_one_query(out, {q, k, v}, {})) return false;
  return true;
}

// Heads of all rows share one split over the threads.
void CpuBackend::attention_rows(const KernelContext& context, const AttentionOutputs& out,
                                const TensorView& q, std::span<const AttentionMemory> memories,
                                double scale) {
  if (!is_one_query_each(out, q, memories))
    return Backend::attention_rows(context, out, q, memories, scale);
  attend_batch(context, out, q, scale, [&](std::int64_t b) {
    const auto& [k, v] = memories[static_cast<std::size_t>(b)];
    return RowMemory{&k, &v, 0};
  });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
