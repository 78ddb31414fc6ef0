// SPDX-License-Identifier: Apache-2.0
// Gradients for every dtype: one kernel has the keys' and values' gradients and goes over queries,
// one has the queries' and goes over keys, one has a bias's and goes over all that it was broadcast
// to. Each makes the scores again, and no two blocks add to one element.
#include "kernels/cuda/attention/flash_any.h"

namespace meshloom::kernels::cuda {
namespace {

// A tile of queries and a tile of keys of one head in shared memory, and the gradients of their
// scores.
template <class S>
class AnyTilePair {
 public:
  using C = typename S::Value;
  static constexpr C kNone = -std::numeric_limits<C>::infinity();
  static constexpr std::size_t kRowElements = static_cast<std::size_t>(S::kTile) * S::kStride;
  static constexpr std::size_t kBytes = 4 * S::kRowBytes + 2 * S::kScoreBytes;

  /// What is known of a tile's queries and keys.
  struct Facts {
    Mark query_marks[S::kTile], key_marks[S::kTile];
    C lse[S::kTile], delta[S::kTile];
  };

  __device__ AnyTilePair(const FlashBackward& call, C* shared, Facts& facts)
      : q(shared),
        grad_o(q + kRowElements),
        k(grad_o + kRowElements),
        v(k + kRowElements),
        p(v + kRowElements),
        ds(p + S::kTile * S::kScoreStride),
        call_(call),
        facts_(facts) {}

  __device__ __forceinline__ void load_queries(std::int64_t batch, std::int64_t head,
                                               const TileRows& queries) {
    S::load(q, call_.q, batch, head, queries);
    S::load(grad_o, call_.grad_o, batch, head, queries);
    load_query_marks<S::kTile>(facts_.query_marks, call_.rules, batch, queries);
    const int row = static_cast<int>(threadIdx.x);
    if (row >= S::kTile) return;
    const bool known = row < queries.count;  // a query that is not there sees nothing
    const std::int64_t query = queries.first + row;
    facts_.lse[row] =
        known ? load_number<C>(call_.lse, number_offset(call_.lse, batch, head, query)) : kNone;
    facts_.delta[row] =
        known ? load_number<C>(call_.delta, number_offset(call_.delta, batch, head, query)) : C(0);
  }

  __device__ __forceinline__ void load_keys(std::int64_t batch, std::int64_t kv_head,
                                            const TileRows& keys) {
    S::load(k, call_.k, batch, kv_head, keys);
    S::load(v, call_.v, batch, kv_head, keys);
    load_key_marks<S::kTile>(facts_.key_marks, call_.rules, batch, keys);
  }

  /// Dropped probabilities and the gradients of the scores, zeros where nothing is seen.
  __device__ __forceinline__ void gradients(typename S::Scores& dropped, typename S::Scores& slopes,
                                            const HeadRules<C>& rules, const TileRows& queries,
                                            const TileRows& keys, Seen seen) {
    S::products(dropped, q, k, S::padded(call_.q.dims));
    S::products(slopes, grad_o, v, S::padded(call_.v.dims));
    const unsigned kept = kept_bits<S::kRows * S::kColumns>(
        rules, [&](int e) { return facts_.query_marks[S::first_row() + e / S::kColumns]; },
        [&](int e) { return facts_.key_marks[S::column(e % S::kColumns) % S::kTile]; });
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      const int row = S::first_row() + r;
      const Mark mark = facts_.query_marks[row];
      const C lse = facts_.lse[row], delta = facts_.delta[row];
#pragma unroll
      for (int c = 0; c < S::kColumns; ++c) {
        const int j = S::column(c);
        C& probability = dropped.at[r][c];
        C& slope = slopes.at[r][c];
        C score = kNone;
        if (j < keys.count && lse != kNone &&
            (seen == Seen::kAll || rules.sees(mark, facts_.key_marks[j]))) {
          score = probability * static_cast<C>(call_.scale);
          if (rules.adds())
            score += rules.added(queries.first + row, mark, keys.first + j, facts_.key_marks[j]);
        }
        const C whole = score == kNone ? C(0) : exp(score - lse);
        const C keep = rules.drops()
                           ? ((kept >> (r * S::kColumns + c) & 1) != 0 ? rules.kept_factor() : C(0))
                           : C(1);
        probability = whole * keep;
        slope = score == kNone ? C(0) : whole * (keep * slope - delta);
      }
    }
  }

