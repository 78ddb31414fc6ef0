// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/fibers.h"

#include <sys/mman.h>

#include <new>

// The registers that a call keeps, by the ABI of x86-64.
asm(R"(
.text
.globl meshloom_emulator_switch
.hidden meshloom_emulator_switch
.type meshloom_emulator_switch, @function
meshloom_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size meshloom_emulator_switch, . - meshloom_emulator_switch
)");

namespace meshloom::emulator {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kKeptRegisters = 6;

}  // namespace

FiberStacks::FiberStacks() {
  void* const data = ::mmap(nullptr, (kMostThreads + 1) * kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  begin_ = (reinterpret_cast<std::uintptr_t>(data) + kStackBytes - 1) & ~(kStackBytes - 1);
  // Between a stack and its context, so that a stack that is too deep ends the process there.
  for (unsigned thread = 0; thread < kMostThreads; ++thread)
    ::mprotect(reinterpret_cast<std::byte*>(&context(thread)) + kPage, kPage, PROT_NONE);
}

void* FiberStacks::prepare(unsigned thread, void (*entry)()) const {
  // Stacks begin at different sets of the caches.
  const std::uintptr_t top = begin_ + (thread + 1) * kStackBytes - 64 - thread % 61 * 320;
  auto** slot = reinterpret_cast<void**>(top);
  *--slot = nullptr;
  *--slot = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kKeptRegisters; ++i) *--slot = nullptr;
  return slot;
}

}  // namespace meshloom::emulator
