// SPDX-License-Identifier: Apache-2.0
// Dropout of attention probabilities by global position, for one target. Included once per target
// after hwy/highway.h (the guard toggles).
#if defined(MESHLOOM_KERNELS_CPU_ATTENTION_DROPOUT_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_ATTENTION_DROPOUT_H_
#undef MESHLOOM_KERNELS_CPU_ATTENTION_DROPOUT_H_
#else
#define MESHLOOM_KERNELS_CPU_ATTENTION_DROPOUT_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/cpu/attention/attention_tile.h"
#include "kernels/cpu/simd/simd_philox.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace tile {

/// DropoutValues holds random blocks of one panel of queries: each query's 16 values from the first
/// block that a key needs.
struct DropoutValues {
  static constexpr std::int64_t kBlocks = (kUnit + 3 + 3) / 4;
  alignas(64) std::uint32_t low[kPanel], high[kPanel];  // index of the first block
  alignas(64) float uniform[kBlocks * 4][kPanel];
};

HWY_INLINE void draw_values(const PhiloxStream& stream, DropoutValues& values) {
  const simd::PhiloxTag d;
  const F32 df;
  const simd::PhiloxV zero = hn::Zero(d), one = hn::Set(d, 1);
  const simd::PhiloxKeys keys = simd::philox_keys(stream);
  for (std::int64_t q = 0; q < kPanel; q += lanes()) {
    simd::PhiloxV low = hn::Load(d, values.low + q), high = hn::Load(d, values.high + q);
    for (std::int64_t block = 0; block < DropoutValues::kBlocks; ++block) {
      const simd::PhiloxVectors drawn = simd::philox_blocks_at(keys, stream.stream, low, high);
      for (int w = 0; w < 4; ++w)
        hn::Store(simd::to_uniform(drawn.words[w]), df, values.uniform[block * 4 + w] + q);
      low = hn::Add(low, one);
      high = hn::Add(high, hn::IfThenElseZero(hn::Eq(low, zero), one));
    }
  }
}

// Returns where a query stands in the order of draws: its position without the offset.
HWY_INLINE std::uint64_t drawn_position(const HeadScope& head, std::int64_t query) {
  const AttentionProblem& p = head.problem;
  return static_cast<std::uint64_t>(p.position_base + p.query_positions.ids[query] -
                                    head.options.query_offset);
}

// Takes positions in any order: element by element.
inline void scattered_factors(const HeadScope& head, float* factors, std::uint64_t row,
                              std::int64_t query, std::int64_t key, float kept) {
  const AttentionProblem& p = head.problem;
  const AttentionOptions& o = head.options;
  const auto base = static_cast<std::uint64_t>(p.position_base);
  for (std::int64_t q = 0; q < kPanel; ++q) {
    const std::uint64_t position = drawn_position(head, query + q);
    const std::uint64_t start = (row + position) * static_cast<std::uint64_t>(o.dropout_total_keys);
    for (std::int64_t k = 0; k < kUnit; ++k) {
      const std::uint64_t at =
          start + base + static_cast<std::uint64_t>(p.key_positions.ids[key + k]);
      factors[k * kPanel + q] =
          philox_uniform(o.dropout_random.at(at)) >= o.dropout_p ? kept : 0.0f;
    }
  }
}

/// Fills factors [kUnit][kPanel]: what dropout multiplies each probability by, for the unit of keys
/// and the panel of queries that start at the given indices.
inline void dropout_factors(const HeadScope& head, float* factors, std::int64_t query,
                            std::int64_t key) {
  const F32 d;
  const AttentionProblem& p = head.problem;
  const AttentionOptions& o = head.options;
  const float kept = 1.0f / (1.0f - o.dropout_p);
  const std::int64_t heads = o.dropout_total_heads > 0 ? o.dropout_total_heads : p.heads;
  const auto row = static_cast<std::uint64_t>((o.dropout_first_head + head.b * heads + head.h) *
                                              o.dropout_total_queries);
  const std::int32_t* keys = p.key_positions.ids + key;
  // Padding behind the last key repeats its position; those factors meet probabilities of 0.
  const std::int64_t valid = std::min(kUnit, p.keys - key);
  for (std::int64_t k = 1; k < valid; ++k)
    if (keys[k] != keys[0] + k) return scattered_factors(head, factors, row, query, key, kept);
  DropoutValues values;
  std::int64_t offsets[kPanel];
  bool uniform_offset = true;
  const auto base = static_cast<std::uint64_t>(p.position_base);
  for (std::int64_t q = 0; q < kPanel; ++q) {
    const std::uint64_t position = drawn_position(head, query + q);
    const std::uint64_t first =
        (row + position) * static_cast<std::uint64_t>(o.dropout_total_keys) + base +
        static_cast<std::uint64_t>(keys[0]);
    values.low[q] = static_cast<std::uint32_t>(first / 4);
    values.high[q] = static_cast<std::uint32_t>(first / 4 >> 32);
    offsets[q] = static_cast<std::int64_t>(first % 4);
    uniform_offset = uniform_offset && offsets[q] == offsets[0];
  }
  draw_values(o.dropout_random, values);
  if (!uniform_offset) {
    for (std::int64_t k = 0; k < kUnit; ++k)
      for (std::int64_t q = 0; q < kPanel; ++q)
        factors[k * kPanel + q] = values.uniform[offsets[q] + k][q] >= o.dropout_p ? kept : 0.0f;
    return;
  }
  for (std::int64_t k = 0; k < kUnit; ++k)
    for (std::int64_t q = 0; q < kPanel; q += lanes()) {
      const V u = hn::Load(d, values.uniform[offsets[0] + k] + q);
      const auto keep = hn::Ge(u, hn::Set(d, o.dropout_p));
      hn::StoreU(hn::IfThenElseZero(keep, hn::Set(d, kept)), d, factors + k * kPanel + q);
    }
}

}  // namespace tile
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
