// SPDX-License-Identifier: Apache-2.0
// What this CPU does fast: its class, and the dtype that `dtype: auto` means here.
#pragma once

#include <optional>
#include <string_view>

#include "kernels/base/dtype.h"

namespace meshloom::kernels::cpu {

/// Classes of CPU that differ in which matmul provider and dtype are fast, lowest first. Results
/// are bitwise reproducible within one class.
enum class CpuClass { kSse4, kAvx2, kAvx512, kAvx512Bf16, kAmx };

/// "sse4", "avx2", "avx512", "avx512_bf16", "amx".
const char* cpu_class_name(CpuClass cpu_class);
std::optional<CpuClass> cpu_class_from_name(std::string_view name);

/// The class of the hardware and operating system: CPUID, the state that XCR0 lets programs use
/// and, for AMX, the kernel's permission (asked for on the first call). CPUs that are not x86 count
/// as kSse4: the class with nothing special.
CpuClass hardware_cpu_class();

/// The class in use: the hardware's, or the lower one that MESHLOOM_CPU_CLASS names (for tests and
/// for reproducing another machine's numbers; a higher one or an unknown name throws
/// InvalidArgument). Read once. The first call also lowers the own kernels and oneDNN to that
/// class; OpenBLAS reads OPENBLAS_CORETYPE when it is loaded, so set that too.
CpuClass cpu_class();

/// What `dtype: auto` means on a CPU of this class: bfloat16 where bf16 matmuls train faster than
/// float32, else float32.
DType fast_dtype(CpuClass cpu_class);
inline DType fast_dtype() { return fast_dtype(cpu_class()); }

}  // namespace meshloom::kernels::cpu
