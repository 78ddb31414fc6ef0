// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/products.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/error.h"
#include "kernels/cuda/attention/masked_softmax_launch.h"
#include "kernels/cuda/attention/score_pieces.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/matmul/product.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {
namespace {

DType compute_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

template <class T>
const T* data_of(const TensorView& view) {
  return view.defined() ? view.as<T>() : nullptr;
}

QueryStrides query_strides(const TensorView& view) {
  return {view.stride(0), view.stride(1), view.stride(2), view.ndim() > 3 ? view.stride(3) : 0};
}

QueryNumbers query_numbers(const TensorView& view) {
  return {view.data, view.dtype == DType::kFloat64, query_strides(view)};
}

void place_rules(ScoreRules& rules, const AttentionOptions& options) {
  if (options.window_left >= 0) rules.least = -options.window_left;
  if (options.window_right >= 0) rules.most = options.window_right;
  if (options.is_causal) rules.most = 0;
  rules.query_offset = options.query_offset;
  rules.key_offset = options.key_offset;
  rules.query_positions = data_of<std::int64_t>(options.query_positions);
  rules.key_positions = data_of<std::int64_t>(options.key_positions);
  if (rules.query_positions != nullptr)
    rules.query_position_stride = options.query_positions.stride(0);
  if (rules.key_positions != nullptr) rules.key_position_stride = options.key_positions.stride(0);
  rules.query_documents = data_of<std::int64_t>(options.query_documents);
  rules.key_documents = data_of<std::int64_t>(options.key_documents);
  if (rules.query_documents == nullptr) return;
  rules.query_document_batch = options.query_documents.stride(0);
  rules.query_document_stride = options.query_documents.stride(1);
  rules.key_document_batch = options.key_documents.stride(0);
  rules.key_document_stride = options.key_documents.stride(1);
}

ScoreRules score_rules(const AttentionInputs& in, const AttentionOptions& options) {
  ScoreRules rules;
  place_rules(rules, options);
  if (options.bias.defined()) {
    if (options.bias.dtype != DType::kFloat32)
      not_built(fmt::format("attention with a bias of {}", dtype_name(options.bias.dtype)));
    rules.bias = options.bias.as<float>();
    rules.bias_strides = query_strides(options.bias);
  }
  if (options.alibi_slopes.defined()) {
    rules.slopes = options.alibi_slopes.as<float>();
    rules.slope_stride = options.alibi_slopes.stride(0);
  }
  rules.dropout_p = options.dropout_p;
  rules.random = options.dropout_random;
  rules.first_head = options.dropout_first_head;
  rules.total_heads = options.dropout_total_heads > 0 ? options.dropout_total_heads : in.q.size(1);
  rules.total_queries = options.dropout_total_queries;
  rules.total_keys = options.dropout_total_keys;
  return rules;
}

ScoreSizes score_sizes(const AttentionInputs& in) {
  return {in.q.size(0), in.k.size(1), in.q.size(1) / in.k.size(1), in.q.size(2), in.k.size(2)};
}

float scale_of(const AttentionInputs& in, const AttentionOptions& options) {
  return static_cast<float>(
      options.scale != 0.0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(in.q.size(3))));
}

void* moved(const TensorView& view, std::int64_t elements) {
  return view.as<std::byte>() + elements * static_cast<std::int64_t>(dtype_size(view.dtype));
}

// A piece's part of [B, Hq, Sq, D] as [batches, key heads, grouped, queries, D].
TensorView queries_of(const TensorView& view, const ScorePiece& piece) {
  const std::int64_t head = piece.kv_head * piece.group + piece.in_group;
  return {moved(view, piece.batch * view.stride(0) + head * view.stride(1) +
                          piece.query * view.stride(2)),
          view.dtype,
          {piece.batches, piece.kv_heads, piece.grouped, piece.queries, view.size(3)},
          {view.stride(0), view.stride(1) * piece.group, view.stride(1), view.stride(2),
           view.stride(3)},
          view.device};
}

// A piece's part of [B, Hkv, Skv, D] as [batches, key heads, grouped, keys, D]: the same for all
// that share the head.
TensorView keys_of(const TensorView& view, const ScorePiece& piece) {
  return {moved(view, piece.batch * view.stride(0) + piece.kv_head * view.stride(1)),
          view.dtype,
          {piece.batches, piece.kv_heads, piece.grouped, piece.keys, view.size(3)},
          {view.stride(0), view.stride(1), 0, view.stride(2), view.stride(3)},
          view.device};
}

