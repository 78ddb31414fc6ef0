// SPDX-License-Identifier: Apache-2.0
// Output projection and cross entropy by chunks of rows: calls of Backend on CUDA.
#include "kernels/cuda/output_loss_launch.h"

#include <algorithm>

#include "kernels/base/integer_math.h"
#include "kernels/base/loss_pieces.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {
namespace {

// Rows of logits and of their gradients begin at a multiple of 128 bytes, as products and 16-byte
// loads want them.
constexpr std::int64_t kRowElements = 64;

MatmulOptions adding(bool accumulate) {
  MatmulOptions options;
  options.beta = accumulate ? 1.0f : 0.0f;
  return options;
}

}  // namespace

OutputLossPlan CudaBackend::output_loss_plan(const TensorView& hidden, const TensorView& weight,
                                             std::int64_t widest) const {
  OutputLossPlan plan;
  plan.row = round_up(std::max<std::int64_t>(weight.size(0), 1), kRowElements);
  if (hidden.dtype == DType::kFloat64) plan.logits = DType::kFloat64;
  // The products of the gradient want it in the dtype of hidden and weight.
  plan.gradient = hidden.dtype;
  if (hidden.size(0) == 0) return plan;
  const auto element = static_cast<std::int64_t>(dtype_size(plan.logits));
  const LossPieces pieces = device_loss_pieces(hidden.size(0), widest * element);
  plan.block = pieces.block;
  plan.chunk = pieces.chunk;
  return plan;
}

void CudaBackend::output_loss_chunk(const KernelContext& context, const CrossEntropyRows& rows,
                                    const OutputProjection& projection,
                                    const CrossEntropyOptions& options) {
  MatmulOptions product;
  if (projection.bias.defined()) {
    product.epilogue = Epilogue::kBias;
    product.bias = projection.bias;
  }
  matmul(context, rows.logits, projection.hidden, transposed_matrix(projection.weight), product);
  cross_entropy(context, rows, options);
}

void CudaBackend::output_loss_products(const KernelContext& context, const OutputLossGrads& grads,
                                       const TensorView& gradient,
                                       const OutputProjection& projection) {
  const auto& [dhidden, dweight, dbias, accumulate_params] = grads;
  if (dhidden.defined()) matmul(context, dhidden, gradient, projection.weight, {});
  if (dweight.defined())
    matmul(context, dweight, transposed_matrix(gradient), projection.hidden,
           adding(accumulate_params));
  if (!dbias.defined() || gradient.numel() == 0) return;
  const DeviceView plain = device_view(gradient);
  void* const scratch =
      reserve_scratch(context, bias_grad_scratch(plain), "output_loss_products").data();
  launch_bias_grad(device_view(dbias), plain, accumulate_params, scratch, stream_of(context));
}

}  // namespace meshloom::kernels::cuda
