// SPDX-License-Identifier: Apache-2.0
// Rows of a table by id, and the gradient of the table: calls of Backend on CUDA.
#include "kernels/base/error.h"
#include "kernels/base/format.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/embedding_launch.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {

void CudaBackend::embedding(const KernelContext& context, const TensorView& y,
                            const TensorView& weight, const TensorView& ids) {
  if (y.numel() == 0) return;
  launch_embedding(device_view(y), device_view(weight), device_view(ids), stream_of(context));
}

void CudaBackend::embedding_backward(const KernelContext& context, const TensorView& dweight,
                                     const TensorView& dy, const TensorView& ids,
                                     std::int64_t padding_idx) {
  const std::int64_t count = ids.numel();
  if (count == 0 || dweight.numel() == 0) return;
  if (count > kMostEmbeddingIds || dweight.size(0) > kMostEmbeddingIds)
    throw Unimplemented(fmt::format(
        "embedding_backward of {} ids into {} rows on cuda, expected at most {} of each", count,
        dweight.size(0), kMostEmbeddingIds));
  void* const scratch =
      reserve_scratch(context, embedding_backward_scratch(count), "embedding_backward").data();
  launch_embedding_backward(device_view(dweight), device_view(dy), device_view(ids), padding_idx,
                            scratch, stream_of(context));
}

}  // namespace meshloom::kernels::cuda
