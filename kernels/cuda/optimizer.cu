// SPDX-License-Identifier: Apache-2.0
// Fused optimizer steps over all parameters.
#include "kernels/cuda/optimizer_launch.h"

#include <cmath>

#include "kernels/cuda/primitives/convert.h"
#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/vectors.h"
#include "kernels/cuda/tensor_list.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kQuad = 4;
// Elements of a block.
constexpr std::int64_t kChunk = 8192;

struct StepItem {
  float* master;
  const float* grad;
  float* moment1;
  float* moment2;
  __nv_bfloat16* working;
  std::int64_t numel;
  float weight_decay;
  int first_chunk;
};

// 256 parameters of 56 bytes: 14 KB.
using StepList = TensorList<StepItem, 256>;

// The contents of what a step updates, of one element.
struct Element {
  float master, grad, moment1, moment2;
};

// What every element of an Adam step shares.
struct AdamFactors {
  float lr, beta1, beta2, eps, grad_factor;
  float step_size;   // lr / (1 - beta1^step)
  float root_scale;  // 1 / sqrt(1 - beta2^step)
  float shrink;      // of the master before the step
  float decay;       // of the master, added to the gradient

  static constexpr bool kHasMoment2 = true;
  __device__ __forceinline__ bool has_moment1() const { return true; }
  __device__ __forceinline__ bool reads_moment1() const { return true; }

  // Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019 (decoupled); Kingma
  // and Ba, "Adam", ICLR 2015 (not).
  __device__ __forceinline__ void operator()(Element& e) const {
    const float g = std::fma(decay, e.master, e.grad * grad_factor);
    e.moment1 = std::fma(beta1, e.moment1, (1.0f - beta1) * g);
    e.moment2 = std::fma(beta2, e.moment2, (1.0f - beta2) * (g * g));
    const float denominator = std::fma(std::sqrt(e.moment2), root_scale, eps);
    e.master = std::fma(-step_size, e.moment1 / denominator, e.master * shrink);
  }
};

struct SgdFactors {
  float lr, momentum, keep, grad_factor, decay;
  bool nesterov, first_step, buffered;

  static constexpr bool kHasMoment2 = false;
  __device__ __forceinline__ bool has_moment1() const { return buffered; }
  __device__ __forceinline__ bool reads_moment1() const { return buffered && !first_step; }

  __device__ __forceinline__ void operator()(Element& e) const {
    float g = std::fma(decay, e.master, e.grad * grad_factor);
    if (buffered) {
      e.moment1 = first_step ? g : std::fma(momentum, e.moment1, keep * g);
      g = nesterov ? std::fma(momentum, e.moment1, g) : e.moment1;
    }
    e.master = std::fma(-lr, g, e.master);
  }
};

__device__ __forceinline__ bool leaves_all_untouched(const StepPointers& scalars) {
  return (scalars.grad_norm != nullptr && !std::isfinite(*scalars.grad_norm)) ||
         (scalars.loss != nullptr && !std::isfinite(*scalars.loss));
}

__device__ __forceinline__ float factor_of(const StepPointers& scalars) {
  return scalars.grad_factor != nullptr ? *scalars.grad_factor : 1.0f;
}

// Elements [begin, end) of one parameter by the threads of a block.
template <class Factors>
__device__ __forceinline__ void step_elements(const StepItem& item, const Factors& factors,
                                              std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    Element e{item.master[i], item.grad[i], 0.0f, 0.0f};
    if (factors.reads_moment1()) e.moment1 = item.moment1[i];
    if constexpr (Factors::kHasMoment2) e.moment2 = item.moment2[i];
    factors(e);
    item.master[i] = e.master;
    if (factors.has_moment1()) item.moment1[i] = e.moment1;
    if constexpr (Factors::kHasMoment2) item.moment2[i] = e.moment2;
    if (item.working != nullptr) item.working[i] = from_compute<__nv_bfloat16>(e.master);
  }
}

// The same by fours, `end` - `begin` a multiple of 4.
template <class Factors>
__device__ __forceinline__ void step_quads(const StepItem& item, const Factors& factors,
                                           std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin + threadIdx.x * kQuad; i < end; i += kThreads * kQuad) {
    Vector<float> master = load_vector(item.master + i);
    const Vector<float> grad = load_vector(item.grad + i);
    Vector<float> moment1{}, moment2{};
    if (factors.reads_moment1()) moment1 = load_vector(item.moment1 + i);
    if constexpr (Factors::kHasMoment2) moment2 = load_vector(item.moment2 + i);
    Vector<__nv_bfloat16, kQuad> working;
    for (int j = 0; j < kQuad; ++j) {
      Element e{master[j], grad[j], moment1[j], moment2[j]};
      factors(e);
      master[j] = e.master;
      moment1[j] = e.moment1;
      moment2[j] = e.moment2;
      working[j] = from_compute<__nv_bfloat16>(e.master);
    }
    store_vector(item.master + i, master);
    if (factors.has_moment1()) store_vector(item.moment1 + i, moment1);
    if constexpr (Factors::kHasMoment2) store_vector(item.moment2 + i, moment2);
    if (item.working != nullptr)
      *reinterpret_cast<Vector<__nv_bfloat16, kQuad>*>(item.working + i) = working;
  }
}

