// SPDX-License-Identifier: Apache-2.0
// What this CPU does fast: its class, and the dtype that `dtype: auto` means here.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/base/dtype.h"

namespace meshloom::kernels::cpu {

/// CpuClass lists classes of CPU that differ in which matmul provider and dtype are fast, lowest
/// first. Results are bitwise reproducible within one class.
enum class CpuClass { kSse4, kAvx2, kAvx512, kAvx512Bf16, kAmx };

/// Returns "sse4", "avx2", "avx512", "avx512_bf16", "amx".
const char* cpu_class_name(CpuClass cpu_class);
std::optional<CpuClass> cpu_class_from_name(std::string_view name);

/// Returns the class of the hardware and operating system: CPUID, the state that XCR0 lets programs
/// use and, for AMX, the kernel's permission (asked for on the first call). CPUs that are not x86
/// count as kSse4: the class with nothing special.
CpuClass hardware_cpu_class();

/// Returns the class in use: the hardware's, or the lower one that MESHLOOM_CPU_CLASS names (for
/// tests and for reproducing another machine's numbers; a higher one or an unknown name throws
/// InvalidArgument). Read once. The first call also lowers the own kernels and oneDNN to that
/// class; OpenBLAS reads OPENBLAS_CORETYPE when it is loaded, so set that too.
CpuClass cpu_class();

/// Tells whether own kernels may use dot products of bfloat16 pairs now: the class has them, and
/// the instruction set of own kernels is not forced below.
bool bfloat16_dot_products();

/// It says which tile registers (matrix_tiles.h) own kernels multiply bfloat16 with now: those of
/// AMX where the class has them and the instruction set of own kernels is not forced below.
enum class TileRegisters { kNone, kModel, kAmx };
TileRegisters tile_registers();

/// From now on all own kernels of the process use the model where the CPU has none, or no longer:
/// for tests. It needs AVX512_BF16. Not to be called while kernels run.
void force_model_tiles(bool model);

/// Returns what `dtype: auto` means on a CPU of this class for a model of so many channels (hidden
/// size): bfloat16 where that trains faster than float32, else float32. A fixed table; nothing is
/// timed.
DType fast_dtype(CpuClass cpu_class, std::int64_t channels);

}  // namespace meshloom::kernels::cpu
