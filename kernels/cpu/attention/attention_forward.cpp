// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/attention_flash.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numbers>

#include "kernels/base/integer_math.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/span_workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_forward.cpp"
#include <hwy/foreach_target.h>  // keep before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/attention/attention_dropout.h"
#include "kernels/cpu/attention/attention_pack.h"
#include "kernels/cpu/attention/attention_products.h"
#include "kernels/cpu/attention/attention_tile.h"
#include "kernels/cpu/attention/attention_tiles.h"

#ifndef MESHLOOM_KERNELS_CPU_ATTENTION_FORWARD_ITEM
#define MESHLOOM_KERNELS_CPU_ATTENTION_FORWARD_ITEM
namespace meshloom::kernels::cpu {

// One thread's work: all query heads of one kv head, and of their query tiles every `parts`-th.
struct ForwardItem {
  std::int64_t b = 0, kv = 0, part = 0, parts = 1;
};

// One thread's memory. Elements are floats or pairs of bfloat16.
template <typename Element>
struct ForwardScratch {
  Element* keys;           // [key tiles * kTile][dims_padded], in pairs of dims
  Element* values;         // [key tiles * kTile][dims_v_padded], in pairs of keys
  Element* queries;        // [dims][kTile], in pairs of dims; floats are scaled to units of log 2
  float* scores;           // [kTile keys][kTile queries], then probabilities
  Element* probabilities;  // pairs alone: the same in pairs of keys
  float* out;              // [kTile queries][dims_v_padded]
  float* top;              // [kTile] running maximum
  float* sum;              // [kTile] running sum
  float* rescale;          // [kTile] what the maximum's rise makes of older sums
  float* factors;          // [kUnit][kPanel] dropout
  std::uint8_t* packed;    // per key tile

  static constexpr bool kPairs = kPerElement<Element> == 2;
  static std::int64_t elements(std::int64_t values) { return elements_of<Element>(values); }
  static std::size_t bytes(const AttentionProblem& p) {
    return piece_bytes<Element>(p.key_tiles * kTile * elements(p.dims_padded)) +
           piece_bytes<Element>(p.key_tiles * elements(kTile) * p.dims_v_padded) +
           piece_bytes<Element>(kTile * elements(p.dims_across())) +
           piece_bytes<float>(kTile * kTile) +
           piece_bytes<Element>(kPairs ? elements(kTile) * kTile : 0) +
           piece_bytes<float>(kTile * p.dims_v_padded) + 3 * piece_bytes<float>(kTile) +
           piece_bytes<float>(kUnit * kPanel) + piece_bytes<std::uint8_t>(p.key_tiles);
  }
  ForwardScratch(SpanCutter cutter, const AttentionProblem& p)
      : keys(cutter.take<Element>(p.key_tiles * kTile * elements(p.dims_padded))),
        values(cutter.take<Element>(p.key_tiles * elements(kTile) * p.dims_v_padded)),
        queries(cutter.take<Element>(kTile * elements(p.dims_across()))),
        scores(cutter.take<float>(kTile * kTile)),
        probabilities(cutter.take<Element>(kPairs ? elements(kTile) * kTile : 0)),
        out(cutter.take<float>(kTile * p.dims_v_padded)),
        top(cutter.take<float>(kTile)),
        sum(cutter.take<float>(kTile)),
        rescale(cutter.take<float>(kTile)),
        factors(cutter.take<float>(kUnit * kPanel)),
        packed(cutter.take<std::uint8_t>(p.key_tiles)) {}
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

template <typename Products>
class ForwardTiles {
 public:
  using Element = typename Products::Element;

  ForwardTiles(const AttentionProblem& problem, const AttentionOutputs& out, SpanCutter memory)
      : p_(problem),
        out_(out),
        s_(memory, problem),
        key_elements_(elements_of<Element>(problem.dims_padded)) {}

