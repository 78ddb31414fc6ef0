// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/library_versions.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <fmt/format.h>

namespace meshloom::kernels::cuda {

// cuBLASLt counts 10000 for a major version up to 12 and from 13 on alike, cuDNN 10000 from 9 on.
std::string library_versions() {
  const std::size_t cublas = cublasLtGetVersion(), cudnn = cudnnGetVersion();
  return fmt::format("cuBLASLt {}.{}.{}, cuDNN {}.{}.{}", cublas / 10000, cublas / 100 % 100,
                     cublas % 100, cudnn / 10000, cudnn / 100 % 100, cudnn % 100);
}

}  // namespace meshloom::kernels::cuda
