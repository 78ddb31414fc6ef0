// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/flash_any.h"

namespace meshloom::kernels::cuda {
namespace {

// A block has a tile of queries of one head, and goes over the keys that they see.
template <class S>
class AnyForward {
 public:
  using C = typename S::Value;
  static constexpr C kNone = -std::numeric_limits<C>::infinity();
  static constexpr std::size_t kBytes = 3 * S::kRowBytes + S::kScoreBytes;

  __device__ AnyForward(const FlashForward& call, C* shared, Mark* query_marks, Mark* key_marks)
      : call_(call),
        q_(shared),
        k_(q_ + S::kTile * S::kStride),
        v_(k_ + S::kTile * S::kStride),
        p_(v_ + S::kTile * S::kStride),
        query_marks_(query_marks),
        key_marks_(key_marks),
        tiles_((call.sizes.queries + S::kTile - 1) / S::kTile),
        head_(static_cast<std::int64_t>(blockIdx.x) / tiles_ % call.sizes.heads),
        batch_(static_cast<std::int64_t>(blockIdx.x) / tiles_ / call.sizes.heads),
        queries_(tile_rows(static_cast<std::int64_t>(blockIdx.x) % tiles_, S::kTile,
                           call.sizes.queries)),
        rules_(call.rules, batch_, head_) {}

  __device__ __forceinline__ void run() {
    S::load(q_, call_.q, batch_, head_, queries_);
    load_query_marks<S::kTile>(query_marks_, call_.rules, batch_, queries_);
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) top_[r] = kNone;
    const std::int64_t key_tiles = (call_.sizes.keys + S::kTile - 1) / S::kTile;
    for (std::int64_t tile = 0; tile < key_tiles; ++tile) {
      const TileRows keys = tile_rows(tile, S::kTile, call_.sizes.keys);
      const Seen seen = tile_seen(call_.sizes, call_.rules, batch_, queries_, keys);
      if (seen != Seen::kNone) add_keys(keys, seen);
    }
    finish();
  }

 private:
  __device__ __forceinline__ void add_keys(const TileRows& keys, Seen seen) {
    const std::int64_t kv_head = head_ / (call_.sizes.heads / call_.sizes.kv_heads);
    __syncthreads();  // the tile before may still be read
    S::load(k_, call_.k, batch_, kv_head, keys);
    S::load(v_, call_.v, batch_, kv_head, keys);
    load_key_marks<S::kTile>(key_marks_, call_.rules, batch_, keys);
    __syncthreads();
    typename S::Scores scores;
    S::products(scores, q_, k_, S::padded(call_.q.dims));
    const unsigned kept = kept_bits<S::kRows * S::kColumns>(
        rules_, [&](int e) { return query_marks_[S::first_row() + e / S::kColumns]; },
        [&](int e) { return key_marks_[S::column(e % S::kColumns) % S::kTile]; });
#pragma unroll
    for (int r = 0; r < S::kRows; ++r)
      softmax_row(scores.at[r], r, keys, seen, kept >> r * S::kColumns);
    S::store_scores(p_, scores);
    __syncwarp();  // a row's probabilities are read by the half of a warp that wrote them
    S::add_products(sums_, p_, S::kScoreStride, 1, v_, keys.count, S::padded(call_.v.dims));
  }

