// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/attention_flash.h"

#include <algorithm>
#include <atomic>

#include "kernels/base/integer_math.h"
#include "kernels/cpu/attention/attention_backward_work.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/span_workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_backward.cpp"
#include <hwy/foreach_target.h>  // keep before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/attention/attention_dropout.h"
#include "kernels/cpu/attention/attention_pack.h"
#include "kernels/cpu/attention/attention_products.h"
#include "kernels/cpu/attention/attention_tile.h"
#include "kernels/cpu/attention/attention_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using tile::F32;
using tile::V;

template <typename Products>
class BackwardTiles {
 public:
  using Element = typename Products::Element;

  BackwardTiles(const AttentionProblem& problem, const AttentionGrads& grads, SpanCutter memory)
      : p_(problem), grads_(grads), s_(memory, problem) {}

  void run(const BackwardItem& item) {
    const std::int64_t first = p_.key_tiles * item.stripe / item.stripes;
    const std::int64_t end = p_.key_tiles * (item.stripe + 1) / item.stripes;
    for (std::int64_t g = 0; g < p_.group; ++g) {
      const tile::HeadScope head(p_, item.b, item.kv * p_.group + g);
      pack_queries(head);
      dq_ = item.dq + g * query_rows(p_) * p_.dims_padded;
      std::fill_n(dq_, query_rows(p_) * p_.dims_padded, 0.0f);
      for (std::int64_t t = first; t < end; ++t) {
        run_keys(head, item.kv, t);
        // Later query heads of a group add to what the first has stored.
        store_keys(item, t, grads_.accumulate || g > 0);
      }
    }
  }

 private:
  static constexpr bool kPairs = kPerElement<Element> == 2;
  static std::int64_t elements(std::int64_t values) { return elements_of<Element>(values); }

  void pack_queries(const tile::HeadScope& head) {
    const HeadRows q = head_rows(p_.in.q, head.b, head.h);
    const HeadRows go = head_rows(grads_.grad_o, head.b, head.h);
    for (std::int64_t t = 0; t < p_.query_tiles; ++t) {
      const std::int64_t first = t * kTile, count = std::min(kTile, p_.queries - first);
      Element* q_across = s_.queries_across + first * elements(p_.dims_across());
      Element* go_across = s_.grads_across + first * elements(p_.dims_v_across());
      Element* q_rows = s_.queries + elements(first) * p_.dims_padded;
      Element* go_rows = s_.grads + elements(first) * p_.dims_v_padded;
      if constexpr (kPairs) {
        tile::pack_across(q_across, q, first, count, p_.dims, p_.dims_across());
        tile::pack_across(go_across, go, first, count, p_.dims_v, p_.dims_v_across());
        tile::pack_row_pairs(q_rows, p_.dims_padded, q, first, count, kTile, p_.dims);
        tile::pack_row_pairs(go_rows, p_.dims_v_padded, go, first, count, kTile, p_.dims_v);
      } else {
        tile::pack_transposed(q_across, kTile, q, first, count, kTile, p_.dims,
                              p_.scale * tile::kLog2E);
        tile::pack_transposed(go_across, kTile, go, first, count, kTile, p_.dims_v, 1.0f);
        tile::pack_rows(q_rows, p_.dims_padded, q, first, count, kTile, p_.dims);
        tile::pack_rows(go_rows, p_.dims_v_padded, go, first, count, kTile, p_.dims_v);
      }
    }
    const auto row_value = [&](const TensorView& view, std::int64_t i) {
      return view
          .as<float>()[head.b * view.stride(0) + head.h * view.stride(1) + i * view.stride(2)];
    };
    for (std::int64_t i = 0; i < query_rows(p_); ++i) {
      const float lse = i < p_.queries ? row_value(grads_.lse, i) : tile::kMinusInfinity;
      s_.lse[i] = lse == tile::kMinusInfinity ? -tile::kMinusInfinity : lse * tile::kLog2E;
      s_.delta[i] = i < p_.queries ? row_value(grads_.delta, i) : 0.0f;
    }
  }

