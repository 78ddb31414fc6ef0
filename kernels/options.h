// SPDX-License-Identifier: Apache-2.0
// Option structs of the compute interface in kernels/backend.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/base/philox.h"
#include "kernels/base/tensor_view.h"
#include "kernels/op_ids.h"

namespace meshloom::kernels {

/// A matmul does this to its result before storing it.
enum class Epilogue : std::uint8_t {
  kNone,
  kBias,          ///< + bias[N]
  kBiasGelu,      ///< gelu(x + bias), erf form
  kBiasGeluTanh,  ///< gelu(x + bias), tanh form
};

/// ProductScales holds factors of a product, as float8 operands have them: float32, of one element
/// or one for each row of a or column of b. What is undefined is 1.
struct ProductScales {
  TensorView rows;     ///< [1] or [M]
  TensorView columns;  ///< [1] or [N]
  TensorView result;   ///< [1]

  bool defined() const { return rows.defined() || columns.defined() || result.defined(); }
};

struct MatmulOptions {
  float alpha = 1.0f;
  float beta = 0.0f;  ///< y = alpha * a b + beta * y; beta is 0 or 1
  Epilogue epilogue = Epilogue::kNone;
  TensorView bias;            ///< [N], for the kBias epilogues
  TensorView pre_activation;  ///< y's shape; where given, receives a b + bias of the GELU epilogues
  /// Every row of y gets the bits that such a product of that row alone would give, however many
  /// rows there are. y and a then have 2 dims and nothing receives the pre-activation.
  bool batch_invariant = false;
  /// If these are defined, y [M,N] = (a b * rows[i] * columns[j] + bias[j]) * result, in float32
  /// and rounded once: a and b have 2 dims, alpha is 1, beta 0, the bias float32, the epilogue
  /// kNone or kBias. y is contiguous, of any floating dtype that `copy` converts float32 to.
  ProductScales scales;
};

enum class NormKind : std::uint8_t { kLayer, kRms };

struct NormOptions {
  double eps = 1e-5;
  NormKind kind = NormKind::kLayer;
};

/// NormViews is a norm over the last dim C of x, all contiguous. With a residual, sum = x +
/// residual is written and normalized in the same pass. RMS norm has neither mean nor bias.
struct NormViews {
  TensorView y{};               ///< [.., C]
  TensorView sum{};             ///< [.., C]; given if residual is
  TensorView mean{}, rstd{};    ///< float32 (or float64 for float64) [rows]; undefined: not kept
  TensorView x{};               ///< [.., C]
  TensorView residual{};        ///< [.., C] or undefined
  TensorView weight{}, bias{};  ///< [C] or undefined
};

/// NormGrads is the gradient of a norm. x is what was normalized (the sum, if there was a
/// residual).
struct NormGrads {
  TensorView dx{};                ///< [.., C]
  TensorView dweight{}, dbias{};  ///< float32 (float64 for float64 inputs) [C] or undefined
  TensorView dy{}, x{}, weight{};
  TensorView mean{}, rstd{};   ///< as the forward call kept them
  bool accumulate_dx = false;  ///< dx += (the residual's gradient), else =
  bool accumulate_params = false;
};

/// Element i of the tensor is kept where the random value of (stream, first_index + i) is at least
/// p rounded to float32, and divided by (1 - p). `first_index` makes a shard draw what the whole
/// tensor would.
struct DropoutOptions {
  double p = 0.0;
  PhiloxStream random;
  std::uint64_t first_index = 0;
};

/// AttentionOptions describes the attention of one block of queries against one block of keys
/// (DESIGN D21).
struct AttentionOptions {
  double scale = 0.0;  ///< 0: 1 / sqrt(D)
  bool is_causal = false;
  /// Query i has position i or query_positions[i], key j key_offset + j or key_positions[j]. Where
  /// they meet, query_offset is added to the query's (causal: keys <= that), but not in dropout.
  std::int64_t query_offset = 0;
  std::int64_t key_offset = 0;
  TensorView query_positions;  ///< int64 [Sq]
  TensorView key_positions;    ///< int64 [Skv]
  /// A key is seen where position distance is within [-window_left, window_right]; -1: no limit.
  std::int64_t window_left = -1;
  std::int64_t window_right = -1;
  /// float32, broadcastable (strides of 0) to [B, Hq, Sq, Skv]; added to the scaled scores.
  TensorView bias;
  /// float32 [Hq] slopes: adds -slope[h] * |query position - key position|.
  TensorView alibi_slopes;
  /// int64 [B, Sq] and [B, Skv]: a query sees keys of its own document only.
  TensorView query_documents;
  TensorView key_documents;
  /// Dropout of the probabilities, drawn by global (layer, batch x head, query, key): element index
  /// = ((first_head + b * total_heads + h) * total_queries + query position) * total_keys + key
  /// position, layer in the stream.
  float dropout_p = 0.0f;
  PhiloxStream dropout_random;
  std::int64_t dropout_first_head = 0;   ///< global index of (b = 0, h = 0)
  std::int64_t dropout_total_heads = 0;  ///< of one batch row, on all ranks; 0: Hq
  std::int64_t dropout_total_queries = 0;
  std::int64_t dropout_total_keys = 0;
};

/// AttentionInputs holds query, key and value views, any strides: q [B,Hq,Sq,D], k [B,Hkv,Skv,D], v
/// [B,Hkv,Skv,Dv]. Query head h reads kv head h / (Hq / Hkv). float32 or bfloat16, all the same.
struct AttentionInputs {
  TensorView q, k, v;
};

/// AttentionMemory holds keys and values that one batch row has for itself: k [1,Hkv,L,D], v
/// [1,Hkv,L,Dv], any strides.
struct AttentionMemory {
  TensorView k, v;
};

/// AttentionOutputs is the running state of attention over several key blocks. `o` [B,Hq,Sq,Dv] and
/// `lse` [B,Hq,Sq] float32. With `carry` the kernel merges its block into what they hold; else it
/// overwrites them.
struct AttentionOutputs {
  TensorView o;    ///< dtype of q, or float32 (required with carry)
  TensorView lse;  ///< float32, natural log; -inf where a query sees nothing (then o is 0)
  bool carry = false;
};

/// AttentionGrads is the backward of one block, given the *final* lse and delta = rowsum(do * o).
/// Accumulates into dq, dk and dv where `accumulate`, else overwrites them. float32, or (not
/// accumulating) the inputs' dtype.
struct AttentionGrads {
  TensorView grad_o;  ///< [B,Hq,Sq,Dv], dtype of q
  TensorView lse;     ///< [B,Hq,Sq] float32
  TensorView delta;   ///< [B,Hq,Sq] float32; see Backend::reads_attention_delta
  TensorView dq, dk, dv;
  bool accumulate = false;
  /// float32 with bias's strides (0 where broadcast); added to if it is given.
  TensorView grad_bias;
  /// [B,Hq,Sq,Dv], what forward gave, of q's dtype or float32. Libraries that compute delta
  /// themselves read it; without it they are not used.
  TensorView o{};
};

struct RopeOptions {
  TensorView cos, sin;   ///< float32 [positions, D / 2]
  TensorView positions;  ///< int64 [B, S], or not given: position = position_offset + s
  std::int64_t position_offset = 0;
  bool inverse = false;  ///< rotate back: the gradient
};

/// This id stands for a class that another rank's slice holds.
inline constexpr std::int64_t kOtherSlice = -1;

/// IdRange has the ids [begin, end).
struct IdRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// IdSlice is a rank's slice of a vocabulary: some ranges of ids, one behind the other.
struct IdSlice {
  std::span<const IdRange> ranges;
  /// An id that is no entry of the vocabulary, or that is treated otherwise, and its place.
  std::int64_t special = kOtherSlice;
  std::int64_t special_place = kOtherSlice;
};

/// If the logits' columns are a slice of all classes (a vocabulary over several ranks): targets
/// count columns of the slice, kOtherSlice is a class of another one, and ignore_index is below it.
struct ClassSlice {
  std::int64_t total = 0;  ///< classes of all slices; 0: the logits have them all
};

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0.0;
  /// Gradients are multiplied by this; the loss is the plain sum over counted rows.
  double grad_scale = 1.0;
  ClassSlice slice;
};