  void run(const ForwardItem& item) {
    std::fill_n(s_.packed, p_.key_tiles, std::uint8_t{0});
    keys_ = head_rows(p_.in.k, item.b, item.kv);
    values_ = head_rows(p_.in.v, item.b, item.kv);
    for (std::int64_t g = 0; g < p_.group; ++g) {
      const tile::HeadScope head(p_, item.b, item.kv * p_.group + g);
      for (std::int64_t t = item.part; t < p_.query_tiles; t += item.parts) run_queries(head, t);
    }
  }

 private:
  static constexpr bool kPairs = kPerElement<Element> == 2;

  void run_queries(const tile::HeadScope& head, std::int64_t query_tile) {
    const std::int64_t first = query_tile * kTile;
    const std::int64_t count = std::min(kTile, p_.queries - first);
    const HeadRows queries = head_rows(p_.in.q, head.b, head.h);
    if constexpr (kPairs)
      tile::pack_across(s_.queries, queries, first, count, p_.dims, p_.dims_across());
    else
      tile::pack_transposed(s_.queries, kTile, queries, first, count, kTile, p_.dims,
                            p_.scale * tile::kLog2E);
    std::fill_n(s_.top, kTile, tile::kMinusInfinity);
    std::fill_n(s_.sum, kTile, 0.0f);
    std::fill_n(s_.out, kTile * p_.dims_v_padded, 0.0f);
    for (std::int64_t t = 0; t < p_.key_tiles; ++t) {
      const TileMap map = map_tile(p_, head.b, query_tile, t);
      if (map.all == Seen::kNone) continue;
      pack_keys(t);
      if constexpr (Products::kTiles) multiply_blocks(map, t);
      make_scores(head, map, first, t);
      for (int panel = 0; panel < map.query_panels; ++panel) make_probabilities(map, panel);
      if (head.options.dropout_p > 0.0f) drop(head, map, first, t * kTile);
      add_values(map, t);
    }
    const HeadRows o = head_rows(out_.o, head.b, head.h);
    for (std::int64_t q = 0; q < count; ++q) {
      if (q + tile::kRowsAhead < count)
        tile::prefetch_stored(o, first + q + tile::kRowsAhead, p_.dims_v);
      finish_row(head, o, first + q, q);
    }
  }

  void pack_keys(std::int64_t t) {
    if (s_.packed[t] != 0) return;
    s_.packed[t] = 1;
    const std::int64_t first = t * kTile, count = std::min(kTile, p_.keys - first);
    const std::int64_t padded = Products::kTiles ? kTile : round_up(count, kUnit);
    tile::pack_rows(s_.keys + first * key_elements_, key_elements_, keys_, first, count, padded,
                    p_.dims);
    Element* values = s_.values + elements_of<Element>(first) * p_.dims_v_padded;
    if constexpr (kPairs)
      tile::pack_row_pairs(values, p_.dims_v_padded, values_, first, count, padded, p_.dims_v);
    else
      tile::pack_rows(values, p_.dims_v_padded, values_, first, count, padded, p_.dims_v);
  }

  void multiply_blocks(const TileMap& map, std::int64_t t) {
    for (int panel = 0; panel < map.query_panels; ++panel)
      for (int block = 0; block < tile::kBlocks; ++block)
        if (tile::block_used(map, block, panel))
          products_.multiply(key_elements_, s_.keys + (t * kTile + block * kPanel) * key_elements_,
                             key_elements_, s_.queries + panel * kPanel, kTile,
                             s_.scores + block * kPanel * kTile + panel * kPanel, kTile);
  }

