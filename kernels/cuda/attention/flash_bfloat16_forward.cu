// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/flash_bfloat16.h"

namespace meshloom::kernels::cuda {
namespace {

// A block has 64 queries of one head and goes over the keys that they see. Values are on their way
// while scores are computed, the next keys while probabilities meet values.
template <int kMost>
class Bfloat16Forward {
 public:
  using S = Bfloat16Tiles<kMost>;
  static constexpr float kNone = -std::numeric_limits<float>::infinity();
  static constexpr int kKeys = kMost <= 128 ? 64 : 32;
  static constexpr int kTiles = kKeys / 8;
  static constexpr int kParts = kMost / 8;
  static constexpr std::size_t kBytes = sizeof(__nv_bfloat16) * S::kStride * (S::kRows + 2 * kKeys);

  __device__ Bfloat16Forward(const FlashForward& call, __nv_bfloat16* shared, Mark* query_marks,
                             Mark* key_marks)
      : call_(call),
        q_(shared),
        k_(q_ + S::kRows * S::kStride),
        v_(k_ + kKeys * S::kStride),
        query_marks_(query_marks),
        key_marks_(key_marks),
        query_tiles_((call.sizes.queries + S::kRows - 1) / S::kRows),
        key_tiles_((call.sizes.keys + kKeys - 1) / kKeys),
        head_(static_cast<std::int64_t>(blockIdx.x) / query_tiles_ % call.sizes.heads),
        batch_(static_cast<std::int64_t>(blockIdx.x) / query_tiles_ / call.sizes.heads),
        kv_head_(head_ / (call.sizes.heads / call.sizes.kv_heads)),
        // Later queries see more keys where a mask is causal: they begin first.
        queries_(tile_rows(query_tiles_ - 1 - static_cast<std::int64_t>(blockIdx.x) % query_tiles_,
                           S::kRows, call.sizes.queries)),
        rules_(call.rules, batch_, head_) {}

  __device__ __forceinline__ void run() {
    S::template load<S::kRows>(q_, call_.q, batch_, head_, queries_);
    load_query_marks<S::kRows>(query_marks_, call_.rules, batch_, queries_);
    std::int64_t tile = next_seen(0);
    if (tile < key_tiles_) S::template load<kKeys>(k_, call_.k, batch_, kv_head_, keys_of(tile));
    end_copy_group();
    while (tile < key_tiles_) {
      const TileRows keys = keys_of(tile);
      const Seen seen = seen_;
      wait_for_copies<0>();
      __syncthreads();  // the keys have come, the values before them have been read
      S::template load<kKeys>(v_, call_.v, batch_, kv_head_, keys);
      end_copy_group();
      load_key_marks<kKeys>(key_marks_, call_.rules, batch_, keys);
      float scores[kTiles][4];
      S::products(scores, q_ + S::warp_row() * S::kStride, k_, static_cast<int>(call_.q.dims));
      wait_for_copies<0>();
      __syncthreads();  // the values have come, the keys have been read
      tile = next_seen(tile + 1);
      if (tile < key_tiles_) S::template load<kKeys>(k_, call_.k, batch_, kv_head_, keys_of(tile));
      end_copy_group();
      softmax(scores, keys, seen);
      S::add_products(sums_, scores, v_, static_cast<int>(call_.v.dims));
    }
    wait_for_copies<0>();
    finish();
  }

 private:
  __device__ __forceinline__ TileRows keys_of(std::int64_t tile) const {
    return tile_rows(tile, kKeys, call_.sizes.keys);
  }

  // The first tile from `tile` on that is seen, and how much of it in seen_.
  __device__ __forceinline__ std::int64_t next_seen(std::int64_t tile) {
    for (; tile < key_tiles_; ++tile) {
      seen_ = tile_seen(call_.sizes, call_.rules, batch_, queries_, keys_of(tile));
      if (seen_ != Seen::kNone) break;
    }
    return tile;
  }