TensorView transposed(TensorView view) {
  const int last = view.ndim() - 1;
  std::swap(view.shape[last], view.shape[last - 1]);
  std::swap(view.strides[last], view.strides[last - 1]);
  return view;
}

// Entry `at` of the third dim, which is dropped.
TensorView member(const TensorView& view, std::int64_t at) {
  TensorView one = view;
  one.data = moved(view, at * view.stride(2));
  one.shape.erase(2);
  one.strides.erase(2);
  return one;
}

TensorView scores_of(void* data, DType dtype, const ScorePiece& piece, Device device) {
  return make_view(data, dtype,
                   {piece.batches, piece.kv_heads, piece.grouped, piece.queries, piece.keys},
                   device);
}

// Runs a call's products one after the other, in the same room of the scratch; or only measures how
// large that must be.
class Products {
 public:
  Products(Backend& backend, int device) : backend_(backend), device_(device) {}

  /// From here on products run, in `room`.
  void start(const KernelContext& context, std::span<std::byte> room) {
    context_ = &context;
    room_ = room;
  }
  bool running() const { return context_ != nullptr; }
  std::size_t most_bytes() const { return most_; }

  /// y = alpha a b + beta y.
  void add(const TensorView& y, const TensorView& a, const TensorView& b, float alpha, float beta) {
    MatmulOptions options;
    options.alpha = alpha;
    options.beta = beta;
    const Product product(backend_, device_, y, a, b, options);
    if (running())
      product.run(*context_, room_);
    else
      most_ = std::max(most_, product.scratch_bytes());
  }

 private:
  Backend& backend_;
  int device_;
  const KernelContext* context_ = nullptr;
  std::span<std::byte> room_;
  std::size_t most_ = 0;
};

// What stands for the scratch's address while only its size is asked.
std::byte* no_scratch() { return reinterpret_cast<std::byte*>(kScratchAlignment); }

// Where a forward or backward call keeps a piece of scores.
struct ScoreRoom {
  void* scores = nullptr;
  void* gradients = nullptr;      // of probabilities, then of scores
  void* probabilities = nullptr;  // of the inputs' dtype
  void* narrow = nullptr;         // gradients of scores of the inputs' dtype
  std::size_t bytes = 0;

  ScoreRoom(ScratchCutter& cutter, std::int64_t count, DType dtype, bool backward) {
    const auto take = [&](DType of) {
      const std::size_t size = static_cast<std::size_t>(count) * dtype_size(of);
      bytes += scratch_piece(size);
      return cutter.take(size);
    };
    const DType wide = compute_dtype(dtype);
    scores = take(wide);
    probabilities = dtype == wide ? scores : take(dtype);
    if (!backward) return;
    gradients = take(wide);
    narrow = dtype == wide ? gradients : take(dtype);
  }

  static std::int64_t bytes_each(DType dtype, bool backward) {
    const auto wide = static_cast<std::int64_t>(dtype_size(compute_dtype(dtype)));
    const std::int64_t narrow =
        dtype == compute_dtype(dtype) ? 0 : static_cast<std::int64_t>(dtype_size(dtype));
    return (wide + narrow) * (backward ? 2 : 1);
  }
};

std::int64_t most_scores(const std::vector<ScorePiece>& pieces) {
  std::int64_t most = 0;
  for (const ScorePiece& piece : pieces) most = std::max(most, piece.rows() * piece.keys);
  return most;
}

void forward_piece(const KernelContext& context, Products& products, const ScoreRoom& room,
                   const ScorePiece& piece, const AttentionOutputs& out, const AttentionInputs& in,
                   const AttentionOptions& options, const ScoreRules& rules) {
  const DType dtype = in.q.dtype;
  const Device device = in.q.device;
  products.add(scores_of(room.scores, compute_dtype(dtype), piece, device), queries_of(in.q, piece),
               transposed(keys_of(in.k, piece)), scale_of(in, options), 0.0f);
  if (products.running()) {
    MaskedSoftmax call;
    call.piece = piece;
    call.rules = rules;
    call.dtype = dtype;
    call.scores = room.scores;
    call.probabilities = room.probabilities;
    call.lse = query_numbers(out.lse);
    if (out.carry) {
      call.carried = out.o.data;
      call.carried_strides = query_strides(out.o);
      call.dims_v = out.o.size(3);
    }
    launch_masked_softmax(call, stream_of(context));
  }
  products.add(queries_of(out.o, piece), scores_of(room.probabilities, dtype, piece, device),
               keys_of(in.v, piece), 1.0f, out.carry ? 1.0f : 0.0f);
}