  void run_keys(const tile::HeadScope& head, std::int64_t kv, std::int64_t t) {
    pack_keys(head.b, kv, t);
    std::fill_n(s_.dk, kTile * p_.dims_padded, 0.0f);
    std::fill_n(s_.dv, kTile * p_.dims_v_padded, 0.0f);
    for (std::int64_t query_tile = 0; query_tile < p_.query_tiles; ++query_tile) {
      const TileMap map = map_tile(p_, head.b, query_tile, t);
      if (map.all == Seen::kNone) continue;
      if constexpr (Products::kTiles) multiply_blocks(map, query_tile);
      for (int panel = 0; panel < map.query_panels; ++panel)
        for (int unit = 0; unit < map.key_units; ++unit)
          make_unit(head, map, query_tile, t, unit, panel);
      if constexpr (Products::kTiles) {
        narrow_all(map);
        add_blocks(map, query_tile);
        continue;
      }
      if constexpr (kPairs) narrow(map);
      add_key_gradients(map, query_tile);
      add_query_gradients(map, query_tile);
    }
  }

  void pack_keys(std::int64_t b, std::int64_t kv, std::int64_t t) {
    const HeadRows k = head_rows(p_.in.k, b, kv), v = head_rows(p_.in.v, b, kv);
    const std::int64_t first = t * kTile, count = std::min(kTile, p_.keys - first);
    const std::int64_t padded = Products::kTiles ? kTile : round_up(count, kUnit);
    tile::pack_rows(s_.keys, elements(p_.dims_padded), k, first, count, padded, p_.dims);
    tile::pack_rows(s_.values, elements(p_.dims_v_padded), v, first, count, padded, p_.dims_v);
    if constexpr (kPairs)
      tile::pack_row_pairs(s_.key_pairs, p_.dims_padded, k, first, count, padded, p_.dims);
  }

  // Probabilities and score gradients as the products of the gradients read them.
  void narrow(const TileMap& map) {
    for (int unit = 0; unit < map.key_units; ++unit)
      for (int panel = 0; panel < map.query_panels; ++panel)
        if (map.used[unit][panel] != 0 || map.zero[unit][panel] != 0) narrow_unit(unit, panel);
  }

  void narrow_unit(int unit, int panel) {
    const std::int64_t row = unit * kUnit, column = panel * kPanel;
    const std::int64_t at = row * kTile + column, pair = at / 2;
    tile::ScoreRows<Element>::narrow_rows(s_.p + at, s_.p_pairs + pair);
    tile::ScoreRows<Element>::narrow_rows(s_.ds + at, s_.ds_pairs + pair);
    tile::ScoreRows<Element>::narrow_row_pairs(s_.ds + at,
                                               s_.ds_key_pairs + row / 2 * kTile + column);
  }

  // The same with zeros for all that is not seen.
  void narrow_all(const TileMap& map) {
    for (int unit = 0; unit < kUnits; ++unit)
      for (int panel = 0; panel < map.query_panels; ++panel) {
        if (unit < map.key_units && map.used[unit][panel] != 0) {
          narrow_unit(unit, panel);
          continue;
        }
        const std::int64_t row = unit * kUnit, column = panel * kPanel;
        tile::clear_rows(s_.p_pairs + (row * kTile + column) / 2);
        tile::clear_rows(s_.ds_pairs + (row * kTile + column) / 2);
        tile::clear_row_pairs(s_.ds_key_pairs + row / 2 * kTile + column);
      }
  }

  // Products of keys and queries in p, of values and gradients in ds.
  void multiply_blocks(const TileMap& map, std::int64_t query_tile) {
    const std::int64_t depth = elements(p_.dims_padded), depth_v = elements(p_.dims_v_padded);
    for (int panel = 0; panel < map.query_panels; ++panel)
      for (int block = 0; block < tile::kBlocks; ++block) {
        if (!tile::block_used(map, block, panel)) continue;
        const std::int64_t at = block * kPanel * kTile + panel * kPanel;
        products_.multiply(depth, s_.keys + block * kPanel * depth, depth,
                           s_.queries_across + query_tile * kTile * depth + panel * kPanel, kTile,
                           s_.p + at, kTile);
        products_.multiply(depth_v, s_.values + block * kPanel * depth_v, depth_v,
                           s_.grads_across + query_tile * kTile * depth_v + panel * kPanel, kTile,
                           s_.ds + at, kTile);
      }
  }

