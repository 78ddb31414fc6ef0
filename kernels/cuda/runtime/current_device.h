// SPDX-License-Identifier: Apache-2.0
// Which device the calling thread's calls of CUDA's runtime go to.
#pragma once

namespace meshloom::kernels::cuda {

/// Makes `index` the calling thread's device, and the context on it at the first call of the
/// process. Nothing else in the process changes a thread's device for good.
void use_device(int index);

/// Whether any thread has called use_device for it: whether there is a context to ask.
bool is_in_use(int index);

}  // namespace meshloom::kernels::cuda