// Gradients of keys or values [B, Hkv, Skv, D] that several products add to. Those of a narrower
// dtype than sums have are added up in the scratch, for the key heads of a piece.
struct KeySums {
  TensorView target;  // the whole gradient
  bool in_scratch = false;
  TensorView sums;  // of the piece at hand, [batches, key heads, keys, D]

  std::size_t bytes(std::int64_t units, DType wide) const {
    return in_scratch
               ? scratch_piece(static_cast<std::size_t>(units * target.size(2) * target.size(3)) *
                               dtype_size(wide))
               : 0;
  }
  TensorView part_of_target(const ScorePiece& piece) const {
    return member(keys_of(target, piece), 0);
  }
  void open(const ScorePiece& piece, void* scratch, DType wide) {
    const TensorView part = part_of_target(piece);
    sums = in_scratch ? make_view(scratch, wide, part.shape, part.device) : part;
  }
};

// Whether the piece is the first, or the last, of its key heads.
bool first_of_heads(const ScorePiece& piece) { return piece.in_group == 0 && piece.query == 0; }
bool last_of_heads(const ScorePiece& piece, const ScoreSizes& sizes) {
  return piece.in_group + piece.grouped == sizes.group &&
         piece.query + piece.queries == sizes.queries;
}

class Backward {
 public:
  Backward(const AttentionGrads& grads, const AttentionInputs& in, const AttentionOptions& options)
      : grads_(grads),
        in_(in),
        rules_(score_rules(in, options)),
        sizes_(score_sizes(in)),
        dtype_(in.q.dtype),
        wide_(compute_dtype(dtype_)),
        scale_(scale_of(in, options)),
        pieces_(score_pieces(sizes_, kMostScoreBytes / ScoreRoom::bytes_each(dtype_, true))) {
    const bool several = sizes_.group > 1 || pieces_.front().queries < sizes_.queries;
    for (KeySums* sums : {&dk_, &dv_}) {
      sums->target = sums == &dk_ ? grads.dk : grads.dv;
      sums->in_scratch = sums->target.dtype != wide_ && (several || grads.accumulate);
    }
  }

  void run(Backend& backend, int device, const KernelContext& context) {
    const std::int64_t count = most_scores(pieces_);
    const std::int64_t units = pieces_.front().batches * pieces_.front().kv_heads;
    std::size_t own_bytes = 0;
    Products products(backend, device);
    const auto all = [&](std::byte* base) {
      ScratchCutter cutter(base);
      const ScoreRoom room(cutter, count, dtype_, true);
      own_bytes = room.bytes + dk_.bytes(units, wide_) + dv_.bytes(units, wide_);
      void* const dk = cutter.take(dk_.bytes(units, wide_));
      void* const dv = cutter.take(dv_.bytes(units, wide_));
      for (const ScorePiece& piece : pieces_) {
        dk_.open(piece, dk, wide_);
        dv_.open(piece, dv, wide_);
        run_piece(backend, context, products, room, piece);
      }
    };
    all(no_scratch());
    const std::span<std::byte> scratch =
        reserve_scratch(context, own_bytes + products.most_bytes(), "attention_backward");
    products.start(context, scratch.subspan(own_bytes));
    all(scratch.data());
  }

