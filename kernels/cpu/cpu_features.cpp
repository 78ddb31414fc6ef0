// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_features.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "kernels/base/error.h"
#include "kernels/cpu/matmul/matmul_onednn.h"
#include "kernels/cpu/simd/targets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace meshloom::kernels::cpu {
namespace {

struct ClassName {
  CpuClass cpu_class;
  const char* name;
};

constexpr std::array<ClassName, 5> kNames{{{CpuClass::kSse4, "sse4"},
                                           {CpuClass::kAvx2, "avx2"},
                                           {CpuClass::kAvx512, "avx512"},
                                           {CpuClass::kAvx512Bf16, "avx512_bf16"},
                                           {CpuClass::kAmx, "amx"}}};

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

constexpr bool bit(std::uint64_t word, int index) { return (word >> index) & 1u; }

// Which register state the operating system saves: 0 where XGETBV is not there.
std::uint64_t enabled_state() {
  if (!bit(cpuid(1, 0).ecx, 27)) return 0;
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

CpuClass detect() {
  const std::uint64_t state = enabled_state();
  const Registers base = cpuid(1, 0);
  const Registers leaf7 = cpuid(7, 0);
  const bool ymm = (state & 0x6u) == 0x6u;
  const bool zmm = ymm && (state & 0xe0u) == 0xe0u;
  const bool tiles = zmm && (state & 0x60000u) == 0x60000u;
  // AVX2, FMA, F16C and BMI2 together: what every AVX2 code path here assumes.
  if (!ymm || !bit(leaf7.ebx, 5) || !bit(leaf7.ebx, 8) || !bit(base.ecx, 12) || !bit(base.ecx, 29))
    return CpuClass::kSse4;
  // AVX512 F, DQ, CD, BW, VL.
  const bool avx512 = zmm && bit(leaf7.ebx, 16) && bit(leaf7.ebx, 17) && bit(leaf7.ebx, 28) &&
                      bit(leaf7.ebx, 30) && bit(leaf7.ebx, 31);
  if (!avx512) return CpuClass::kAvx2;
  if (!bit(cpuid(7, 1).eax, 5)) return CpuClass::kAvx512;
  // Linux gives a process the tile registers only on request (tile data = 18).
  constexpr int kRequestPermission = 0x1023;
  const bool amx = tiles && bit(leaf7.edx, 22) && bit(leaf7.edx, 24) &&
                   syscall(SYS_arch_prctl, kRequestPermission, 18) == 0;
  return amx ? CpuClass::kAmx : CpuClass::kAvx512Bf16;
}

#else

CpuClass detect() { return CpuClass::kSse4; }

#endif

CpuClass requested_class() {
  const CpuClass hardware = hardware_cpu_class();
  const char* text = std::getenv("MESHLOOM_CPU_CLASS");
  if (text == nullptr || *text == '\0') return hardware;
  const std::optional<CpuClass> wanted = cpu_class_from_name(text);
  check(wanted.has_value(),
        "MESHLOOM_CPU_CLASS: unknown class \"{}\" (sse4, avx2, avx512, avx512_bf16, amx)", text);
  check(*wanted <= hardware, "MESHLOOM_CPU_CLASS: \"{}\" is above this CPU's class \"{}\"", text,
        cpu_class_name(hardware));
  return *wanted;
}

CpuClass settle() {
  const CpuClass wanted = requested_class();
  if (wanted == hardware_cpu_class()) return wanted;
  // The best own-kernel target at or below the class that was compiled in.
  const std::string name = wanted >= CpuClass::kAvx512 ? "AVX3"
                           : wanted == CpuClass::kAvx2 ? "AVX2"
                                                       : "SSE4";
  for (const std::string& available : available_targets())
    if (available == name) force_target(name);
  lower_onednn(wanted);
  return wanted;
}

bool model_tiles = false;

}  // namespace

const char* cpu_class_name(CpuClass cpu_class) {
  for (const ClassName& entry : kNames)
    if (entry.cpu_class == cpu_class) return entry.name;
  return "unknown";
}

std::optional<CpuClass> cpu_class_from_name(std::string_view name) {
  for (const ClassName& entry : kNames)
    if (entry.name == name) return entry.cpu_class;
  return std::nullopt;
}

CpuClass hardware_cpu_class() {
  static const CpuClass found = detect();
  return found;
}

CpuClass cpu_class() {
  static const CpuClass in_use = settle();
  return in_use;
}

TileRegisters tile_registers() {
  if (!bfloat16_dot_products()) return TileRegisters::kNone;
  if (cpu_class() >= CpuClass::kAmx) return TileRegisters::kAmx;
  return model_tiles ? TileRegisters::kModel : TileRegisters::kNone;
}

void force_model_tiles(bool model) { model_tiles = model; }

bool bfloat16_dot_products() { return cpu_class() >= CpuClass::kAvx512Bf16 && runs_avx512(); }

DType fast_dtype(CpuClass cpu_class, std::int64_t channels) {
  // The narrowest model that was measured; narrower ones are as fast in float32 for what they do
  // beside products.
  constexpr std::int64_t kChannels = 128;
  const bool bfloat16 = cpu_class >= CpuClass::kAvx512Bf16 && channels >= kChannels;
  return bfloat16 ? DType::kBFloat16 : DType::kFloat32;
}

}  // namespace meshloom::kernels::cpu
