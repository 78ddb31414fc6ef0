// SPDX-License-Identifier: Apache-2.0
// Gradients in bfloat16: one kernel keeps a tile of keys and goes over queries, one keeps queries
// and goes over keys. A warp's rows are those of the tile that is kept, so scores stand transposed
// in the first one, and no two blocks add to one element.
#include "kernels/cuda/attention/flash_bfloat16.h"

namespace meshloom::kernels::cuda {
namespace {

// What a gradient needs of a query.
struct QueryFacts {
  Mark mark;
  float lse, delta;
};

__device__ __forceinline__ QueryFacts query_facts(const FlashBackward& call, std::int64_t batch,
                                                  std::int64_t head, std::int64_t query) {
  return {query_mark(call.rules, batch, query),
          load_number<float>(call.lse, number_offset(call.lse, batch, head, query)),
          load_number<float>(call.delta, number_offset(call.delta, batch, head, query))};
}

/// A query that is not there sees nothing.
__device__ __forceinline__ QueryFacts no_query() {
  return {{0, 0}, -std::numeric_limits<float>::infinity(), 0.0f};
}

// From a product of q and k and one of grad_o and v: `p` becomes the dropped probability, `ds` the
// gradient of the score.
__device__ __forceinline__ void gradient(const FlashBackward& call, const HeadRules<float>& rules,
                                         float& p, float& ds, bool partly, bool kept,
                                         std::int64_t query, const QueryFacts& facts,
                                         std::int64_t key, const Mark& key_mark) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  float score = p * call.scale;
  if (facts.lse == kNone || (partly && !rules.sees(facts.mark, key_mark))) {
    p = ds = 0.0f;
    return;
  }
  if (rules.adds()) score += rules.added(query, facts.mark, key, key_mark);
  const float whole = __expf(score - facts.lse);
  const float keep = rules.drops() ? (kept ? rules.kept_factor() : 0.0f) : 1.0f;
  p = whole * keep;
  ds = whole == 0.0f ? 0.0f : whole * (keep * ds - facts.delta);
}

// Rows of the other side that come at a time: what fits beside the sums in registers, and below
// 99 KiB.
template <int kMost>
inline constexpr int kComingQueries = kMost <= 64 ? 32 : 16;
template <int kMost>
inline constexpr int kComingKeys = kMost <= 128 ? 32 : 16;
// Columns of the keys' and values' gradients that a block has.
template <int kMost>
inline constexpr int kKeyColumns = kMost <= 128 ? kMost : 128;
template <int kMost, int kComing>
inline constexpr std::size_t kBackwardBytes = sizeof(__nv_bfloat16) * Bfloat16Tiles<kMost>::kStride
                                              * 2 * (Bfloat16Tiles<kMost>::kRows + kComing);

template <int kMost>
class KeyGradients {
 public:
  using S = Bfloat16Tiles<kMost>;
  static constexpr int kQueries = kComingQueries<kMost>;
  static constexpr int kTiles = kQueries / 8;
  static constexpr int kParts = kKeyColumns<kMost> / 8;

  __device__ KeyGradients(const FlashBackward& call, __nv_bfloat16* shared, QueryFacts* facts,
                          Mark* key_marks)
      : call_(call),
        k_(shared),
        v_(k_ + S::kRows * S::kStride),
        q_(v_ + S::kRows * S::kStride),
        grad_o_(q_ + kQueries * S::kStride),
        facts_(facts),
        key_marks_(key_marks) {
    const std::int64_t tiles = (call.sizes.keys + S::kRows - 1) / S::kRows;
    keys_ = tile_rows(static_cast<std::int64_t>(blockIdx.x) % tiles, S::kRows, call.sizes.keys);
    kv_head_ =
        static_cast<int>(static_cast<std::int64_t>(blockIdx.x) / tiles % call.sizes.kv_heads);
    batch_ = static_cast<int>(static_cast<std::int64_t>(blockIdx.x) / tiles / call.sizes.kv_heads);
  }

  __device__ __forceinline__ void run() {
    S::template load<S::kRows>(k_, call_.k, batch_, kv_head_, keys_);
    S::template load<S::kRows>(v_, call_.v, batch_, kv_head_, keys_);
    load_key_marks<S::kRows>(key_marks_, call_.rules, batch_, keys_);
    const FlashSizes& sizes = call_.sizes;
    // Counts of 32 bits: registers are short here. Tiles of queries have a grid of their own.
    const int group = static_cast<int>(sizes.heads / sizes.kv_heads);
    const int tiles = static_cast<int>((sizes.queries + kQueries - 1) / kQueries);
    const int first_head = kv_head_ * group;
    for (int head = first_head; head < first_head + group; ++head)
      for (int tile = 0; tile < tiles; ++tile) {
        const TileRows queries = tile_rows(tile, kQueries, sizes.queries);
        const Seen seen = tile_seen(sizes, call_.rules, batch_, queries, keys_);
        if (seen != Seen::kNone) add_queries(head, queries, seen == Seen::kPartly);
      }
    end_copy_group();  // of the keys, where no query sees them
    wait_for_copies<0>();
    const float scales[2] = {call_.scale, call_.scale}, ones[2] = {1.0f, 1.0f};
    const float sums = call_.accumulate ? 1.0f : 0.0f, before[2] = {sums, sums};
    S::write(call_.dk, k_, batch_, kv_head_, keys_, dk_, scales, before, first_column());
    S::write(call_.dv, k_, batch_, kv_head_, keys_, dv_, ones, before, first_column());
  }

