// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/memory_watch.h"

namespace meshloom::kernels::cuda {

std::size_t watched_guard_bytes() { return 0; }
void watch_unused(std::byte*, std::size_t) {}
void watch_used(std::byte*, std::size_t) {}

}  // namespace meshloom::kernels::cuda
