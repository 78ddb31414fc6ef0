// SPDX-License-Identifier: Apache-2.0
// Functions of the CUDA backend that the emulated device has in its own way: it watches the blocks
// of allocators, and computes with the CPU's kernels in the place of libraries.
#include "kernels/cuda/runtime/library_versions.h"
#include "kernels/cuda/runtime/memory_watch.h"
#include "tests/support/cuda_emulator/emulator.h"
#include "tests/support/cuda_emulator/shadow.h"

namespace meshloom::kernels::cuda {

std::size_t watched_guard_bytes() { return emulator::Shadow::kGranule; }
void watch_unused(std::byte* data, std::size_t bytes) { emulator::poison(data, bytes); }
void watch_used(std::byte* data, std::size_t bytes) { emulator::unpoison(data, bytes); }

std::string library_versions() { return "the CPU's kernels on an emulated device"; }

}  // namespace meshloom::kernels::cuda
