// SPDX-License-Identifier: Apache-2.0
// How a program that computes on the CPU says so at its start.
#pragma once

namespace meshloom::kernels::cpu {

/// Adds the CPU to the table of devices (kernels/backend_table.h). Its backend is made when the
/// table is first asked for it.
void add_cpu_device();

}  // namespace meshloom::kernels::cpu