  // Scores become probabilities over exp(top), and what is there is scaled to the new top.
  __device__ __forceinline__ void softmax_row(C (&scores)[S::kColumns], int r, const TileRows& keys,
                                              Seen seen, unsigned kept) {
    const std::int64_t query = queries_.first + S::first_row() + r;
    const bool known = S::first_row() + r < queries_.count;
    const Mark mark = query_marks_[S::first_row() + r];
    C top = top_[r];
#pragma unroll
    for (int c = 0; c < S::kColumns; ++c) {
      const int j = S::column(c);
      const bool reads = known && j < keys.count;
      if (!reads || (seen == Seen::kPartly && !rules_.sees(mark, key_marks_[j]))) {
        scores[c] = kNone;
        continue;
      }
      scores[c] *= static_cast<C>(call_.scale);
      if (rules_.adds()) scores[c] += rules_.added(query, mark, keys.first + j, key_marks_[j]);
      top = MaxOf{}(top, scores[c]);
    }
    top = reduce_across(top, MaxOf{});
    const C base = top == kNone ? C(0) : top;
    const C factor = exp(top_[r] - base);
    top_[r] = top;
    sum_[r] *= factor;
#pragma unroll
    for (int s = 0; s < S::kSlices; ++s)
#pragma unroll
      for (int j = 0; j < S::kStep; ++j) sums_.at[r][s][j] *= factor;
#pragma unroll
    for (int c = 0; c < S::kColumns; ++c) {
      const C p = scores[c] == kNone ? C(0) : exp(scores[c] - base);
      sum_[r] += p;
      scores[c] = p;
      if (rules_.drops()) scores[c] = (kept >> c & 1) != 0 ? p * rules_.kept_factor() : C(0);
    }
  }

  __device__ __forceinline__ void finish() {
    C factors[S::kRows];
    __syncthreads();  // tiles may still be read
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      SoftmaxEnd<C> end(top_[r], reduce_across(sum_[r], SumOf{}));
      const int row = S::first_row() + r;
      const bool known = row < queries_.count;
      const std::int64_t at =
          known ? number_offset(call_.lse, batch_, head_, queries_.first + row) : 0;
      if (call_.carry) {
        // One thread of the row reads what another call wrote and this one overwrites.
        C lse = kNone;
        if (known && S::across() == 0) lse = load_number<C>(call_.lse, at);
        end.carry(reduce_across(lse, MaxOf{}));
      }
      factors[r] = end.factor;
      if (S::across() == 0) p_[row] = end.before;
      if (known && S::across() == 0) store_number(call_.lse, at, end.lse);
    }
    S::store_sums(k_, sums_, factors);
    __syncwarp();  // a row is written by the half of a warp that stored it
    const HeadStrides& strides = call_.o.strides;
    const std::int64_t base =
        batch_ * strides.batch + head_ * strides.head + queries_.first * strides.row;
    S::for_stored(k_, queries_.count, call_.v.dims, [&](int row, int d, C o) {
      const std::int64_t at = base + row * strides.row + d * strides.last;
      const C before = call_.carry ? p_[row] : C(0);
      if (before != C(0)) o += before * load_any<C>(call_.o.dtype, call_.o.data, at);
      store_any(call_.o.dtype, call_.o.data, at, o);
    });
  }

  const FlashForward& call_;
  C *q_, *k_, *v_, *p_;
  Mark *query_marks_, *key_marks_;
  std::int64_t tiles_, head_, batch_;
  TileRows queries_;
  HeadRules<C> rules_;
  C top_[S::kRows], sum_[S::kRows] = {};
  typename S::Sums sums_ = {};
};

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    any_forward(const __grid_constant__ FlashForward call) {
  MESHLOOM_DYNAMIC_SHARED(shared, typename S::Value);
  MESHLOOM_SHARED(query_marks, Mark[S::kTile]);
  MESHLOOM_SHARED(key_marks, Mark[S::kTile]);
  AnyForward<S>(call, shared, query_marks, key_marks).run();
}

}  // namespace

void launch_any_forward(const FlashForward& call, cudaStream_t stream) {
  for_any_tiles(call.q.dtype, larger_dims(call.q, call.v), [&](auto tiles) {
    using S = decltype(tiles);
    const std::int64_t blocks =
        divide_up<std::int64_t>(call.sizes.queries, S::kTile) * call.sizes.heads * call.sizes.batch;
    launch(any_forward<S>, grid_for(blocks, 1), dim3(S::kThreads), AnyForward<S>::kBytes, stream,
           call);
  });
}

}  // namespace meshloom::kernels::cuda
