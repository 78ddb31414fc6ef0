// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/simd/targets.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <atomic>

#include "kernels/base/error.h"

namespace meshloom::kernels::cpu {
namespace {

std::vector<std::int64_t> compiled_and_supported() {
  std::vector<std::int64_t> found;
  for (std::int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1)
    found.push_back(rest & -rest);
  return found;
}

// Highway asks the CPU at every call, which takes tens of microseconds in a virtual machine.
std::atomic<std::int64_t>& supported() {
  static std::atomic<std::int64_t> mask{hwy::SupportedTargets()};
  return mask;
}

void choose(std::int64_t mask) {
  hwy::SetSupportedTargetsForTest(mask);
  supported() = hwy::SupportedTargets();
  hwy::GetChosenTarget().Update(supported());
}

}  // namespace

std::vector<std::string> available_targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : compiled_and_supported())
    names.emplace_back(hwy::TargetName(target));
  return names;
}

std::string current_target() { return hwy::TargetName(compiled_and_supported().front()); }

bool runs_avx512() { return (supported() & HWY_TARGETS & HWY_AVX3) != 0; }

void force_target(std::string_view name) {
  choose(0);
  if (name.empty()) return;
  for (const std::int64_t target : compiled_and_supported()) {
    if (name == hwy::TargetName(target)) return choose(target);
  }
  throw InvalidArgument(fmt::format("instruction set {}: not available here; there are {}", name,
                                    fmt::join(available_targets(), ", ")));
}

}  // namespace meshloom::kernels::cpu