/// CrossEntropyRows holds rows of a cross entropy: logits [rows, V] with dense rows, int64 targets
/// [rows].
struct CrossEntropyRows {
  TensorView logits{}, targets{};
  /// float32 or float64 [rows]. Forward writes them; without `lse` it is not kept. Backward reads
  /// lse alone.
  TensorView losses{}, lse{};
};

/// logits = hidden weight^T + bias: hidden [rows, C], weight [V, C], bias [V] or undefined.
struct OutputProjection {
  TensorView hidden{}, weight{}, bias{};
};

/// OutputLossGrads are gradients of an output projection; undefined ones are not computed. dhidden
/// [rows, C]; dweight and dbias float32 (float64 for float64), added to if `accumulate_params`.
struct OutputLossGrads {
  TensorView dhidden{}, dweight{}, dbias{};
  bool accumulate_params = false;
};

/// The plan says how the output loss goes over rows (Backend::output_loss_plan).
struct OutputLossPlan {
  std::int64_t block = 0;  ///< rows whose gradients of the logits go through the products together
  std::int64_t chunk = 0;  ///< rows of logits at a time; a block is split into them
  std::int64_t row = 0;    ///< elements from one row of logits, or of gradients, to the next
  DType logits = DType::kFloat32;
  /// Gradients of the logits have this dtype. Gradients of the logits' own dtype take the place of
  /// the logits, and a block is one chunk. Others need memory of their own.
  DType gradient = DType::kFloat32;
};