  C *q, *grad_o, *k, *v;
  C *p, *ds;  ///< [queries, keys], S::kScoreStride apart

 private:
  const FlashBackward& call_;
  Facts& facts_;
};

#define MESHLOOM_TILE_PAIR(pair)                          \
  MESHLOOM_DYNAMIC_SHARED(shared, typename S::Value);     \
  MESHLOOM_SHARED(facts, typename AnyTilePair<S>::Facts); \
  AnyTilePair<S> pair(call, shared, facts)

// By way of `tile`, which is of the rows that the sums belong to.
template <class S>
__device__ __forceinline__ void write_sums(const HeadView& to, const typename S::Sums& sums,
                                           typename S::Value* tile, std::int64_t batch,
                                           std::int64_t head, const TileRows& rows,
                                           typename S::Value factor, bool accumulate) {
  using C = typename S::Value;
  C factors[S::kRows];
#pragma unroll
  for (int r = 0; r < S::kRows; ++r) factors[r] = factor;
  __syncthreads();  // the tile may still be read
  S::store_sums(tile, sums, factors);
  __syncwarp();  // a row is written by the half of a warp that stored it
  const std::int64_t base =
      batch * to.strides.batch + head * to.strides.head + rows.first * to.strides.row;
  S::for_stored(tile, rows.count, to.dims, [&](int row, int d, C sum) {
    const std::int64_t at = base + row * to.strides.row + d * to.strides.last;
    const C before = accumulate ? load_any<C>(to.dtype, to.data, at) : C(0);
    store_any(to.dtype, to.data, at, before + sum);
  });
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    any_key_gradients(const __grid_constant__ FlashBackward call) {
  using C = typename S::Value;
  MESHLOOM_TILE_PAIR(pair);
  const FlashSizes& sizes = call.sizes;
  const std::int64_t key_tiles = (sizes.keys + S::kTile - 1) / S::kTile;
  const std::int64_t query_tiles = (sizes.queries + S::kTile - 1) / S::kTile;
  const std::int64_t group = sizes.heads / sizes.kv_heads;
  const std::int64_t kv_head = static_cast<std::int64_t>(blockIdx.x) / key_tiles % sizes.kv_heads;
  const std::int64_t batch = static_cast<std::int64_t>(blockIdx.x) / key_tiles / sizes.kv_heads;
  const TileRows keys =
      tile_rows(static_cast<std::int64_t>(blockIdx.x) % key_tiles, S::kTile, sizes.keys);
  pair.load_keys(batch, kv_head, keys);
  typename S::Sums dk = {}, dv = {};
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const HeadRules<C> rules(call.rules, batch, head);
    for (std::int64_t tile = 0; tile < query_tiles; ++tile) {
      const TileRows queries = tile_rows(tile, S::kTile, sizes.queries);
      const Seen seen = tile_seen(sizes, call.rules, batch, queries, keys);
      if (seen == Seen::kNone) continue;
      __syncthreads();  // the tile before may still be read
      pair.load_queries(batch, head, queries);
      __syncthreads();
      typename S::Scores dropped, slopes;
      pair.gradients(dropped, slopes, rules, queries, keys, seen);
      S::store_scores(pair.p, dropped);
      S::store_scores(pair.ds, slopes);
      __syncthreads();
      S::add_products(dv, pair.p, 1, S::kScoreStride, pair.grad_o, queries.count,
                      S::padded(call.v.dims));
      S::add_products(dk, pair.ds, 1, S::kScoreStride, pair.q, queries.count,
                      S::padded(call.q.dims));
    }
  }
  write_sums<S>(call.dk, dk, pair.k, batch, kv_head, keys, static_cast<C>(call.scale),
                call.accumulate);
  write_sums<S>(call.dv, dv, pair.v, batch, kv_head, keys, C(1), call.accumulate);
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    any_query_gradients(const __grid_constant__ FlashBackward call) {
  using C = typename S::Value;
  MESHLOOM_TILE_PAIR(pair);
  const FlashSizes& sizes = call.sizes;
  const std::int64_t key_tiles = (sizes.keys + S::kTile - 1) / S::kTile;
  const std::int64_t query_tiles = (sizes.queries + S::kTile - 1) / S::kTile;
  const std::int64_t head = static_cast<std::int64_t>(blockIdx.x) / query_tiles % sizes.heads;
  const std::int64_t batch = static_cast<std::int64_t>(blockIdx.x) / query_tiles / sizes.heads;
  const TileRows queries =
      tile_rows(static_cast<std::int64_t>(blockIdx.x) % query_tiles, S::kTile, sizes.queries);
  const HeadRules<C> rules(call.rules, batch, head);
  pair.load_queries(batch, head, queries);
  typename S::Sums dq = {};
  for (std::int64_t tile = 0; tile < key_tiles; ++tile) {
    const TileRows keys = tile_rows(tile, S::kTile, sizes.keys);
    const Seen seen = tile_seen(sizes, call.rules, batch, queries, keys);
    if (seen == Seen::kNone) continue;
    __syncthreads();  // the tile before may still be read
    pair.load_keys(batch, head / (sizes.heads / sizes.kv_heads), keys);
    __syncthreads();
    typename S::Scores dropped, slopes;
    pair.gradients(dropped, slopes, rules, queries, keys, seen);
    S::store_scores(pair.ds, slopes);
    __syncwarp();  // a row's gradients are read by the half of a warp that wrote them
    S::add_products(dq, pair.ds, S::kScoreStride, 1, pair.k, keys.count, S::padded(call.q.dims));
  }
  write_sums<S>(call.dq, dq, pair.q, batch, head, queries, static_cast<C>(call.scale),
                call.accumulate);
}

// What an element of a bias's gradient is, and over what it sums: a dim of stride 0 is one element.
struct BiasTiles {
  std::int64_t batches, heads, query_tiles, key_tiles;
  bool all_queries, all_keys;

  __host__ __device__ BiasTiles(const FlashBackward& call, int tile)
      : batches(call.grad_bias_strides.batch == 0 ? 1 : call.sizes.batch),
        heads(call.grad_bias_strides.head == 0 ? 1 : call.sizes.heads),
        query_tiles((call.sizes.queries + tile - 1) / tile),
        key_tiles((call.sizes.keys + tile - 1) / tile),
        all_queries(call.grad_bias_strides.row == 0),
        all_keys(call.grad_bias_strides.last == 0) {
    // Each block goes over the tiles of a dim itself where the bias has one element for all.
    blocks = batches * heads * (all_queries ? 1 : query_tiles) * (all_keys ? 1 : key_tiles);
  }

  std::int64_t blocks;
};

template <class S>
class BiasGradient {
 public:
  using C = typename S::Value;

  __device__ BiasGradient(const FlashBackward& call, AnyTilePair<S>& pair)
      : call_(call), pair_(pair), tiles_(call, S::kTile) {
    std::int64_t rest = blockIdx.x;
    if (!tiles_.all_keys) {
      key_tile_ = rest % tiles_.key_tiles;
      rest /= tiles_.key_tiles;
    }
    if (!tiles_.all_queries) {
      query_tile_ = rest % tiles_.query_tiles;
      rest /= tiles_.query_tiles;
    }
    head_ = rest % tiles_.heads;
    batch_ = rest / tiles_.heads;
  }

  __device__ __forceinline__ void run() {
    const HeadStrides& strides = call_.grad_bias_strides;
    const FlashSizes& sizes = call_.sizes;
    for (std::int64_t b = batch_; b < (strides.batch == 0 ? sizes.batch : batch_ + 1); ++b)
      for (std::int64_t h = head_; h < (strides.head == 0 ? sizes.heads : head_ + 1); ++h)
        for (std::int64_t q = query_tile_;
             q < (tiles_.all_queries ? tiles_.query_tiles : query_tile_ + 1); ++q)
          for (std::int64_t k = key_tile_; k < (tiles_.all_keys ? tiles_.key_tiles : key_tile_ + 1);
               ++k)
            add_tile(b, h, q, k);
    write();
  }

 private:
  __device__ __forceinline__ void add_tile(std::int64_t batch, std::int64_t head,
                                           std::int64_t query_tile, std::int64_t key_tile) {
    const FlashSizes& sizes = call_.sizes;
    const TileRows queries = tile_rows(query_tile, S::kTile, sizes.queries);
    const TileRows keys = tile_rows(key_tile, S::kTile, sizes.keys);
    const Seen seen = tile_seen(sizes, call_.rules, batch, queries, keys);
    if (seen == Seen::kNone) return;
    __syncthreads();  // the tiles before may still be read
    pair_.load_queries(batch, head, queries);
    pair_.load_keys(batch, head / (sizes.heads / sizes.kv_heads), keys);
    __syncthreads();
    typename S::Scores dropped, slopes;
    pair_.gradients(dropped, slopes, HeadRules<C>(call_.rules, batch, head), queries, keys, seen);
#pragma unroll
    for (int r = 0; r < S::kRows; ++r)
#pragma unroll
      for (int c = 0; c < S::kColumns; ++c) sums_.at[r][c] += slopes.at[r][c];
  }

  // Rows and columns of a tile that are one element are added up in their order.
  __device__ __forceinline__ void write() {
    S::store_scores(pair_.ds, sums_);
    __syncthreads();
    const HeadStrides& strides = call_.grad_bias_strides;
    const int rows = tiles_.all_queries ? 1 : rows_left(query_tile_, call_.sizes.queries);
    const int columns = tiles_.all_keys ? 1 : rows_left(key_tile_, call_.sizes.keys);
    float* bias = call_.grad_bias + batch_ * strides.batch + head_ * strides.head +
                  query_tile_ * S::kTile * strides.row + key_tile_ * S::kTile * strides.last;
    for (int at = threadIdx.x; at < rows * columns; at += S::kThreads) {
      const int row = at / columns, column = at % columns;
      C sum = 0;
      for (int r = row; r < (tiles_.all_queries ? S::kTile : row + 1); ++r)
        for (int c = column; c < (tiles_.all_keys ? S::kTile : column + 1); ++c)
          sum += pair_.ds[r * S::kScoreStride + c];
      float* element = bias + row * strides.row + column * strides.last;
      *element = static_cast<float>(static_cast<C>(*element) + sum);
    }
  }

  static __device__ __forceinline__ int rows_left(std::int64_t tile, std::int64_t total) {
    return tile_rows(tile, S::kTile, total).count;
  }

  const FlashBackward& call_;
  AnyTilePair<S>& pair_;
  BiasTiles tiles_;
  std::int64_t batch_ = 0, head_ = 0, query_tile_ = 0, key_tile_ = 0;
  typename S::Scores sums_ = {};
};

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    any_bias_gradient(const __grid_constant__ FlashBackward call) {
  MESHLOOM_TILE_PAIR(pair);
  BiasGradient<S>(call, pair).run();
}

}  // namespace

void launch_any_backward(const FlashBackward& call, cudaStream_t stream) {
  for_any_tiles(call.q.dtype, larger_dims(call.q, call.v), [&](auto tiles) {
    using S = decltype(tiles);
    const FlashSizes& sizes = call.sizes;
    const auto grid = [&](std::int64_t rows, std::int64_t heads) {
      return grid_for(divide_up<std::int64_t>(rows, S::kTile) * heads * sizes.batch, 1);
    };
    launch(any_key_gradients<S>, grid(sizes.keys, sizes.kv_heads), dim3(S::kThreads),
           AnyTilePair<S>::kBytes, stream, call);
    launch(any_query_gradients<S>, grid(sizes.queries, sizes.heads), dim3(S::kThreads),
           AnyTilePair<S>::kBytes, stream, call);
  });
}

void launch_bias_gradient(const FlashBackward& call, cudaStream_t stream) {
  const auto launch_tiles = [&](auto tiles) {
    using S = decltype(tiles);
    launch(any_bias_gradient<S>, grid_for(BiasTiles(call, S::kTile).blocks, 1), dim3(S::kThreads),
           AnyTilePair<S>::kBytes, stream, call);
  };
  // The tiles of the largest heads do for all: biases are rare.
  if (call.q.dtype == DType::kFloat64)
    launch_tiles(AnyTiles<double, 1, kMostHeadDims>{});
  else
    launch_tiles(AnyTiles<float, 2, kMostHeadDims>{});
}

}  // namespace meshloom::kernels::cuda
