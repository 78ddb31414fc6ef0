// SPDX-License-Identifier: Apache-2.0
// Atomic instructions: the one way in which two blocks of a launch may touch one byte.
#pragma once

#include <cstddef>
#include <type_traits>

#include "tests/support/cuda_emulator/device/emulated_thread.h"

namespace meshloom::emulator {

/// Checks an atomic access of the running thread, as the hooks check others.
void check_atomic(const void* address, std::size_t bytes, Site site);

}  // namespace meshloom::emulator

// `old` is what the address held, `value` the argument. The kernel's own load and store would count
// as plain ones, hence no_sanitize. Threads are fibers of one thread of the host.
#define MESHLOOM_EMULATED_ATOMIC(NAME, RESULT)                               \
  template <class T>                                                         \
  __attribute__((noinline, no_sanitize("thread"))) T NAME(                   \
      T* address, std::type_identity_t<T> value,                             \
      meshloom::emulator::Site site = meshloom::emulator::Site::current()) { \
    meshloom::emulator::check_atomic(address, sizeof(T), site);              \
    const T old = *address;                                                  \
    *address = RESULT;                                                       \
    return old;                                                              \
  }
MESHLOOM_EMULATED_ATOMIC(atomicAdd, old + value)
MESHLOOM_EMULATED_ATOMIC(atomicMax, old < value ? value : old)
MESHLOOM_EMULATED_ATOMIC(atomicMin, value < old ? value : old)
MESHLOOM_EMULATED_ATOMIC(atomicOr, old | value)
MESHLOOM_EMULATED_ATOMIC(atomicAnd, old& value)
MESHLOOM_EMULATED_ATOMIC(atomicExch, value)
#undef MESHLOOM_EMULATED_ATOMIC

template <class T>
__attribute__((noinline, no_sanitize("thread"))) T atomicCAS(
    T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value,
    meshloom::emulator::Site site = meshloom::emulator::Site::current()) {
  meshloom::emulator::check_atomic(address, sizeof(T), site);
  const T old = *address;
  if (old == expected) *address = value;
  return old;
}
