// SPDX-License-Identifier: Apache-2.0
// Copies between the memory of two ranks.
#pragma once

#include <cstddef>

#include "kernels/base/parallel_for.h"

namespace meshloom::comm {

/// Copies by all threads if there is enough for each. `whole` is the size of what these bytes are a
/// part of: if no cache holds that afterwards anyway, it is written past the caches, in order
/// before whatever this thread stores next.
void copy_memory(Threads threads, std::byte* to, const std::byte* from, std::size_t bytes,
                 std::size_t whole);

}  // namespace meshloom::comm
