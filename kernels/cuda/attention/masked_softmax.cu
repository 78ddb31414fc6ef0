// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/masked_softmax_launch.h"

#include "kernels/cuda/attention/score_row.h"
#include "kernels/cuda/primitives/convert.h"
#include "kernels/cuda/primitives/dtype_switch.h"
#include "kernels/cuda/primitives/reductions.h"
#include "kernels/cuda/primitives/vectors.h"

namespace meshloom::kernels::cuda {
namespace {

/// Rows of up to so many keys are a warp's, longer ones a block's.
constexpr std::int64_t kMostWarpKeys = 512;
constexpr int kSoftmaxBlock = 256;

// How threads share rows: kRow threads for each, which take kStep keys in a row at a time.
template <int kRowThreads, int kKeys>
struct Sharing {
  static constexpr int kRow = kRowThreads;
  static constexpr int kStep = kKeys;
  static constexpr int kBlock = kRow == kWarp ? 4 * kWarp : kRow;
  static constexpr int kRows = kBlock / kRow;
};

template <class S, class C, class Op>
__device__ C row_reduce(C value, Op op) {
  if constexpr (S::kRow == kWarp)
    return warp_reduce(value, op);
  else
    return block_reduce<S::kRow>(value, op);
}

template <int kStep, class T>
__device__ Vector<T, kStep> load_step(const T* from) {
  return *reinterpret_cast<const Vector<T, kStep>*>(from);
}
template <int kStep, class T>
__device__ void store_step(T* to, const Vector<T, kStep>& values) {
  *reinterpret_cast<Vector<T, kStep>*>(to) = values;
}

template <class C>
__device__ C load_number(const QueryNumbers& numbers, std::int64_t offset) {
  return numbers.wide ? static_cast<C>(static_cast<const double*>(numbers.data)[offset])
                      : static_cast<C>(static_cast<const float*>(numbers.data)[offset]);
}

// Maximum and sum of exp(x - maximum) of the values added so far.
template <class C>
struct RunningSum {
  C top = -std::numeric_limits<C>::infinity();
  C sum = 0;

  __device__ void add(C x) {
    if (x == -std::numeric_limits<C>::infinity()) return;
    if (x > top) {
      sum = sum * exp(top - x) + C(1);
      top = x;
    } else {
      sum += exp(x - top);  // NaN comes here and stays
    }
  }
};

template <class T, class S>
__global__ void __launch_bounds__(S::kBlock, 2) masked_softmax(MaskedSoftmax call) {
  using C = Compute<T>;
  const ScorePiece& piece = call.piece;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * S::kRows + threadIdx.x / S::kRow;
  if (row >= piece.batches * piece.kv_heads * piece.grouped * piece.queries) return;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x % S::kRow) * S::kStep;
  const RowPlace place(piece, row);
  ScoreRow<C> rules(call.rules, place);
  C* scores = static_cast<C*>(call.scores) + row * piece.keys;
  T* probabilities = static_cast<T*>(call.probabilities) + row * piece.keys;