  // dv += p^T do, dk += ds^T q, dq += ds k.
  void add_blocks(const TileMap& map, std::int64_t query_tile) {
    constexpr std::int64_t kRow = kTile / 2;
    const std::int64_t depth = map.query_panels * kPanel / 2;
    for (std::int64_t key = 0; key < map.key_units * kUnit; key += kPanel) {
      products_.add(depth, s_.p_pairs + key * kRow, kRow,
                    s_.grads + query_tile * kRow * p_.dims_v_padded, p_.dims_v_padded,
                    s_.dv + key * p_.dims_v_padded, p_.dims_v_padded, p_.dims_v_padded);
      products_.add(depth, s_.ds_pairs + key * kRow, kRow,
                    s_.queries + query_tile * kRow * p_.dims_padded, p_.dims_padded,
                    s_.dk + key * p_.dims_padded, p_.dims_padded, p_.dims_padded);
    }
    for (int panel = 0; panel < map.query_panels; ++panel)
      products_.add_turned(s_.ds_key_pairs + panel * kPanel, s_.key_pairs, p_.dims_padded,
                           dq_ + (query_tile * kTile + panel * kPanel) * p_.dims_padded,
                           p_.dims_padded, p_.dims_padded);
  }

  // Probabilities and score gradients of one key unit by one query panel.
  void make_unit(const tile::HeadScope& head, const TileMap& map, std::int64_t query_tile,
                 std::int64_t t, int unit, int panel) {
    const std::int64_t at = unit * kUnit * kTile + panel * kPanel;
    const auto used = static_cast<Seen>(map.used[unit][panel]);
    if (used == Seen::kNone) {
      if (map.zero[unit][panel] != 0) clear_unit(at);
      return;
    }
    const std::int64_t query = query_tile * kTile + panel * kPanel;
    const bool partly = used == Seen::kPartly;
    if constexpr (Products::kTiles) {
      if (!partly && !p_.modified) return finish_plain_unit(at, query);
      tile::scale_unit(s_.p + at, p_.scale * tile::kLog2E);
      tile::modify_unit(head, s_.p + at, query, t * kTile + unit * kUnit, partly);
      return finish_unit(head, at, query, t * kTile + unit * kUnit);
    }
    const Element* queries =
        s_.queries_across + query_tile * kTile * elements(p_.dims) + panel * kPanel;
    const Element* grads =
        s_.grads_across + query_tile * kTile * elements(p_.dims_v) + panel * kPanel;
    const Element* keys = s_.keys + unit * kUnit * elements(p_.dims_padded);
    const Element* values = s_.values + unit * kUnit * elements(p_.dims_v_padded);
    if (!partly && !p_.modified) return plain_unit(keys, values, queries, grads, at, query);
    product_unit(elements(p_.dims), keys, elements(p_.dims_padded), queries,
                 kPairs ? p_.scale * tile::kLog2E : 1.0f, s_.p + at);
    product_unit(elements(p_.dims_v), values, elements(p_.dims_v_padded), grads, 1.0f, s_.ds + at);
    tile::modify_unit(head, s_.p + at, query, t * kTile + unit * kUnit, partly);
    finish_unit(head, at, query, t * kTile + unit * kUnit);
  }

  void clear_unit(std::int64_t at) {
    for (int k = 0; k < kUnit; ++k) {
      std::fill_n(s_.p + at + k * kTile, kPanel, 0.0f);
      std::fill_n(s_.ds + at + k * kTile, kPanel, 0.0f);
    }
  }

  // Both products with their elementwise steps while they are in registers.
  HWY_INLINE void plain_unit(const Element* keys, const Element* values, const Element* queries,
                             const Element* grads, std::int64_t at, std::int64_t query) {
    const F32 d;
    const std::int64_t n = tile::lanes();
    for (std::int64_t q = 0; q < kPanel; q += 2 * n)
      for (int m = 0; m < kUnit; m += tile::kRegisterRows) {
        float* p = s_.p + at + m * kTile + q;
        float* ds = s_.ds + at + m * kTile + q;
        probabilities(keys + m * elements(p_.dims_padded), queries + q, s_.lse + query + q, p);
        V acc[tile::kRegisterRows][2];
        tile::clear(acc);
        tile::multiply_rows(elements(p_.dims_v), values + m * elements(p_.dims_v_padded),
                            elements(p_.dims_v_padded), grads + q, kTile, acc);
        const V delta[2] = {hn::LoadU(d, s_.delta + query + q),
                            hn::LoadU(d, s_.delta + query + q + n)};
#pragma GCC unroll 16
        for (int i = 0; i < tile::kRegisterRows; ++i)
#pragma GCC unroll 2
          for (int v = 0; v < 2; ++v) {
            const std::int64_t offset = i * kTile + v * n;
            hn::StoreU(hn::Mul(hn::LoadU(d, p + offset), hn::Sub(acc[i][v], delta[v])), d,
                       ds + offset);
          }
      }
  }