  // Scores become dropped probabilities over exp(top), and what is there is scaled to the new top.
  __device__ __forceinline__ void softmax(float (&scores)[kTiles][4], const TileRows& keys,
                                          Seen seen) {
    const unsigned kept = kept_bits<kTiles * 4>(
        rules_, [&](int e) { return query_marks_[S::row(e / 2 % 2)]; },
        [&](int e) { return key_marks_[e / 4 * 8 + S::lane_column() + e % 2]; });
    float top[2] = {top_[0], top_[1]};
    const bool whole = seen == Seen::kAll && keys.count == kKeys;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = n * 8 + S::lane_column() + i % 2;
        float& score = scores[n][i];
        score *= call_.scale;
        if (!whole &&
            (j >= keys.count || S::row(i / 2) >= queries_.count ||
             (seen == Seen::kPartly && !rules_.sees(query_marks_[S::row(i / 2)], key_marks_[j])))) {
          score = kNone;
          continue;
        }
        if (rules_.adds() && S::row(i / 2) < queries_.count)
          score += rules_.added(queries_.first + S::row(i / 2), query_marks_[S::row(i / 2)],
                                keys.first + j, key_marks_[j]);
        top[i / 2] = MaxOf{}(top[i / 2], score);
      }
    float base[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      top[i] = MaxOf{}(top[i], __shfl_xor_sync(kWholeWarp, top[i], 1));
      top[i] = MaxOf{}(top[i], __shfl_xor_sync(kWholeWarp, top[i], 2));
      base[i] = top[i] == kNone ? 0.0f : top[i];
      const float factor = __expf(top_[i] - base[i]);
      top_[i] = top[i];
      sum_[i] *= factor;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        sums_[part][2 * i] *= factor;
        sums_[part][2 * i + 1] *= factor;
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float p = __expf(scores[n][i] - base[i / 2]);
        sum_[i / 2] += p;
        scores[n][i] = p;
        if (rules_.drops())
          scores[n][i] = (kept >> (n * 4 + i) & 1) != 0 ? p * rules_.kept_factor() : 0.0f;
      }
  }

  __device__ __forceinline__ void finish() {
    float factors[2], before[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = sum_[i] + __shfl_xor_sync(kWholeWarp, sum_[i], 1);
      sum += __shfl_xor_sync(kWholeWarp, sum, 2);
      SoftmaxEnd<float> end(top_[i], sum);
      const bool known = S::row(i) < queries_.count;
      const bool first = known && S::lane_column() == 0;
      const std::int64_t at =
          known ? number_offset(call_.lse, batch_, head_, queries_.first + S::row(i)) : 0;
      if (call_.carry) {
        // One lane of the row reads what another call wrote and it overwrites.
        float lse = first ? load_number<float>(call_.lse, at) : kNone;
        lse = __shfl_sync(kWholeWarp, lse, 0, 4);
        end.carry(lse);
      }
      factors[i] = end.factor;
      before[i] = end.before;
      if (first) store_number(call_.lse, at, end.lse);
    }
    static_assert(kBytes >= sizeof(float) * S::kRows * S::kStride);
    S::write(call_.o, q_, batch_, head_, queries_, sums_, factors, before, 0);
  }

  const FlashForward& call_;
  __nv_bfloat16 *q_, *k_, *v_;
  Mark *query_marks_, *key_marks_;
  std::int64_t query_tiles_, key_tiles_, head_, batch_, kv_head_;
  TileRows queries_;
  HeadRules<float> rules_;
  Seen seen_ = Seen::kNone;
  float top_[2] = {kNone, kNone}, sum_[2] = {};
  float sums_[kParts][4] = {};
};

template <int kMost>
__global__ void __launch_bounds__(Bfloat16Tiles<kMost>::kThreads, 1)
    bfloat16_forward(const __grid_constant__ FlashForward call) {
  MESHLOOM_DYNAMIC_SHARED(shared, __nv_bfloat16);
  MESHLOOM_SHARED(query_marks, Mark[Bfloat16Tiles<kMost>::kRows]);
  MESHLOOM_SHARED(key_marks, Mark[Bfloat16Forward<kMost>::kKeys]);
  Bfloat16Forward<kMost>(call, shared, query_marks, key_marks).run();
}

}  // namespace

void launch_bfloat16_forward(const FlashForward& call, cudaStream_t stream) {
  for_head_dims(larger_dims(call.q, call.v), [&](auto most) {
    constexpr int kMost = decltype(most)::value;
    using S = Bfloat16Tiles<kMost>;
    const std::int64_t blocks =
        divide_up<std::int64_t>(call.sizes.queries, S::kRows) * call.sizes.heads * call.sizes.batch;
    launch(bfloat16_forward<kMost>, grid_for(blocks, 1), dim3(S::kThreads),
           Bfloat16Forward<kMost>::kBytes, stream, call);
  });
}

}  // namespace meshloom::kernels::cuda