  RunningSum<C> running;
  for (std::int64_t key = first; key < piece.keys; key += S::kRow * S::kStep) {
    Vector<C, S::kStep> x = load_step<S::kStep>(scores + key);
    for (int i = 0; i < S::kStep; ++i) {
      x[i] = rules.score(x[i], key + i);
      running.add(x[i]);
    }
    store_step<S::kStep>(scores + key, x);
  }
  constexpr C kNone = -std::numeric_limits<C>::infinity();
  const C top = row_reduce<S>(running.top, MaxOf{});
  const C sum =
      row_reduce<S>(top == kNone ? running.sum : running.sum * exp(running.top - top), SumOf{});
  C lse = top == kNone ? (sum != sum ? sum : kNone) : top + log(sum);
  C factor = top == kNone ? sum : C(1) / sum;  // 0 where nothing is seen, and NaN stays NaN
  const std::int64_t lse_at = place.offset(call.lse.strides);
  if (call.carried != nullptr) {
    const C before = row_reduce<S>(
        threadIdx.x % S::kRow == 0 ? load_number<C>(call.lse, lse_at) : kNone, MaxOf{});
    const C high = before > lse ? before : lse;
    const C both = high == kNone ? kNone : high + log(exp(before - high) + exp(lse - high));
    if (top != kNone) factor *= exp(lse - both);
    const C weight = before == kNone ? C(0) : exp(before - both);
    C* carried = static_cast<C*>(call.carried) + place.offset(call.carried_strides);
    for (std::int64_t d = threadIdx.x % S::kRow; d < call.dims_v; d += S::kRow) {
      C* o = carried + d * call.carried_strides.last;
      *o = weight == C(0) ? C(0) : *o * weight;
    }
    lse = both;
  }
  if (threadIdx.x % S::kRow == 0) {
    if (call.lse.wide)
      static_cast<double*>(call.lse.data)[lse_at] = static_cast<double>(lse);
    else
      static_cast<float*>(call.lse.data)[lse_at] = static_cast<float>(lse);
  }
  for (std::int64_t key = first; key < piece.keys; key += S::kRow * S::kStep) {
    const Vector<C, S::kStep> x = load_step<S::kStep>(scores + key);
    Vector<T, S::kStep> p;
    for (int i = 0; i < S::kStep; ++i)
      p[i] = from_compute<T>(x[i] == kNone ? C(0) : exp(x[i] - top) * factor * rules.keep(key + i));
    store_step<S::kStep>(probabilities + key, p);
  }
}

template <class T, class S>
__global__ void __launch_bounds__(S::kBlock, 2)
    masked_softmax_backward(MaskedSoftmaxBackward call) {
  using C = Compute<T>;
  const ScorePiece& piece = call.piece;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * S::kRows + threadIdx.x / S::kRow;
  if (row >= piece.batches * piece.kv_heads * piece.grouped * piece.queries) return;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x % S::kRow) * S::kStep;
  const RowPlace place(piece, row);
  ScoreRow<C> rules(call.rules, place);
  const C* scores = static_cast<const C*>(call.scores) + row * piece.keys;
  C* gradients = static_cast<C*>(call.gradients) + row * piece.keys;
  T* probabilities = static_cast<T*>(call.probabilities) + row * piece.keys;
  T* score_gradients = static_cast<T*>(call.score_gradients) + row * piece.keys;
  constexpr C kNone = -std::numeric_limits<C>::infinity();
  const C lse = load_number<C>(call.lse, place.offset(call.lse.strides));
  const C delta = load_number<C>(call.delta, place.offset(call.delta.strides));
  for (std::int64_t key = first; key < piece.keys; key += S::kRow * S::kStep) {
    const Vector<C, S::kStep> x = load_step<S::kStep>(scores + key);
    Vector<C, S::kStep> d = load_step<S::kStep>(gradients + key);
    Vector<T, S::kStep> p, narrow;
    for (int i = 0; i < S::kStep; ++i) {
      const C score = rules.score(x[i], key + i);
      const bool seen = score != kNone && lse != kNone;
      const C probability = seen ? exp(score - lse) : C(0);
      const C keep = seen ? rules.keep(key + i) : C(0);
      d[i] = seen ? probability * (keep * d[i] - delta) : C(0);
      p[i] = from_compute<T>(probability * keep);
      narrow[i] = from_compute<T>(d[i]);
    }
    store_step<S::kStep>(probabilities + key, p);
    if (call.keep_gradients) store_step<S::kStep>(gradients + key, d);
    store_step<S::kStep>(score_gradients + key, narrow);
  }
}

