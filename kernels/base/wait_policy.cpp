// SPDX-License-Identifier: Apache-2.0
// Lets OpenMP workers sleep between parallel regions, unless OMP_WAIT_POLICY says otherwise.
//
// Workers that spin keep other ranks and processes off shared cores, which costs far more than
// waking up. libgomp reads the variable when it is loaded, before any constructor of the program;
// only .preinit_array runs earlier. A program links this object; a shared library cannot.
#include <cstdlib>

namespace {

void prefer_sleeping_workers() { ::setenv("OMP_WAIT_POLICY", "passive", 0); }

[[gnu::section(".preinit_array"),
  gnu::used]] void (*before_constructors)() = prefer_sleeping_workers;

}  // namespace