 private:
  void run_piece(Backend& backend, const KernelContext& context, Products& products,
                 const ScoreRoom& room, const ScorePiece& piece) {
    const Device device = in_.q.device;
    const TensorView q = queries_of(in_.q, piece), k = keys_of(in_.k, piece);
    const TensorView grad_o = queries_of(grads_.grad_o, piece);
    products.add(scores_of(room.scores, wide_, piece, device), q, transposed(k), scale_, 0.0f);
    products.add(scores_of(room.gradients, wide_, piece, device), grad_o,
                 transposed(keys_of(in_.v, piece)), 1.0f, 0.0f);
    if (products.running()) run_kernels(context, room, piece);
    const TensorView p = scores_of(room.probabilities, dtype_, piece, device);
    const TensorView ds = scores_of(room.narrow, dtype_, piece, device);
    products.add(queries_of(grads_.dq, piece), ds, k, scale_, grads_.accumulate ? 1.0f : 0.0f);
    KernelContext inner = context;
    inner.workspace = nullptr;
    for (std::int64_t g = 0; g < piece.grouped; ++g) {
      const bool adds = grads_.accumulate || g > 0 || !first_of_heads(piece);
      if (products.running() && grads_.accumulate && g == 0 && first_of_heads(piece))
        for (const KeySums* sums : {&dk_, &dv_})
          if (sums->in_scratch) backend.copy(inner, sums->sums, sums->part_of_target(piece));
      products.add(dk_.sums, transposed(member(ds, g)), member(q, g), scale_, adds ? 1.0f : 0.0f);
      products.add(dv_.sums, transposed(member(p, g)), member(grad_o, g), 1.0f, adds ? 1.0f : 0.0f);
    }
    if (!products.running() || !last_of_heads(piece, sizes_)) return;
    for (const KeySums* sums : {&dk_, &dv_})
      if (sums->in_scratch) backend.copy(inner, sums->part_of_target(piece), sums->sums);
  }

  void run_kernels(const KernelContext& context, const ScoreRoom& room, const ScorePiece& piece) {
    MaskedSoftmaxBackward call;
    call.piece = piece;
    call.rules = rules_;
    call.dtype = dtype_;
    call.scores = room.scores;
    call.gradients = room.gradients;
    call.probabilities = room.probabilities;
    call.score_gradients = room.narrow;
    call.keep_gradients = grads_.grad_bias.defined() && room.narrow != room.gradients;
    call.lse = query_numbers(grads_.lse);
    call.delta = query_numbers(grads_.delta);
    launch_masked_softmax_backward(call, stream_of(context));
    if (!grads_.grad_bias.defined()) return;
    launch_bias_gradient({piece, room.gradients, wide_ == DType::kFloat64,
                          grads_.grad_bias.as<float>(), query_strides(grads_.grad_bias)},
                         stream_of(context));
  }

  const AttentionGrads& grads_;
  const AttentionInputs& in_;
  ScoreRules rules_;
  ScoreSizes sizes_;
  DType dtype_, wide_;
  float scale_;
  std::vector<ScorePiece> pieces_;
  KeySums dk_, dv_;
};

void check_numbers(const TensorView& view, const char* what) {
  if (view.dtype != DType::kFloat32 && view.dtype != DType::kFloat64)
    not_built(fmt::format("attention with {} of {}", what, dtype_name(view.dtype)));
}

}  // namespace

void product_attention(Backend& backend, int device, const KernelContext& context,
                       const AttentionOutputs& out, const AttentionInputs& in,
                       const AttentionOptions& options) {
  const DType dtype = in.q.dtype;
  check_numbers(out.lse, "lse");
  if (out.carry && out.o.dtype != compute_dtype(dtype))
    not_built(fmt::format("attention of {} carried on in {}", dtype_name(dtype),
                          dtype_name(out.o.dtype)));
  const ScoreRules rules = score_rules(in, options);
  const std::vector<ScorePiece> pieces =
      score_pieces(score_sizes(in), kMostScoreBytes / ScoreRoom::bytes_each(dtype, false));
  const std::int64_t count = most_scores(pieces);
  std::size_t own_bytes = 0;
  Products products(backend, device);
  const auto all = [&](std::byte* base) {
    ScratchCutter cutter(base);
    const ScoreRoom room(cutter, count, dtype, false);
    own_bytes = room.bytes;
    for (const ScorePiece& piece : pieces)
      forward_piece(context, products, room, piece, out, in, options, rules);
  };
  all(no_scratch());
  const std::span<std::byte> scratch =
      reserve_scratch(context, own_bytes + products.most_bytes(), "attention");
  products.start(context, scratch.subspan(own_bytes));
  all(scratch.data());
}

void product_attention_backward(Backend& backend, int device, const KernelContext& context,
                                const AttentionGrads& grads, const AttentionInputs& in,
                                const AttentionOptions& options) {
  check_numbers(grads.lse, "lse");
  check_numbers(grads.delta, "delta");
  if (grads.grad_bias.defined() && grads.grad_bias.dtype != DType::kFloat32)
    not_built(
        fmt::format("attention with a bias's gradient of {}", dtype_name(grads.grad_bias.dtype)));
  Backward(grads, in, options).run(backend, device, context);
}

}  // namespace meshloom::kernels::cuda