template <class C>
__global__ void __launch_bounds__(kSoftmaxBlock) bias_gradient(BiasGradient call) {
  const ScorePiece& piece = call.piece;
  const QueryStrides& strides = call.strides;
  const std::int64_t batches = strides.batch == 0 ? 1 : piece.batches;
  const std::int64_t kv_heads = strides.head == 0 ? 1 : piece.kv_heads;
  const std::int64_t grouped = strides.head == 0 ? 1 : piece.grouped;
  const std::int64_t queries = strides.query == 0 ? 1 : piece.queries;
  const std::int64_t keys = strides.last == 0 ? 1 : piece.keys;
  const std::int64_t count = batches * kv_heads * grouped * queries * keys;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kSoftmaxBlock;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kSoftmaxBlock + threadIdx.x;
       at < count; at += step) {
    std::int64_t rest = at;
    const std::int64_t key = rest % keys;
    rest /= keys;
    const std::int64_t query = rest % queries;
    rest /= queries;
    const std::int64_t in_group = rest % grouped;
    rest /= grouped;
    const std::int64_t kv_head = rest % kv_heads, batch = rest / kv_heads;
    C sum = 0;
    for (std::int64_t b = batch; b < (strides.batch == 0 ? piece.batches : batch + 1); ++b)
      for (std::int64_t h = kv_head; h < (strides.head == 0 ? piece.kv_heads : kv_head + 1); ++h)
        for (std::int64_t g = in_group; g < (strides.head == 0 ? piece.grouped : in_group + 1); ++g)
          for (std::int64_t q = query; q < (strides.query == 0 ? piece.queries : query + 1); ++q) {
            const std::int64_t row =
                ((b * piece.kv_heads + h) * piece.grouped + g) * piece.queries + q;
            const C* line = static_cast<const C*>(call.gradients) + row * piece.keys;
            for (std::int64_t k = key; k < (strides.last == 0 ? piece.keys : key + 1); ++k)
              sum += line[k];
          }
    const std::int64_t head = (piece.kv_head + kv_head) * piece.group + piece.in_group + in_group;
    float* bias = call.bias + (piece.batch + batch) * strides.batch + head * strides.head +
                  (piece.query + query) * strides.query + key * strides.last;
    *bias = static_cast<float>(static_cast<C>(*bias) + sum);
  }
}

// Calls `body(Sharing)` for rows of so many keys; four at a time where rows begin at multiples of
// 16 bytes, which the scratch's pieces do.
template <class T, class Body>
void share_rows(std::int64_t keys, Body&& body) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, __nv_bfloat16>) {
    if (keys % 4 == 0 && keys <= kMostWarpKeys) return body(Sharing<kWarp, 4>{});
    if (keys % 4 == 0) return body(Sharing<kSoftmaxBlock, 4>{});
  }
  body(Sharing<kSoftmaxBlock, 1>{});
}

template <class S>
dim3 softmax_grid(std::int64_t rows) {
  return dim3(static_cast<unsigned>((rows + S::kRows - 1) / S::kRows));
}

}  // namespace

void launch_masked_softmax(const MaskedSoftmax& call, cudaStream_t stream) {
  const std::int64_t rows = call.piece.rows();
  if (rows == 0) return;
  for_floating("attention", call.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    share_rows<T>(call.piece.keys, [&](auto sharing) {
      using S = decltype(sharing);
      launch(masked_softmax<T, S>, softmax_grid<S>(rows), dim3(S::kBlock), 0, stream, call);
    });
  });
}

void launch_masked_softmax_backward(const MaskedSoftmaxBackward& call, cudaStream_t stream) {
  const std::int64_t rows = call.piece.rows();
  if (rows == 0 || call.piece.keys == 0) return;
  for_floating("attention's gradient", call.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    share_rows<T>(call.piece.keys, [&](auto sharing) {
      using S = decltype(sharing);
      launch(masked_softmax_backward<T, S>, softmax_grid<S>(rows), dim3(S::kBlock), 0, stream,
             call);
    });
  });
}

void launch_bias_gradient(const BiasGradient& call, cudaStream_t stream) {
  const std::int64_t count = call.piece.rows() * call.piece.keys;
  if (count == 0) return;
  constexpr std::int64_t kMostBlocks = 4096;
  const std::int64_t needed = (count + kSoftmaxBlock - 1) / kSoftmaxBlock;
  const dim3 grid(static_cast<unsigned>(needed < kMostBlocks ? needed : kMostBlocks));
  if (call.wide)
    launch(bias_gradient<double>, grid, dim3(kSoftmaxBlock), 0, stream, call);
  else
    launch(bias_gradient<float>, grid, dim3(kSoftmaxBlock), 0, stream, call);
}

}  // namespace meshloom::kernels::cuda
