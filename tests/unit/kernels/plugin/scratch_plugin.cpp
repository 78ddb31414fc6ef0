// SPDX-License-Identifier: Apache-2.0
// A plugin with two devices, cuda:40 and cuda:41, whose backends throw when they are asked for.
// With SCRATCH_ABI it says another ABI number, with SCRATCH_REFUSAL its entry throws.
#include <stdexcept>

#include "kernels/base/error.h"
#include "kernels/plugin/plugin_interface.h"

namespace meshloom::kernels {
namespace {

[[noreturn]] void refuse_device(int index) {
  switch (index) {
    case 40:
      throw ResourceExhausted(fmt::format("cuda:{} is full", index), "OUT_OF_MEMORY",
                              {{"asked", "17"}});
    default: throw std::out_of_range("cuda:41 is out of range");
  }
}

}  // namespace
}  // namespace meshloom::kernels

extern "C" __attribute__((visibility("default"))) std::uint32_t meshloom_plugin(
    std::uint32_t abi, meshloom::kernels::PluginHost& host) {
  using namespace meshloom;
  using namespace meshloom::kernels;
#ifdef SCRATCH_ABI
  constexpr std::uint32_t kOwnAbi = SCRATCH_ABI;
#else
  constexpr std::uint32_t kOwnAbi = kPluginAbi;
#endif
  if (abi != kOwnAbi) return kOwnAbi;
#ifdef SCRATCH_REFUSAL
  throw FailedPrecondition("no GPU of its kind is found: check the power", "NO_DEVICE");
#endif
  for (const int index : {40, 41})
    host.add_device({DeviceKind::kCuda, index}, [index]() -> Backend& { refuse_device(index); });
  return kOwnAbi;
}