  // The elementwise steps of plain_unit on products that lie in p and ds.
  void finish_plain_unit(std::int64_t at, std::int64_t query) {
    const F32 d;
    const V scale = hn::Set(d, p_.scale * tile::kLog2E);
    for (std::int64_t q = 0; q < kPanel; q += tile::lanes()) {
      const V lse = hn::LoadU(d, s_.lse + query + q), delta = hn::LoadU(d, s_.delta + query + q);
      for (int k = 0; k < kUnit; ++k) {
        float* p_at = s_.p + at + k * kTile + q;
        float* ds_at = s_.ds + at + k * kTile + q;
        const V p = tile::exp2(hn::MulSub(hn::LoadU(d, p_at), scale, lse));
        hn::StoreU(p, d, p_at);
        hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, ds_at), delta)), d, ds_at);
      }
    }
  }

  HWY_INLINE void probabilities(const Element* keys, const Element* queries, const float* lse,
                                float* p) {
    const F32 d;
    const V scale = hn::Set(d, p_.scale * tile::kLog2E);
    const std::int64_t n = tile::lanes();
    V acc[tile::kRegisterRows][2];
    tile::clear(acc);
    tile::multiply_rows(elements(p_.dims), keys, elements(p_.dims_padded), queries, kTile, acc);
    const V base[2] = {hn::LoadU(d, lse), hn::LoadU(d, lse + n)};
#pragma GCC unroll 16
    for (int i = 0; i < tile::kRegisterRows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v)
        hn::StoreU(tile::exp2(kPairs ? hn::MulSub(acc[i][v], scale, base[v])
                                     : hn::Sub(acc[i][v], base[v])),
                   d, p + i * kTile + v * n);
  }

  // c = factor * a b, for floats without the factor.
  HWY_INLINE void product_unit(std::int64_t depth, const Element* a, std::int64_t lda,
                               const Element* b, float factor, float* c) {
    const F32 d;
    const V scale = hn::Set(d, factor);
    const std::int64_t n = tile::lanes();
    for (std::int64_t q = 0; q < kPanel; q += 2 * n)
      for (int m = 0; m < kUnit; m += tile::kRegisterRows) {
        V acc[tile::kRegisterRows][2];
        tile::clear(acc);
        tile::multiply_rows(depth, a + m * lda, lda, b + q, kTile, acc);
#pragma GCC unroll 16
        for (int i = 0; i < tile::kRegisterRows; ++i) {
          if constexpr (kPairs) {
            acc[i][0] = hn::Mul(acc[i][0], scale);
            acc[i][1] = hn::Mul(acc[i][1], scale);
          }
          hn::StoreU(acc[i][0], d, c + (m + i) * kTile + q);
          hn::StoreU(acc[i][1], d, c + (m + i) * kTile + q + n);
        }
      }
  }

  // From scores in p and products in ds: probabilities (dropped) and score gradients.
  void finish_unit(const tile::HeadScope& head, std::int64_t at, std::int64_t query,
                   std::int64_t key) {
    const F32 d;
    const bool dropped = head.options.dropout_p > 0.0f;
    if (dropped) tile::dropout_factors(head, s_.factors, query, key);
    for (int k = 0; k < kUnit; ++k)
      for (std::int64_t q = 0; q < kPanel; q += tile::lanes()) {
        float* p_at = s_.p + at + k * kTile + q;
        float* ds_at = s_.ds + at + k * kTile + q;
        const V p = tile::exp2(hn::Sub(hn::LoadU(d, p_at), hn::LoadU(d, s_.lse + query + q)));
        const V keep = dropped ? hn::LoadU(d, s_.factors + k * kPanel + q) : hn::Set(d, 1.0f);
        const V dp = hn::MulSub(keep, hn::LoadU(d, ds_at), hn::LoadU(d, s_.delta + query + q));
        hn::StoreU(hn::Mul(p, dp), d, ds_at);
        hn::StoreU(hn::Mul(p, keep), d, p_at);
      }
    if (grads_.grad_bias.defined()) add_bias_gradient(head, at, query, key);
  }

  void add_bias_gradient(const tile::HeadScope& head, std::int64_t at, std::int64_t query,
                         std::int64_t key) {
    const HeadRows rows = head_rows(grads_.grad_bias, head.b, head.h);
    const std::int64_t queries = std::min(kPanel, p_.queries - query);
    const std::int64_t keys = std::min(kUnit, p_.keys - key);
    for (std::int64_t q = 0; q < queries; ++q) {
      float* row = reinterpret_cast<float*>(rows.row(query + q)) + key * rows.stride;
      for (std::int64_t k = 0; k < keys; ++k) row[k * rows.stride] += s_.ds[at + k * kTile + q];
    }
  }

  // dv += p^T do, dk += ds^T q.
  void add_key_gradients(const TileMap& map, std::int64_t query_tile) {
    const Element *p = s_.p_pairs, *ds = s_.ds_pairs;
    if constexpr (!kPairs) p = s_.p, ds = s_.ds;
    constexpr std::int64_t kRow = elements_of<Element>(kTile);
    for (int unit = 0; unit < map.key_units; ++unit) {
      const std::int64_t first = map.first_query[unit] * elements(kUnit);
      const std::int64_t depth = map.end_query[unit] * elements(kUnit) - first;
      if (depth <= 0) continue;
      const std::int64_t at = unit * kUnit * kRow + first;
      const std::int64_t row = query_tile * kRow + first;
      tile::multiply_add<kRow, 1, false>(depth, p + at, s_.grads + row * p_.dims_v_padded,
                                         p_.dims_v_padded, s_.dv + unit * kUnit * p_.dims_v_padded,
                                         p_.dims_v_padded, p_.dims_v_padded, nullptr);
      tile::multiply_add<kRow, 1, false>(depth, ds + at, s_.queries + row * p_.dims_padded,
                                         p_.dims_padded, s_.dk + unit * kUnit * p_.dims_padded,
                                         p_.dims_padded, p_.dims_padded, nullptr);
    }
  }

  // dq += ds k.
  void add_query_gradients(const TileMap& map, std::int64_t query_tile) {
    const Element *ds = s_.ds_key_pairs, *keys = s_.key_pairs;
    if constexpr (!kPairs) ds = s_.ds, keys = s_.keys;
    for (int unit = 0; unit < map.query_units; ++unit) {
      const std::int64_t first = map.first_key[unit] * elements(kUnit);
      const std::int64_t depth = map.end_key[unit] * elements(kUnit) - first;
      if (depth <= 0) continue;
      tile::multiply_add<1, kTile, false>(
          depth, ds + first * kTile + unit * kUnit, keys + first * p_.dims_padded, p_.dims_padded,
          dq_ + (query_tile * kTile + unit * kUnit) * p_.dims_padded, p_.dims_padded,
          p_.dims_padded, nullptr);
    }
  }

  void store_keys(const BackwardItem& item, std::int64_t t, bool accumulate) {
    const HeadRows dk = head_rows(grads_.dk, item.b, item.kv);
    const HeadRows dv = head_rows(grads_.dv, item.b, item.kv);
    const std::int64_t count = std::min(kTile, p_.keys - t * kTile);
    for (std::int64_t r = 0; r < count; ++r) {
      tile::store_row(dk, t * kTile + r, s_.dk + r * p_.dims_padded, p_.dims, p_.scale, accumulate);
      tile::store_row(dv, t * kTile + r, s_.dv + r * p_.dims_v_padded, p_.dims_v, 1.0f, accumulate);
    }
  }

  const AttentionProblem& p_;
  const AttentionGrads& grads_;
  const BackwardScratch<Element> s_;
  float* dq_ = nullptr;
  Products products_;
};

