// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_one_query.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/span_workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_one_query.cpp"
#include <hwy/foreach_target.h>  // keep before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/simd.h"

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
  return reinterpret_cast<const T*>(rows.row(index));
}

// Scores of kKeys keys from `first` on: each has one vector of sums, whatever is beside it.
template <typename T, int kKeys>
HWY_INLINE void score_keys(const OneQuery& p, const float* query, std::int64_t first) {
  const F32 d;
  V sums[kKeys];
#pragma GCC unroll 4
  for (int c = 0; c < kKeys; ++c) sums[c] = hn::Zero(d);
  for (std::int64_t i = 0; i < p.dims; i += tile::lanes()) {
    const V q = hn::LoadU(d, query + i);
#pragma GCC unroll 4
    for (int c = 0; c < kKeys; ++c)
      sums[c] = hn::MulAdd(q, simd::load(d, row<T>(p.k, first + c) + i), sums[c]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < kKeys; ++c) p.scores[first + c] = simd::sum_lanes(d, sums[c]);
}

template <typename T>
void score_all(const OneQuery& p) {
  const F32 d;
  alignas(64) float query[kMostDims];
  const V scale = hn::Set(d, p.scale * tile::kLog2E);
  for (std::int64_t i = 0; i < p.dims; i += tile::lanes())
    hn::StoreU(hn::Mul(scale, simd::load(d, row<T>(p.q, 0) + i)), d, query + i);
  std::int64_t j = 0;
  for (; j + 4 <= p.keys; j += 4) score_keys<T, 4>(p, query, j);
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
  const std::int64_t heads = in.q.size(1), group = heads / in.k.size(1);
  const std::int64_t items = in.q.size(0) * heads;
  const std::int64_t keys = in.k.size(2), dims = in.q.size(3), dims_v = in.v.size(3);
  const double scale =
      options.scale != 0.0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(dims));
  const std::size_t bytes = piece_bytes<float>(keys);
  const std::span<std::byte> scratch =
      reserve_workspace(context, bytes * static_cast<std::size_t>(items), "attention");
  const auto attend = [&](std::int64_t item) {
    const std::int64_t b = item / heads, h = item % heads;
    SpanCutter memory(scratch.subspan(bytes * static_cast<std::size_t>(item), bytes));
    const std::int64_t lse = b * out.lse.stride(0) + h * out.lse.stride(1);
    HWY_DYNAMIC_DISPATCH(attend_head)
    ({head_rows(in.q, b, h), head_rows(in.k, b, h / group), head_rows(in.v, b, h / group),
      head_rows(out.o, b, h), out.lse.as<float>() + lse, keys, dims, dims_v,
      static_cast<float>(scale), memory.take<float>(keys)});
  };
  constexpr std::int64_t kWork = 64 << 10;  // multiply-adds that are worth a thread
  const std::int64_t grain = std::max<std::int64_t>(1, kWork / (keys * (dims + dims_v)));
  parallel_for(context.threads, items, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) attend(item);
  });
}

}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
