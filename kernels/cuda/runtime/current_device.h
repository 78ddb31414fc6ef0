// SPDX-License-Identifier: Apache-2.0
// Which device the calling thread's calls of CUDA's runtime go to, and what kind a device is of.
#pragma once

#include <string>

namespace meshloom::kernels::cuda {

/// Makes `index` the calling thread's device, and the context on it at the first call of the
/// process. Nothing else in the process changes a thread's device for good.
void use_device(int index);

/// Whether any thread has called use_device for it: whether there is a context to ask.
bool is_in_use(int index);

/// "sm_90", by its compute capability. Makes no context. For any thread.
std::string device_class(int index);
/// Whether it multiplies float8: sm_89 and newer.
bool has_float8_products(int index);

}  // namespace meshloom::kernels::cuda
