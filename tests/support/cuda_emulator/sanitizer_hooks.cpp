// SPDX-License-Identifier: Apache-2.0
// What g++ calls before each load and store of a file that it compiles with -fsanitize=thread, and
// for each misaligned pointer with -fsanitize=alignment. The sanitizers' own libraries are not
// linked to these files. Code of the host in them passes freely.
#include <fmt/format.h>

#include <cstdlib>

#include "tests/support/cuda_emulator/access_check.h"
#include "tests/support/cuda_emulator/running_block.h"

namespace meshloom::emulator {
namespace {

/// Whether the caller of a hook runs on the stack of a kernel's thread.
inline bool in_kernel(const void* frame) {
  return g_running_block != nullptr && g_running_block->stacks.contains(frame);
}

void set_misaligned(const char* file, unsigned line, std::uintptr_t address) {
  RunningBlock& block = running_block();
  block.fault = {cudaErrorMisalignedAddress,
                 fmt::format("a misaligned address: {:#x}, by {} at {}:{}", address,
                             thread_text(block.current), file, line)};
}

}  // namespace

void check_atomic(const void* address, std::size_t bytes, Site site) {
  RunningBlock& block = running_block();
  block.threads[block.current].site = site;
  check_access(address, bytes, Access::kAtomic, true, nullptr);
}

}  // namespace meshloom::emulator

using meshloom::emulator::Access;

#define MESHLOOM_HOOK(NAME, BYTES, ACCESS, ALIGNED)                             \
  extern "C" void NAME(void* address) {                                         \
    if (meshloom::emulator::in_kernel(__builtin_frame_address(0)))              \
      meshloom::emulator::check_access(address, BYTES, Access::ACCESS, ALIGNED, \
                                       __builtin_return_address(0));            \
  }
MESHLOOM_HOOK(__tsan_read1, 1, kRead, true)
MESHLOOM_HOOK(__tsan_read2, 2, kRead, true)
MESHLOOM_HOOK(__tsan_read4, 4, kRead, true)
MESHLOOM_HOOK(__tsan_read8, 8, kRead, true)
MESHLOOM_HOOK(__tsan_read16, 16, kRead, true)
MESHLOOM_HOOK(__tsan_write1, 1, kWrite, true)
MESHLOOM_HOOK(__tsan_write2, 2, kWrite, true)
MESHLOOM_HOOK(__tsan_write4, 4, kWrite, true)
MESHLOOM_HOOK(__tsan_write8, 8, kWrite, true)
MESHLOOM_HOOK(__tsan_write16, 16, kWrite, true)
// Accesses that the compiler joined, or whose type asks for less alignment than their size.
MESHLOOM_HOOK(__tsan_unaligned_read2, 2, kRead, false)
MESHLOOM_HOOK(__tsan_unaligned_read4, 4, kRead, false)
MESHLOOM_HOOK(__tsan_unaligned_read8, 8, kRead, false)
MESHLOOM_HOOK(__tsan_unaligned_read16, 16, kRead, false)
MESHLOOM_HOOK(__tsan_unaligned_write2, 2, kWrite, false)
MESHLOOM_HOOK(__tsan_unaligned_write4, 4, kWrite, false)
MESHLOOM_HOOK(__tsan_unaligned_write8, 8, kWrite, false)
MESHLOOM_HOOK(__tsan_unaligned_write16, 16, kWrite, false)
#undef MESHLOOM_HOOK

extern "C" void __tsan_read_range(void* address, std::size_t bytes) {
  if (meshloom::emulator::in_kernel(__builtin_frame_address(0)))
    meshloom::emulator::check_access(address, bytes, Access::kRead, false,
                                     __builtin_return_address(0));
}

extern "C" void __tsan_write_range(void* address, std::size_t bytes) {
  if (meshloom::emulator::in_kernel(__builtin_frame_address(0)))
    meshloom::emulator::check_access(address, bytes, Access::kWrite, false,
                                     __builtin_return_address(0));
}

extern "C" void __tsan_init() {}
// Files that the preset tsan compiles call these, where they share a library with kernels.
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}

/// The compiler's description of a pointer that is null or misaligned for its type.
struct MisalignedPointer {
  const char* file;
  std::uint32_t line;
  std::uint32_t column;
};

// Before any optimisation takes a vector apart.
extern "C" void __ubsan_handle_type_mismatch_v1(MisalignedPointer* pointer,
                                                std::uintptr_t address) {
  if (meshloom::emulator::in_kernel(__builtin_frame_address(0))) {
    meshloom::emulator::set_misaligned(pointer->file, pointer->line, address);
    meshloom::emulator::abandon_block();
  }
  fmt::print(stderr, "{}:{}: the host uses the misaligned address {:#x}\n", pointer->file,
             pointer->line, address);
  std::abort();
}