 private:
  // Asked again rather than kept in a register.
  static __device__ __forceinline__ int first_column() {
    return kKeyColumns<kMost> == kMost ? 0 : static_cast<int>(blockIdx.y) * kKeyColumns<kMost>;
  }

  __device__ __forceinline__ void add_queries(std::int64_t head, const TileRows& queries,
                                              bool partly) {
    __syncthreads();  // the tile before may still be read
    S::template load<kQueries>(q_, call_.q, batch_, head, queries);
    S::template load<kQueries>(grad_o_, call_.grad_o, batch_, head, queries);
    end_copy_group();
    const int i = static_cast<int>(threadIdx.x);
    if (i < kQueries)
      facts_[i] =
          i < queries.count ? query_facts(call_, batch_, head, queries.first + i) : no_query();
    wait_for_copies<0>();
    __syncthreads();
    float p[kTiles][4], ds[kTiles][4];
    S::products(p, k_ + S::warp_row() * S::kStride, q_, static_cast<int>(call_.q.dims));
    S::products(ds, v_ + S::warp_row() * S::kStride, grad_o_, static_cast<int>(call_.v.dims));
    const HeadRules<float> rules(call_.rules, batch_, head);
    const auto query_of = [&](int e) { return e / 4 * 8 + S::lane_column() + e % 2; };
    const unsigned kept = kept_bits<kTiles * 4>(
        rules, [&](int e) { return facts_[query_of(e)].mark; },
        [&](int e) { return key_marks_[S::row(e / 2 % 2)]; });
    // A key after the other: what is known of both is more than there are registers for.
#pragma unroll
    for (int side = 0; side < 2; ++side)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int e = 2 * side; e < 2 * side + 2; ++e) {
          const int query = query_of(n * 4 + e);
          gradient(call_, rules, p[n][e], ds[n][e], partly, (kept >> (n * 4 + e) & 1) != 0,
                   queries.first + query, facts_[query], key_of(side), key_marks_[S::row(side)]);
        }
    S::add_products(dv_, p, grad_o_ + first_column(),
                    static_cast<int>(call_.v.dims) - first_column());
    S::add_products(dk_, ds, q_ + first_column(), static_cast<int>(call_.q.dims) - first_column());
  }

  // Rows behind the last key are not written, and their scores are those of zeros; biases have
  // none.
  __device__ __forceinline__ std::int64_t key_of(int i) const {
    return keys_.first + (S::row(i) < keys_.count ? S::row(i) : keys_.count - 1);
  }

  const FlashBackward& call_;
  __nv_bfloat16 *k_, *v_, *q_, *grad_o_;
  QueryFacts* facts_;
  Mark* key_marks_;
  TileRows keys_;
  int kv_head_ = 0, batch_ = 0;
  float dk_[kParts][4] = {}, dv_[kParts][4] = {};
};

template <int kMost>
class QueryGradients {
 public:
  using S = Bfloat16Tiles<kMost>;
  static constexpr int kKeys = kComingKeys<kMost>;
  static constexpr int kTiles = kKeys / 8;
  static constexpr int kParts = kMost / 8;

  __device__ QueryGradients(const FlashBackward& call, __nv_bfloat16* shared, QueryFacts* facts,
                            Mark* key_marks)
      : call_(call),
        q_(shared),
        grad_o_(q_ + S::kRows * S::kStride),
        k_(grad_o_ + S::kRows * S::kStride),
        v_(k_ + kKeys * S::kStride),
        facts_(facts),
        key_marks_(key_marks),
        tiles_((call.sizes.queries + S::kRows - 1) / S::kRows),
        head_(static_cast<std::int64_t>(blockIdx.x) / tiles_ % call.sizes.heads),
        batch_(static_cast<std::int64_t>(blockIdx.x) / tiles_ / call.sizes.heads),
        kv_head_(head_ / (call.sizes.heads / call.sizes.kv_heads)),
        // Later queries see more keys where a mask is causal: they begin first.
        queries_(tile_rows(tiles_ - 1 - static_cast<std::int64_t>(blockIdx.x) % tiles_, S::kRows,
                           call.sizes.queries)),
        rules_(call.rules, batch_, head_) {}

