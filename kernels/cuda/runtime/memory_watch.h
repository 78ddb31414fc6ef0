// SPDX-License-Identifier: Apache-2.0
// What watches device memory, where something does: nothing on a GPU, and the emulated device of
// the tests, which has functions of its own in place of memory_watch.cpp.
#pragma once

#include <cstddef>

namespace meshloom::kernels::cuda {

/// Bytes that nobody may touch behind every block of device memory.
std::size_t watched_guard_bytes();
/// Nobody owns these bytes of a segment, or somebody does and may write them first.
void watch_unused(std::byte* data, std::size_t bytes);
void watch_used(std::byte* data, std::size_t bytes);

}  // namespace meshloom::kernels::cuda
