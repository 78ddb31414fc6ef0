// SPDX-License-Identifier: Apache-2.0
// Scores on the device: which keys a query sees, what is added to a score, what dropout keeps, and
// what a tile of queries sees of a tile of keys.
#pragma once

#include "kernels/cuda/attention/flash_launch.h"
#include "kernels/cuda/device.h"

namespace meshloom::kernels::cuda {

/// Where a query or a key stands. Shared memory takes no initial values.
struct alignas(16) Mark {
  std::int64_t position, document;
};

__device__ __forceinline__ Mark query_mark(const ScoreRules& rules, std::int64_t batch,
                                           std::int64_t query) {
  Mark mark{0, 0};
  mark.position = rules.query_positions != nullptr
                      ? rules.query_positions[query * rules.query_position_stride]
                      : query;
  if (rules.query_documents != nullptr)
    mark.document = rules.query_documents[batch * rules.query_document_batch +
                                          query * rules.query_document_stride];
  return mark;
}

__device__ __forceinline__ Mark key_mark(const ScoreRules& rules, std::int64_t batch,
                                         std::int64_t key) {
  Mark mark{0, 0};
  mark.position = rules.key_positions != nullptr
                      ? rules.key_positions[key * rules.key_position_stride]
                      : rules.key_offset + key;
  if (rules.key_documents != nullptr)
    mark.document =
        rules.key_documents[batch * rules.key_document_batch + key * rules.key_document_stride];
  return mark;
}

/// What a tile of queries sees of a tile of keys.
enum class Seen : std::uint8_t { kNone, kPartly, kAll };

/// The first of some queries or keys, and how many.
struct TileRows {
  std::int64_t first = 0;
  int count = 0;
};

__device__ __forceinline__ TileRows tile_rows(std::int64_t tile, int rows, std::int64_t total) {
  const std::int64_t first = tile * rows, left = total - first;
  return {first, left < rows ? static_cast<int>(left) : rows};
}

__device__ __forceinline__ Span span_of(const Span* spans, const TileRows& rows) {
  const std::int64_t first = rows.first / kSpanRows;
  const std::int64_t last = (rows.first + rows.count - 1) / kSpanRows;
  Span span = spans[first];
  for (std::int64_t i = first + 1; i <= last; ++i) {
    const Span next = spans[i];
    span.low = next.low < span.low ? next.low : span.low;
    span.high = next.high > span.high ? next.high : span.high;
  }
  return span;
}

__device__ __forceinline__ Seen tile_seen(const FlashSizes& sizes, const ScoreRules& rules,
                                          std::int64_t batch, const TileRows& queries,
                                          const TileRows& keys) {
  const Span q = rules.query_spans != nullptr
                     ? span_of(rules.query_spans, queries)
                     : Span{queries.first, queries.first + queries.count - 1};
  const Span k = rules.key_spans != nullptr ? span_of(rules.key_spans, keys)
                                            : Span{rules.key_offset + keys.first,
                                                   rules.key_offset + keys.first + keys.count - 1};
  const std::int64_t low = k.low - q.high - rules.query_offset;
  const std::int64_t high = k.high - q.low - rules.query_offset;
  if (low > rules.most || high < rules.least) return Seen::kNone;
  bool all = low >= rules.least && high <= rules.most;
  if (rules.query_document_spans != nullptr) {
    const auto spans = [](std::int64_t rows) { return (rows + kSpanRows - 1) / kSpanRows; };
    const Span dq = span_of(rules.query_document_spans + batch * spans(sizes.queries), queries);
    const Span dk = span_of(rules.key_document_spans + batch * spans(sizes.keys), keys);
    if (dq.low > dk.high || dk.low > dq.high) return Seen::kNone;
    all = all && dq.low == dq.high && dk.low == dk.high;
  }
  return all ? Seen::kAll : Seen::kPartly;
}

/// Draws of dropout, kept for the four keys in a row that have them together.
struct DropoutDraws {
  bool any = false;
  std::uint64_t block = 0;
  PhiloxBlock values{};
};

/// The rules as a head of a batch row has them. C: float or double.
template <class C>
class HeadRules {
 public:
  __device__ HeadRules(const ScoreRules& rules, std::int64_t batch, std::int64_t head)
      : rules_(rules) {
    if (rules.bias != nullptr)
      bias_ = rules.bias + batch * rules.bias_strides.batch + head * rules.bias_strides.head;
    if (rules.slopes != nullptr) slope_ = static_cast<C>(rules.slopes[head * rules.slope_stride]);
    const std::int64_t drawn = rules.first_head + batch * rules.total_heads + head;
    first_drawn_ = static_cast<std::uint64_t>(drawn * rules.total_queries);
    kept_ = C(1) / (C(1) - C(rules.dropout_p));
  }

  __device__ __forceinline__ bool adds() const {
    return bias_ != nullptr || rules_.slopes != nullptr;
  }
  __device__ __forceinline__ bool drops() const { return rules_.dropout_p > 0.0f; }

  __device__ __forceinline__ bool sees(const Mark& query, const Mark& key) const {
    const std::int64_t distance = key.position - query.position - rules_.query_offset;
    return distance >= rules_.least && distance <= rules_.most && query.document == key.document;
  }