  __device__ __forceinline__ void run() {
    S::template load<S::kRows>(q_, call_.q, batch_, head_, queries_);
    S::template load<S::kRows>(grad_o_, call_.grad_o, batch_, head_, queries_);
    const int i = static_cast<int>(threadIdx.x);
    if (i < S::kRows)
      facts_[i] =
          i < queries_.count ? query_facts(call_, batch_, head_, queries_.first + i) : no_query();
    const std::int64_t tiles = (call_.sizes.keys + kKeys - 1) / kKeys;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const TileRows keys = tile_rows(tile, kKeys, call_.sizes.keys);
      const Seen seen = tile_seen(call_.sizes, call_.rules, batch_, queries_, keys);
      if (seen != Seen::kNone) add_keys(keys, seen == Seen::kPartly);
    }
    end_copy_group();  // of the queries, where they see nothing
    wait_for_copies<0>();
    const float scales[2] = {call_.scale, call_.scale};
    const float before = call_.accumulate ? 1.0f : 0.0f;
    S::write(call_.dq, q_, batch_, head_, queries_, dq_, scales, {before, before}, 0);
  }

 private:
  __device__ __forceinline__ void add_keys(const TileRows& keys, bool partly) {
    __syncthreads();  // the tile before may still be read
    S::template load<kKeys>(k_, call_.k, batch_, kv_head_, keys);
    S::template load<kKeys>(v_, call_.v, batch_, kv_head_, keys);
    end_copy_group();
    load_key_marks<kKeys>(key_marks_, call_.rules, batch_, keys);
    wait_for_copies<0>();
    __syncthreads();
    float p[kTiles][4], ds[kTiles][4];
    S::products(p, q_ + S::warp_row() * S::kStride, k_, static_cast<int>(call_.q.dims));
    S::products(ds, grad_o_ + S::warp_row() * S::kStride, v_, static_cast<int>(call_.v.dims));
    const auto key_of = [&](int e) { return e / 4 * 8 + S::lane_column() + e % 2; };
    const unsigned kept = kept_bits<kTiles * 4>(
        rules_, [&](int e) { return facts_[S::row(e / 2 % 2)].mark; },
        [&](int e) { return key_marks_[key_of(e)]; });
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int j = key_of(n * 4 + e);
        if (j >= keys.count)
          ds[n][e] = 0.0f;
        else
          gradient(call_, rules_, p[n][e], ds[n][e], partly, (kept >> (n * 4 + e) & 1) != 0,
                   queries_.first + S::row(e / 2), facts_[S::row(e / 2)], keys.first + j,
                   key_marks_[j]);
      }
    S::add_products(dq_, ds, k_, static_cast<int>(call_.q.dims));
  }

  const FlashBackward& call_;
  __nv_bfloat16 *q_, *grad_o_, *k_, *v_;
  QueryFacts* facts_;
  Mark* key_marks_;
  std::int64_t tiles_, head_, batch_, kv_head_;
  TileRows queries_;
  HeadRules<float> rules_;
  float dq_[kParts][4] = {};
};

template <int kMost>
__global__ void __launch_bounds__(Bfloat16Tiles<kMost>::kThreads, 1)
    bfloat16_key_gradients(const __grid_constant__ FlashBackward call) {
  MESHLOOM_DYNAMIC_SHARED(shared, __nv_bfloat16);
  MESHLOOM_SHARED(facts, QueryFacts[kComingQueries<kMost>]);
  MESHLOOM_SHARED(key_marks, Mark[Bfloat16Tiles<kMost>::kRows]);
  KeyGradients<kMost>(call, shared, facts, key_marks).run();
}

template <int kMost>
__global__ void __launch_bounds__(Bfloat16Tiles<kMost>::kThreads, 1)
    bfloat16_query_gradients(const __grid_constant__ FlashBackward call) {
  MESHLOOM_DYNAMIC_SHARED(shared, __nv_bfloat16);
  MESHLOOM_SHARED(facts, QueryFacts[Bfloat16Tiles<kMost>::kRows]);
  MESHLOOM_SHARED(key_marks, Mark[kComingKeys<kMost>]);
  QueryGradients<kMost>(call, shared, facts, key_marks).run();
}

}  // namespace

void launch_bfloat16_backward(const FlashBackward& call, cudaStream_t stream) {
  for_head_dims(larger_dims(call.q, call.v), [&](auto most) {
    constexpr int kMost = decltype(most)::value;
    using S = Bfloat16Tiles<kMost>;
    const FlashSizes& sizes = call.sizes;
    const auto blocks = [&](std::int64_t rows, std::int64_t heads) {
      return grid_for(divide_up<std::int64_t>(rows, S::kRows) * heads * sizes.batch, 1).x;
    };
    launch(bfloat16_key_gradients<kMost>,
           dim3(blocks(sizes.keys, sizes.kv_heads), kMost / kKeyColumns<kMost>), dim3(S::kThreads),
           kBackwardBytes<kMost, kComingQueries<kMost>>, stream, call);
    launch(bfloat16_query_gradients<kMost>, dim3(blocks(sizes.queries, sizes.heads)),
           dim3(S::kThreads), kBackwardBytes<kMost, kComingKeys<kMost>>, stream, call);
  });
}

}  // namespace meshloom::kernels::cuda
