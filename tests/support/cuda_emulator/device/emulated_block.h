// SPDX-License-Identifier: Apache-2.0
// Barriers of a block and its shared memory.
#pragma once

#include <cstddef>
#include <type_traits>

#include "tests/support/cuda_emulator/device/emulated_thread.h"

namespace meshloom::emulator {

/// What a barrier gives: the sum over the block of what its threads bring.
int meet_at_barrier(int value, Site site);

/// Shared memory of the block for the variable with this key. Each launch places it anew.
void* shared_variable(const void* key, std::size_t bytes, std::size_t alignment);
/// The shared memory that the launch asked for.
void* dynamic_shared();

}  // namespace meshloom::emulator

inline void __syncthreads(meshloom::emulator::Site site = meshloom::emulator::Site::current()) {
  meshloom::emulator::meet_at_barrier(0, site);
}

inline int __syncthreads_count(
    int predicate, meshloom::emulator::Site site = meshloom::emulator::Site::current()) {
  return meshloom::emulator::meet_at_barrier(predicate != 0, site);
}

inline int __syncthreads_or(int predicate,
                            meshloom::emulator::Site site = meshloom::emulator::Site::current()) {
  return meshloom::emulator::meet_at_barrier(predicate != 0, site) != 0;
}

inline int __syncthreads_and(int predicate,
                             meshloom::emulator::Site site = meshloom::emulator::Site::current()) {
  return meshloom::emulator::meet_at_barrier(predicate == 0, site) == 0;
}

#define MESHLOOM_SHARED(name, ...)                                             \
  using name##_shared_type = ::std::type_identity_t<__VA_ARGS__>;              \
  static const char name##_shared_key = 0;                                     \
  name##_shared_type& name =                                                   \
      *static_cast<name##_shared_type*>(::meshloom::emulator::shared_variable( \
          &name##_shared_key, sizeof(name##_shared_type), alignof(name##_shared_type)))
#define MESHLOOM_DYNAMIC_SHARED(name, T) \
  T* name = static_cast<T*>(::meshloom::emulator::dynamic_shared())
