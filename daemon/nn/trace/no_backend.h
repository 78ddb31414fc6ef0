// SPDX-License-Identifier: Apache-2.0
// A backend without a device: what it is asked to compute it leaves.
#pragma once

#include "kernels/backend.h"

namespace meshloom::nn {

/// Serves contexts whose tensors are looked at by shape alone. Its memory is reserved, never read
/// or written. Used by any thread.
kernels::Backend& no_backend();

}  // namespace meshloom::nn
