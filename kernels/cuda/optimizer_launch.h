// SPDX-License-Identifier: Apache-2.0
// Launches of the optimizer's kernels: plain data of kernels/options.h.
#pragma once

#include <driver_types.h>

#include <cstdint>

namespace meshloom::kernels::cuda {

/// One parameter with elements. Pointers to the device's memory; those that are not given are null.
struct StepTensor {
  float* master;
  const float* grad;
  float* moment1;
  float* moment2;
  void* working;  ///< bfloat16
  std::int64_t numel;
  float weight_decay;
};

/// Scalars in the device's memory; the last three may be null.
struct StepPointers {
  const float* lr;
  const std::int64_t* step;
  const float* grad_factor;
  const float* grad_norm;
  const double* loss;
};

struct AdamRule {
  float beta1, beta2, eps;
  bool decoupled;
};

struct SgdRule {
  float momentum, keep;  ///< keep: 1 - dampening
  bool nesterov;
};

/// One launch for every 256 parameters or 2^31 chunks.
void launch_adam(const StepTensor* tensors, int count, const StepPointers& scalars,
                 const AdamRule& rule, cudaStream_t stream);
void launch_sgd(const StepTensor* tensors, int count, const StepPointers& scalars,
                const SgdRule& rule, cudaStream_t stream);

void launch_clip_factor(float* norm, float* factor, const double* sum_of_squares, float max_norm,
                        cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