  void make_scores(const tile::HeadScope& head, const TileMap& map, std::int64_t query,
                   std::int64_t t) {
    for (int panel = 0; panel < map.query_panels; ++panel)
      for (int unit = 0; unit < map.key_units; ++unit) {
        float* scores = s_.scores + unit * kUnit * kTile + panel * kPanel;
        const auto used = static_cast<Seen>(map.used[unit][panel]);
        if (used == Seen::kNone) continue;
        if constexpr (Products::kTiles)
          tile::scale_unit(scores, p_.scale * tile::kLog2E);
        else
          score_unit(s_.keys + (t * kTile + unit * kUnit) * key_elements_,
                     s_.queries + panel * kPanel, scores);
        if (used == Seen::kPartly || p_.modified)
          tile::modify_unit(head, scores, query + panel * kPanel, t * kTile + unit * kUnit,
                            used == Seen::kPartly);
      }
  }

  HWY_INLINE void score_unit(const Element* keys, const Element* queries, float* scores) {
    const F32 d;
    const V scale = hn::Set(d, p_.scale * tile::kLog2E);
    const std::int64_t n = tile::lanes();
    for (std::int64_t q = 0; q < kPanel; q += 2 * n)
      for (int m = 0; m < kUnit; m += tile::kRegisterRows) {
        V acc[tile::kRegisterRows][2];
        tile::clear(acc);
        tile::multiply_rows(elements_of<Element>(p_.dims), keys + m * key_elements_, key_elements_,
                            queries + q, kTile, acc);
#pragma GCC unroll 16
        for (int i = 0; i < tile::kRegisterRows; ++i) {
          if constexpr (kPairs) {
            acc[i][0] = hn::Mul(acc[i][0], scale);
            acc[i][1] = hn::Mul(acc[i][1], scale);
          }
          hn::StoreU(acc[i][0], d, scores + (m + i) * kTile + q);
          hn::StoreU(acc[i][1], d, scores + (m + i) * kTile + q + n);
        }
      }
  }

  // Scores of one panel to probabilities relative to the running maximum, which they may raise.
  void make_probabilities(const TileMap& map, int panel) {
    for (std::int64_t q = 0; q < kPanel; q += tile::lanes())
      softmax_lanes(map, panel, panel * kPanel + q);
  }

  HWY_INLINE V highest(const TileMap& map, int panel, std::int64_t lane, V top) {
    const F32 d;
    V a = top, b = top;
    for (int unit = 0; unit < map.key_units; ++unit) {
      if (map.used[unit][panel] == 0) continue;
      const float* scores = s_.scores + unit * kUnit * kTile + lane;
#pragma GCC unroll 6
      for (int k = 0; k < kUnit; k += 2) {
        a = hn::Max(hn::LoadU(d, scores + k * kTile), a);
        b = hn::Max(hn::LoadU(d, scores + (k + 1) * kTile), b);
      }
    }
    return hn::Max(a, b);
  }