__device__ __forceinline__ bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0;
}

template <class Factors>
__device__ __forceinline__ void step_chunk(const StepItem& item, const Factors& factors,
                                           int chunk) {
  const std::int64_t begin = static_cast<std::int64_t>(chunk - item.first_chunk) * kChunk;
  const std::int64_t end = begin + kChunk < item.numel ? begin + kChunk : item.numel;
  // Chunks begin at multiples of 16 bytes if the parameter does; null is aligned.
  const bool aligned = is_aligned(item.master) && is_aligned(item.grad) &&
                       is_aligned(item.moment1) && is_aligned(item.moment2) &&
                       is_aligned(item.working);
  const std::int64_t middle = aligned ? end - (end - begin) % kQuad : begin;
  step_quads(item, factors, begin, middle);
  step_elements(item, factors, middle, end);
}

__global__ void __launch_bounds__(kThreads)
    adam_step(const __grid_constant__ StepList list, StepPointers scalars, AdamRule rule) {
  if (leaves_all_untouched(scalars)) return;
  // Two threads work out what is float64, one power each.
  MESHLOOM_SHARED(corrected, float[2]);
  const float lr = *scalars.lr;
  if (threadIdx.x == 0 || threadIdx.x == 32) {
    const bool first = threadIdx.x == 0;
    const double beta = first ? rule.beta1 : rule.beta2;
    const double correction = 1.0 - std::pow(beta, static_cast<double>(*scalars.step));
    corrected[first ? 0 : 1] = static_cast<float>(first ? static_cast<double>(lr) / correction
                                                        : 1.0 / std::sqrt(correction));
  }
  __syncthreads();
  const StepItem& item = list.items[item_of_chunk(list, static_cast<int>(blockIdx.x))];
  const AdamFactors factors{lr,
                            rule.beta1,
                            rule.beta2,
                            rule.eps,
                            factor_of(scalars),
                            corrected[0],
                            corrected[1],
                            rule.decoupled ? 1.0f - lr * item.weight_decay : 1.0f,
                            rule.decoupled ? 0.0f : item.weight_decay};
  step_chunk(item, factors, static_cast<int>(blockIdx.x));
}

__global__ void __launch_bounds__(kThreads)
    sgd_step(const __grid_constant__ StepList list, StepPointers scalars, SgdRule rule) {
  if (leaves_all_untouched(scalars)) return;
  const StepItem& item = list.items[item_of_chunk(list, static_cast<int>(blockIdx.x))];
  const bool buffered = rule.momentum != 0.0f && item.moment1 != nullptr;
  const SgdFactors factors{*scalars.lr,       rule.momentum, rule.keep,          factor_of(scalars),
                           item.weight_decay, rule.nesterov, *scalars.step == 1, buffered};
  step_chunk(item, factors, static_cast<int>(blockIdx.x));
}

__global__ void clip_factor(float* norm, float* factor, const double* sum_of_squares,
                            float max_norm) {
  const float root = std::sqrt(static_cast<float>(*sum_of_squares));
  *norm = root;
  const float quotient = max_norm / (root + 1e-6f);
  // A NaN gives 1: the step asks for the norm.
  *factor = max_norm > 0.0f && quotient < 1.0f ? quotient : 1.0f;
}

template <auto kKernel, class Rule>
void launch_step(const StepTensor* tensors, int count, const StepPointers& scalars,
                 const Rule& rule, cudaStream_t stream) {
  for (int at = 0; at < count;) {
    StepList list;
    for (; at < count && list.count < StepList::kCapacity; ++at) {
      const StepTensor& tensor = tensors[at];
      const std::int64_t chunks = divide_up(tensor.numel, kChunk);
      if (list.count > 0 && list.chunks + chunks > kMostBlocks) break;
      list.items[list.count++] = {tensor.master,
                                  tensor.grad,
                                  tensor.moment1,
                                  tensor.moment2,
                                  static_cast<__nv_bfloat16*>(tensor.working),
                                  tensor.numel,
                                  tensor.weight_decay,
                                  list.chunks};
      list.chunks += static_cast<int>(chunks);
    }
    launch(kKernel, grid_for(list.chunks, 1), dim3(kThreads), 0, stream, list, scalars, rule);
  }
}

}  // namespace

void launch_adam(const StepTensor* tensors, int count, const StepPointers& scalars,
                 const AdamRule& rule, cudaStream_t stream) {
  launch_step<adam_step>(tensors, count, scalars, rule, stream);
}

void launch_sgd(const StepTensor* tensors, int count, const StepPointers& scalars,
                const SgdRule& rule, cudaStream_t stream) {
  launch_step<sgd_step>(tensors, count, scalars, rule, stream);
}

void launch_clip_factor(float* norm, float* factor, const double* sum_of_squares, float max_norm,
                        cudaStream_t stream) {
  launch(clip_factor, dim3(1), dim3(1), 0, stream, norm, factor, sum_of_squares, max_norm);
}

}  // namespace meshloom::kernels::cuda
