// SPDX-License-Identifier: Apache-2.0
// A library's way of computing attention of one shape, forward or backward.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "kernels/cuda/attention/sdpa_rule.h"

namespace meshloom::kernels::cuda {

/// Addresses of one run. A forward run writes o and lse; a backward one reads them and grad_o, and
/// writes dq, dk and dv.
struct SdpaRun {
  void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *lse = nullptr;
  void *grad_o = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

/// Made once for a shape. A run allocates nothing, and its bits depend on the shape and the values
/// alone. For any thread.
class SdpaPlan {
 public:
  virtual ~SdpaPlan() = default;
  /// Bytes of device memory, aligned to 256, that a run needs.
  virtual std::size_t workspace_bytes() const = 0;
  /// Queues the work. Throws InternalError with what the library says.
  virtual void run(cudaStream_t stream, const SdpaRun& run, void* workspace) = 0;
};

/// A plan for a device of this process. Null where the library cannot build one: the log says why.
/// Throws InternalError if the library cannot be used.
std::unique_ptr<SdpaPlan> create_sdpa_plan(int device, const SdpaShape& shape);

}  // namespace meshloom::kernels::cuda