  HWY_INLINE void softmax_lanes(const TileMap& map, int panel, std::int64_t lane) {
    const F32 d;
    const V old_top = hn::LoadU(d, s_.top + lane);
    const V top = highest(map, panel, lane, old_top);
    // A query that has seen nothing has maximum -inf; any finite value in its place gives exp2 = 0.
    const V base = hn::IfThenElseZero(hn::Gt(top, hn::Set(d, tile::kMinusInfinity)), top);
    V sum = hn::Zero(d);
    for (int unit = 0; unit < map.key_units; ++unit) {
      float* scores = s_.scores + unit * kUnit * kTile + lane;
      if (map.used[unit][panel] == 0) {
        if (map.zero[unit][panel] != 0)
          for (int k = 0; k < kUnit; ++k) hn::StoreU(hn::Zero(d), d, scores + k * kTile);
        continue;
      }
#pragma GCC unroll 4
      for (int k = 0; k < kUnit; ++k) {
        const V value = tile::exp2(hn::Sub(hn::LoadU(d, scores + k * kTile), base));
        sum = hn::Add(sum, value);
        hn::StoreU(value, d, scores + k * kTile);
      }
    }
    const V rescale = tile::exp2(hn::Sub(old_top, base));
    hn::StoreU(top, d, s_.top + lane);
    hn::StoreU(rescale, d, s_.rescale + lane);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, s_.sum + lane), rescale, sum), d, s_.sum + lane);
  }

  void drop(const tile::HeadScope& head, const TileMap& map, std::int64_t query, std::int64_t key) {
    const F32 d;
    for (int unit = 0; unit < map.key_units; ++unit)
      for (int panel = 0; panel < map.query_panels; ++panel) {
        if (map.used[unit][panel] == 0) continue;
        float* p = s_.scores + unit * kUnit * kTile + panel * kPanel;
        tile::dropout_factors(head, s_.factors, query + panel * kPanel, key + unit * kUnit);
        for (int k = 0; k < kUnit; ++k)
          for (std::int64_t q = 0; q < kPanel; q += tile::lanes()) {
            float* at = p + k * kTile + q;
            hn::StoreU(hn::Mul(hn::LoadU(d, at), hn::LoadU(d, s_.factors + k * kPanel + q)), d, at);
          }
      }
  }

  const Element* probabilities(const TileMap& map) {
    if constexpr (!kPairs)
      return s_.scores;
    else {
      for (int unit = 0; unit < map.key_units; ++unit)
        for (int panel = 0; panel < map.query_panels; ++panel)
          if (map.used[unit][panel] != 0 || map.zero[unit][panel] != 0)
            tile::ScoreRows<Element>::narrow_row_pairs(
                s_.scores + unit * kUnit * kTile + panel * kPanel,
                s_.probabilities + unit * kUnit / 2 * kTile + panel * kPanel);
      return s_.probabilities;
    }
  }

  // out = out * rescale + probabilities * values.
  void add_values(const TileMap& map, std::int64_t t) {
    const Element* values = s_.values + t * elements_of<Element>(kTile) * p_.dims_v_padded;
    if constexpr (Products::kTiles) return add_blocks(map, values);
    const Element* p = probabilities(map);
    for (int unit = 0; unit < map.query_units; ++unit) {
      const std::int64_t first = map.first_key[unit] * elements_of<Element>(kUnit);
      const std::int64_t depth = map.end_key[unit] * elements_of<Element>(kUnit) - first;
      if (depth <= 0) continue;
      tile::multiply_add<1, kTile, true>(depth, p + first * kTile + unit * kUnit,
                                         values + first * p_.dims_v_padded, p_.dims_v_padded,
                                         s_.out + unit * kUnit * p_.dims_v_padded, p_.dims_v_padded,
                                         p_.dims_v_padded, s_.rescale + unit * kUnit);
    }
  }

  void add_blocks(const TileMap& map, const Element* values) {
    for (int panel = 0; panel < map.query_panels; ++panel) {
      for (int unit = 0; unit < kUnits; ++unit) {
        const std::int64_t row = unit * kUnit;
        Element* p = s_.probabilities + row / 2 * kTile + panel * kPanel;
        if (unit < map.key_units && map.used[unit][panel] != 0)
          tile::ScoreRows<Element>::narrow_row_pairs(s_.scores + row * kTile + panel * kPanel, p);
        else
          tile::clear_row_pairs(p);
      }
      float* out = s_.out + panel * kPanel * p_.dims_v_padded;
      for (std::int64_t q = 0; q < kPanel; ++q)
        tile::scale_row(out + q * p_.dims_v_padded, p_.dims_v_padded,
                        s_.rescale[panel * kPanel + q]);
      products_.add_turned(s_.probabilities + panel * kPanel, values, p_.dims_v_padded, out,
                           p_.dims_v_padded, p_.dims_v_padded);
    }
  }

  // Normalizes one query's row, merges it with what the output holds where asked, and stores it.
  void finish_row(const tile::HeadScope& head, const HeadRows& o, std::int64_t query,
                  std::int64_t q) {
    const float sum = s_.sum[q];
    double lse = tile::kMinusInfinity;
    if (sum != 0.0f)
      lse = std::numbers::ln2 * static_cast<double>(s_.top[q]) + std::log(static_cast<double>(sum));
    float weight = sum == 0.0f ? 0.0f : 1.0f / sum;
    float& lse_out = out_.lse.as<float>()[head.b * out_.lse.stride(0) +
                                          head.h * out_.lse.stride(1) + query * out_.lse.stride(2)];
    const bool merge = out_.carry && lse_out != tile::kMinusInfinity;
    if (merge) {
      // The two weights make one whatever the roundings of lse are; exp(lse - total) would scale
      // the whole row by that of the total, once for every block that is merged.
      const double more = lse - lse_out;
      const auto old_weight = static_cast<float>(1.0 / (1.0 + std::exp(more)));
      weight *= static_cast<float>(1.0 / (1.0 + std::exp(-more)));
      lse = std::max<double>(lse, lse_out) + std::log1p(std::exp(-std::abs(more)));
      float* row = reinterpret_cast<float*>(o.row(query));
      for (std::int64_t i = 0; i < p_.dims_v; ++i) row[i * o.stride] *= old_weight;
    }
    tile::store_row(o, query, s_.out + q * p_.dims_v_padded, p_.dims_v, weight, merge);
    lse_out = static_cast<float>(lse);
  }

  const AttentionProblem& p_;
  const AttentionOutputs& out_;
  const ForwardScratch<Element> s_;
  const std::int64_t key_elements_;  // of a row of keys
  Products products_;
  HeadRows keys_, values_;
};