void backward_item(const AttentionProblem& problem, const AttentionGrads& grads, SpanCutter memory,
                   const BackwardItem& item) {
#if HWY_TARGET == HWY_AVX3
  if (problem.tiles && tile_registers() == TileRegisters::kAmx)
    return BackwardTiles<tile::TileProducts<AmxTiles>>(problem, grads, memory).run(item);
  if (problem.tiles)
    return BackwardTiles<tile::TileProducts<ModelTiles>>(problem, grads, memory).run(item);
  if (problem.pairs)
    return BackwardTiles<tile::VectorProducts<Bf16Pair>>(problem, grads, memory).run(item);
#endif
  BackwardTiles<tile::VectorProducts<float>>(problem, grads, memory).run(item);
}

// dq of one kv head's query rows [begin, end) of its group: the stripes' sum in order.
void store_queries(const AttentionProblem& p, const AttentionGrads& grads, const BackwardItem& item,
                   std::int64_t begin, std::int64_t end) {
  const F32 d;
  const std::int64_t head_floats = query_rows(p) * p.dims_padded;
  const std::int64_t stripe_floats = p.group * head_floats;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t g = i / p.queries, query = i % p.queries;
    float* sum = item.dq + g * head_floats + query * p.dims_padded;
    for (std::int64_t s = 1; s < item.stripes; ++s)
      for (std::int64_t c = 0; c < p.dims_padded; c += tile::lanes())
        hn::StoreU(hn::Add(hn::LoadU(d, sum + c), hn::LoadU(d, sum + s * stripe_floats + c)), d,
                   sum + c);
    const HeadRows dq = head_rows(grads.dq, item.b, item.kv * p.group + g);
    if (query + tile::kRowsAhead < p.queries)
      tile::prefetch_stored(dq, query + tile::kRowsAhead, p.dims);
    tile::store_row(dq, query, sum, p.dims, p.scale, grads.accumulate);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
namespace {

HWY_EXPORT(backward_item);
HWY_EXPORT(store_queries);

}  // namespace

void attention_backward_tiles(const KernelContext& context, const AttentionGrads& grads,
                              const AttentionInputs& in, const AttentionOptions& options) {
  AttentionProblem problem = describe_attention(in, options);
  problem.pairs = problem.pairs && grads.grad_o.dtype == DType::kBFloat16;
  problem.tiles = problem.tiles && problem.pairs;
  const int threads =
      shared_bias_gradient(problem, grads.grad_bias) ? 1 : std::max(context.threads.count, 1);
  const std::int64_t stripes = choose_parts(problem, problem.key_tiles, threads);
  const std::int64_t heads = problem.batch * problem.kv_heads;
  // Heads go in waves of about one item per thread: dq shares exist for one wave at a time.
  const std::int64_t wave =
      std::min<std::int64_t>(heads, divide_up<std::int64_t>(threads, stripes));
  const std::int64_t share = problem.group * query_rows(problem) * problem.dims_padded;
  const std::size_t worker_bytes = problem.pairs ? BackwardScratch<Bf16Pair>::bytes(problem)
                                                 : BackwardScratch<float>::bytes(problem);
  const std::int64_t workers = std::min<std::int64_t>(threads, wave * stripes);
  SpanCutter cutter(reserve_workspace(context,
                                      attention_table_bytes(problem) +
                                          piece_bytes<float>(wave * stripes * share) +
                                          worker_bytes * static_cast<std::size_t>(workers),
                                      "attention_backward"));
  prepare_attention(problem, cutter);
  float* shares = cutter.take<float>(wave * stripes * share);
  const std::span<std::byte> scratch = cutter.rest();
  for (std::int64_t first = 0; first < heads; first += wave) {
    const std::int64_t count = std::min(wave, heads - first);
    const auto item_of = [&](std::int64_t head, std::int64_t stripe) {
      return BackwardItem{(first + head) / problem.kv_heads, (first + head) % problem.kv_heads,
                          stripe, stripes, shares + (head * stripes + stripe) * share};
    };
    std::atomic<std::int64_t> next{0};
    const auto work = static_cast<int>(std::min(workers, count * stripes));
    parallel_for({work}, work, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t worker = begin; worker < end; ++worker) {
        const SpanCutter own(
            scratch.subspan(static_cast<std::size_t>(worker) * worker_bytes, worker_bytes));
        for (std::int64_t i = next.fetch_add(1); i < count * stripes; i = next.fetch_add(1))
          HWY_DYNAMIC_DISPATCH(backward_item)
        (problem, grads, own, item_of(i / stripes, i % stripes));
      }
    });
    const std::int64_t rows = problem.group * problem.queries;
    parallel_for({threads}, count * rows, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t head = begin / rows; head * rows < end; ++head)
        HWY_DYNAMIC_DISPATCH(store_queries)
      (problem, grads, item_of(head, 0), std::max(begin - head * rows, std::int64_t{0}),
       std::min(end - head * rows, rows));
    });
  }
}

}  // namespace meshloom::kernels::cpu
#endif
