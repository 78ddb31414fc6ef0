// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/attention_exchange.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/integer_math.h"
#include "planner/attention/head_lists.h"

namespace meshloom::planner {
namespace {

using Kind = CollectiveKind;

constexpr std::int64_t kFloat = 4;

int degree_of(const ContextParallelPlan& plan, int ranks) {
  if (plan.rotate != Rotate::kUlysses) return 1;
  return plan.ulysses_degree == 0 ? ranks : plan.ulysses_degree;
}

/// The lists of the neighbour that has most.
std::int64_t most_heads(const HeadLists& lists) {
  std::size_t most = 0;
  for (const auto& list : lists) most = std::max(most, list.size());
  return static_cast<std::int64_t>(most);
}

/// What a rank holds and computes once heads were exchanged among `degree` neighbours.
struct OfHeads {
  std::int64_t heads, kv_heads;
  int members;  ///< ranks that exchange keys
  std::int64_t places;

  OfHeads(const AttentionSizes& sizes, int degree)
      : heads(sizes.heads), kv_heads(sizes.kv_heads), members(sizes.ranks / degree), places(0) {
    places = divide_up<std::int64_t>(sizes.tokens, members);
    if (degree == 1) return;
    const HeadLists queries = query_heads_of(sizes.heads, degree);
    heads = most_heads(queries);
    kv_heads = most_heads(key_heads_of(
        queries,
        std::max<std::int64_t>(1, sizes.heads / std::max<std::int64_t>(1, sizes.kv_heads))));
  }
  std::int64_t key_width(const AttentionSizes& sizes) const {
    return sizes.rows * kv_heads * (sizes.dims + sizes.dims_v);
  }
  std::int64_t own_keys(const AttentionSizes& sizes) const { return places * key_width(sizes); }
  /// Of other members, that are seen.
  std::int64_t seen_keys(const AttentionSizes& sizes) const {
    const std::int64_t all = (sizes.tokens - places) * key_width(sizes);
    return all - static_cast<std::int64_t>(
                     std::floor(static_cast<double>(all) * (1.0 - sizes.seen_share)));
  }
};

class ExchangeList {
 public:
  ExchangeList(const AttentionSizes& sizes, const ContextParallelPlan& plan)
      : sizes_(sizes),
        rotate_(plan.rotate),
        degree_(degree_of(plan, sizes.ranks)),
        of_heads_(sizes, degree_) {}

  std::vector<AttentionExchange> run() {
    const std::int64_t others = degree_ - 1;
    const std::int64_t key_heads = others * of_heads_.kv_heads;
    heads(false, "queries", others * of_heads_.heads * sizes_.dims, sizes_.element_bytes);
    heads(false, "keys", key_heads * sizes_.dims, sizes_.element_bytes);
    heads(false, "values", key_heads * sizes_.dims_v, sizes_.element_bytes);
    keys(false);
    const std::int64_t foreign_heads = sizes_.heads - of_heads_.heads;
    heads(false, "results", foreign_heads * sizes_.dims_v, sizes_.element_bytes);
    heads(false, "logsumexp", foreign_heads, kFloat);
    heads(true, "gradients of results", others * of_heads_.heads * sizes_.dims_v,
          sizes_.element_bytes);
    keys(true);
    const char* key_gradients = "gradients of keys and values";
    if (rotate_ == Rotate::kAllGather || rotate_ == Rotate::kAllToAll)
      add(round_the_ring(true, key_gradients, of_heads_.members, kFloat));
    else
      add(of_seen_keys(true, key_gradients, kFloat));
    heads(true, "gradients of queries", foreign_heads * sizes_.dims, kFloat);
    heads(true, "gradients of keys", key_heads * sizes_.dims, kFloat);
    heads(true, "gradients of values", key_heads * sizes_.dims_v, kFloat);
    return std::move(list_);
  }

 private:
  void add(const AttentionExchange& exchange) {
    if (exchange.size > 1 && exchange.calls > 0 && exchange.elements > 0) list_.push_back(exchange);
  }
  /// All of a member's keys, from one to the next.
  AttentionExchange round_the_ring(bool backward, const char* what, std::int64_t calls,
                                   std::int64_t element_bytes) const {
    return {
        Kind::kAllToAll, backward,          what, calls, of_heads_.own_keys(sizes_), element_bytes,
        degree_,         of_heads_.members, true};
  }
  AttentionExchange of_seen_keys(bool backward, const char* what,
                                 std::int64_t element_bytes) const {
    return {.kind = Kind::kAllToAll,
            .backward = backward,
            .what = what,
            .elements = of_heads_.seen_keys(sizes_),
            .element_bytes = element_bytes,
            .stride = degree_,
            .size = of_heads_.members,
            .in_place = true};
  }

  void keys(bool backward) {
    const char* what = "keys and values";
    const std::int64_t others = of_heads_.members - 1;
    if (rotate_ == Rotate::kAllGather)
      return add({.kind = Kind::kAllGather,
                  .backward = backward,
                  .what = what,
                  .elements = others * of_heads_.own_keys(sizes_),
                  .element_bytes = sizes_.element_bytes,
                  .stride = degree_,
                  .size = of_heads_.members,
                  .in_place = of_heads_.members <= kMostGatheredInPlace});
    if (rotate_ == Rotate::kAllToAll)
      return add(round_the_ring(backward, what, others, sizes_.element_bytes));
    add(of_seen_keys(backward, what, sizes_.element_bytes));
  }

  /// Between places and heads: `width` elements of every place of this rank that travel. They are
  /// packed and unpacked, and so is the part that stays.
  void heads(bool backward, const char* what, std::int64_t width, std::int64_t element_bytes) {
    if (degree_ == 1) return;
    const std::int64_t places = divide_up<std::int64_t>(sizes_.tokens, sizes_.ranks);
    add({Kind::kAllToAll, backward, what, 1, sizes_.rows * places * width, element_bytes, 1,
         degree_, false, true, 2.0 * degree_ / (degree_ - 1)});
  }

  const AttentionSizes& sizes_;
  Rotate rotate_;
  int degree_;
  OfHeads of_heads_;
  std::vector<AttentionExchange> list_;
};

}  // namespace

std::vector<AttentionExchange> attention_exchanges(const AttentionSizes& sizes,
                                                   const ContextParallelPlan& plan) {
  if (sizes.ranks == 1) return {};
  return ExchangeList(sizes, plan).run();
}

std::int64_t attention_message_bytes(const AttentionSizes& sizes, const ContextParallelPlan& plan) {
  if (sizes.ranks == 1) return 0;
  const int degree = degree_of(plan, sizes.ranks);
  const OfHeads of_heads(sizes, degree);
  const std::int64_t own = of_heads.own_keys(sizes);
  switch (plan.rotate) {
    // A sum of gradients is added to and another is on its way.
    case Rotate::kAllGather: return 2 * own * kFloat;
    case Rotate::kAllToAll: return 2 * own * (sizes.element_bytes + kFloat);
    default: break;
  }
  const std::int64_t pulled = of_heads.members > 1 ? of_heads.seen_keys(sizes) * kFloat : 0;
  if (degree == 1) return pulled;
  // The float32 gradient of the queries or of the keys, as it is sent and as it comes.
  const std::int64_t widest =
      std::max(of_heads.heads * sizes.dims, of_heads.kv_heads * std::max(sizes.dims, sizes.dims_v));
  return std::max(pulled, 2 * sizes.rows * of_heads.places * widest * kFloat);
}

}  // namespace meshloom::planner