/// OptimizerTensor is one parameter of a fused optimizer step. All views have the same number of
/// elements, contiguous.
struct OptimizerTensor {
  TensorView master;   ///< float32, updated
  TensorView grad;     ///< float32
  TensorView moment1;  ///< float32; SGD: the momentum buffer (may be undefined without momentum)
  TensorView moment2;  ///< float32; not used by SGD
  /// bfloat16 copy, written in the same pass; undefined if master is used directly.
  TensorView working;
  float weight_decay = 0.0f;
};

/// An optimizer step reads these from device memory, so that nobody waits for the device to begin
/// it. One element each, on the backend's device.
struct StepScalars {
  TensorView lr{};    ///< float32
  TensorView step{};  ///< int64: of this step, 1 for the first (bias correction, first momentum)
  /// float32: all gradients are multiplied by it (clipping). Undefined: 1.
  TensorView grad_factor{};
  /// float32 norm of the gradients and float64 loss. If one of them is NaN or infinite the step
  /// changes nothing. Undefined: not asked.
  TensorView grad_norm{}, loss{};
};

struct AdamOptions {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  bool decoupled = true;  ///< AdamW; false: weight decay is added to the gradient (Adam)
};

struct SgdOptions {
  float momentum = 0.0f;
  float dampening = 0.0f;
  bool nesterov = false;
};

/// DeviceMemory counts the bytes of a device's memory.
struct DeviceMemory {
  std::int64_t free = 0;
  std::int64_t all = 0;
};

/// The struct says what a device computes with. Results of one compute class and table are bitwise
/// comparable.
struct ComputeDescription {
  std::string compute_class;   ///< in use: "avx512_bf16"
  std::string hardware_class;  ///< the highest that the hardware offers
  std::string table_version;   ///< of the fixed choices between kernels, and of their libraries
  /// Its product name, driver and libraries, for people; empty for a CPU.
  std::string device_text = {};
};

}  // namespace meshloom::kernels