  /// What the bias and the head's slope add to the score of `key`.
  __device__ __forceinline__ C added(std::int64_t query, const Mark& query_mark, std::int64_t key,
                                     const Mark& key_mark) const {
    C sum = 0;
    if (bias_ != nullptr)
      sum +=
          static_cast<C>(bias_[query * rules_.bias_strides.row + key * rules_.bias_strides.last]);
    if (rules_.slopes != nullptr) {
      const std::int64_t distance = key_mark.position - query_mark.position - rules_.query_offset;
      sum -= slope_ * static_cast<C>(distance < 0 ? -distance : distance);
    }
    return sum;
  }

  /// Whether dropout keeps the probability of `key`. Ten rounds of multiplications: kernels ask
  /// in a loop that is not unrolled, and keep a bit for each element of their fragments.
  __device__ __forceinline__ bool keeps(DropoutDraws& draws, const Mark& query,
                                        const Mark& key) const {
    const std::uint64_t index = (first_drawn_ + static_cast<std::uint64_t>(query.position)) *
                                    static_cast<std::uint64_t>(rules_.total_keys) +
                                static_cast<std::uint64_t>(key.position);
    if (!draws.any || index / 4 != draws.block) {
      draws.any = true;
      draws.block = index / 4;
      draws.values = rules_.random.block(draws.block);
    }
    const unsigned word = static_cast<unsigned>(index % 4);
    const std::uint32_t low = word == 0 ? draws.values[0] : draws.values[1];
    const std::uint32_t high = word == 2 ? draws.values[2] : draws.values[3];
    return philox_uniform(word < 2 ? low : high) >= rules_.dropout_p;
  }
  /// What a probability that is kept is multiplied by.
  __device__ __forceinline__ C kept_factor() const { return kept_; }

 private:
  const ScoreRules& rules_;
  const float* bias_ = nullptr;
  C slope_ = 0;
  std::uint64_t first_drawn_;
  C kept_;
};

/// Bit e is set where dropout keeps element e of a thread's fragment, for e below kCount;
/// query_of(e) and key_of(e) give marks. All are set without dropout.
template <int kCount, class C, class QueryOf, class KeyOf>
__device__ __forceinline__ unsigned kept_bits(const HeadRules<C>& rules, QueryOf&& query_of,
                                              KeyOf&& key_of) {
  static_assert(kCount <= 32);
  if (!rules.drops()) return ~0u;
  unsigned bits = 0;
  DropoutDraws draws;
#pragma unroll 1
  for (int e = 0; e < kCount; ++e)
    if (rules.keeps(draws, query_of(e), key_of(e))) bits |= 1u << e;
  return bits;
}

/// Marks of a tile's queries, or keys, for the whole block; those that are not there get zeros.
template <int kCount, class MarkOf>
__device__ __forceinline__ void load_marks(Mark* marks, const TileRows& rows, MarkOf&& mark_of) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < kCount) marks[i] = i < rows.count ? mark_of(rows.first + i) : Mark{0, 0};
}
template <int kCount>
__device__ __forceinline__ void load_query_marks(Mark* marks, const ScoreRules& rules,
                                                 std::int64_t batch, const TileRows& rows) {
  load_marks<kCount>(marks, rows, [&](std::int64_t at) { return query_mark(rules, batch, at); });
}
template <int kCount>
__device__ __forceinline__ void load_key_marks(Mark* marks, const ScoreRules& rules,
                                               std::int64_t batch, const TileRows& rows) {
  load_marks<kCount>(marks, rows, [&](std::int64_t at) { return key_mark(rules, batch, at); });
}

__device__ __forceinline__ std::int64_t number_offset(const QueryNumbers& numbers,
                                                      std::int64_t batch, std::int64_t head,
                                                      std::int64_t query) {
  return batch * numbers.strides.batch + head * numbers.strides.head + query * numbers.strides.row;
}

template <class C>
__device__ __forceinline__ C load_number(const QueryNumbers& numbers, std::int64_t offset) {
  return numbers.wide ? static_cast<C>(static_cast<const double*>(numbers.data)[offset])
                      : static_cast<C>(static_cast<const float*>(numbers.data)[offset]);
}

template <class C>
__device__ __forceinline__ void store_number(const QueryNumbers& numbers, std::int64_t offset,
                                             C value) {
  if (numbers.wide)
    static_cast<double*>(numbers.data)[offset] = static_cast<double>(value);
  else
    static_cast<float*>(numbers.data)[offset] = static_cast<float>(value);
}

/// The end of a query's softmax over some keys: what the sums of values are multiplied by, what
/// came before is, and the lse of both.
template <class C>
struct SoftmaxEnd {
  C factor = 0, before = 0, lse = 0;

  /// `top` is the largest score, `sum` that of exp(score - top), or 0 where nothing is seen.
  __device__ SoftmaxEnd(C top, C sum) {
    constexpr C kNone = -std::numeric_limits<C>::infinity();
    const bool nothing = sum == C(0);
    factor = nothing ? C(0) : C(1) / sum;
    lse = nothing ? kNone : top + log(sum);
  }

  /// Merges with what came before.
  __device__ void carry(C lse_before) {
    constexpr C kNone = -std::numeric_limits<C>::infinity();
    const C high = lse_before > lse ? lse_before : lse;
    const C both = high == kNone ? kNone : high + log(exp(lse_before - high) + exp(lse - high));
    if (lse != kNone) factor *= exp(lse - both);
    before = lse_before == kNone ? C(0) : exp(lse_before - both);
    lse = both;
  }
};

}  // namespace meshloom::kernels::cuda