void forward_item(const AttentionProblem& problem, const AttentionOutputs& out, SpanCutter memory,
                  const ForwardItem& item) {
#if HWY_TARGET == HWY_AVX3
  if (problem.tiles && tile_registers() == TileRegisters::kAmx)
    return ForwardTiles<tile::TileProducts<AmxTiles>>(problem, out, memory).run(item);
  if (problem.tiles)
    return ForwardTiles<tile::TileProducts<ModelTiles>>(problem, out, memory).run(item);
  if (problem.pairs)
    return ForwardTiles<tile::VectorProducts<Bf16Pair>>(problem, out, memory).run(item);
#endif
  ForwardTiles<tile::VectorProducts<float>>(problem, out, memory).run(item);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(forward_item);

}  // namespace

void attention_forward(const KernelContext& context, const AttentionOutputs& out,
                       const AttentionInputs& in, const AttentionOptions& options) {
  AttentionProblem problem = describe_attention(in, options);
  const int threads = std::max(context.threads.count, 1);
  const std::int64_t parts = choose_parts(problem, problem.query_tiles, threads);
  const std::int64_t items = problem.batch * problem.kv_heads * parts;
  const auto workers = static_cast<int>(std::min<std::int64_t>(threads, items));
  const std::size_t worker_bytes = problem.pairs ? ForwardScratch<Bf16Pair>::bytes(problem)
                                                 : ForwardScratch<float>::bytes(problem);
  SpanCutter cutter(reserve_workspace(
      context, attention_table_bytes(problem) + worker_bytes * static_cast<std::size_t>(workers),
      "attention"));
  prepare_attention(problem, cutter);
  const std::span<std::byte> scratch = cutter.rest();
  std::atomic<std::int64_t> next{0};
  parallel_for({workers}, workers, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t worker = begin; worker < end; ++worker) {
      const SpanCutter own(
          scratch.subspan(static_cast<std::size_t>(worker) * worker_bytes, worker_bytes));
      for (std::int64_t i = next.fetch_add(1); i < items; i = next.fetch_add(1))
        HWY_DYNAMIC_DISPATCH(forward_item)
      (problem, out, own,
       {i / parts / problem.kv_heads, i / parts % problem.kv_heads, i % parts, parts});
    }
  });
}

}  // namespace meshloom::kernels::cpu
#endif
