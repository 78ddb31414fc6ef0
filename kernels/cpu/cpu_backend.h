// SPDX-License-Identifier: Apache-2.0
// The CPU backend: own kernels by Highway with run-time dispatch, matmul by oneDNN or OpenBLAS.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// The process's CPU backend. Stateless apart from caches of compiled oneDNN primitives; safe from
/// any thread.
Backend& cpu_backend();

/// Adds the CPU to the table of devices (kernels/backend_table.h).
void add_cpu_device();

}  // namespace meshloom::kernels::cpu
