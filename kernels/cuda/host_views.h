// SPDX-License-Identifier: Apache-2.0
// From the host's views and streams to what launch functions take. For .cpp files alone.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/backend.h"
#include "kernels/cuda/device_view.h"
#include "kernels/cuda/runtime/streams.h"

namespace meshloom::kernels::cuda {

inline DeviceView device_view(const TensorView& view) {
  static_assert(DeviceView::kMostDims == kMaxDims);
  DeviceView plain;
  plain.data = view.data;
  plain.dtype = view.dtype;
  plain.dims = view.ndim();
  plain.numel = view.defined() ? view.numel() : 0;
  for (int dim = 0; dim < view.ndim(); ++dim) {
    plain.sizes[dim] = view.size(dim);
    plain.strides[dim] = view.stride(dim);
  }
  return plain;
}

/// The stream as launch functions take it. Every call asks for it before it gives work, since that
/// makes the stream's device the calling thread's.
inline cudaStream_t stream_of(const KernelContext& context) { return use_stream(context.stream); }

}  // namespace meshloom::kernels::cuda
