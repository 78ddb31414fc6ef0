// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fenced_device/fenced_device.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "kernels/backend_table.h"
#include "kernels/base/error.h"
#include "kernels/base/hash.h"
#include "tests/support/fenced_device/fence_guard.h"

namespace meshloom::testing {
namespace {

struct FencedDevices {
  std::mutex mutex;
  std::array<std::unique_ptr<FencedBackend>, kMostFencedDevices> made;
  std::optional<std::uint64_t> seed;
};

// Never destroyed: memory of a device may be owned by something static.
FencedDevices& fenced_devices() {
  static auto* const devices = new FencedDevices;
  return *devices;
}

std::uint64_t seed_of_environment() {
  const char* const given = std::getenv("MESHLOOM_FENCED_SEED");
  if (given == nullptr) return 1;
  const std::string_view text = given;
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  check(error == std::errc() && end == text.data() + text.size(),
        "MESHLOOM_FENCED_SEED is \"{}\", expected a number", text);
  return seed;
}

std::uint64_t seed_of(FencedDevices& devices) {
  if (!devices.seed) devices.seed = seed_of_environment();
  return *devices.seed;
}

}  // namespace

FencedBackend& fenced_device(int index) {
  check_internal(index >= 0 && index < kMostFencedDevices,
                 "fenced device: there is no cuda:{}, but {} devices", index, kMostFencedDevices);
  FencedDevices& devices = fenced_devices();
  const std::lock_guard lock(devices.mutex);
  auto& device = devices.made[static_cast<std::size_t>(index)];
  if (!device)
    device = std::make_unique<FencedBackend>(
        Device{DeviceKind::kCuda, index},
        hash_mix(seed_of(devices), static_cast<std::uint64_t>(index)));
  return *device;
}

void add_fenced_devices(int count) {
  for (int index = 0; index < count; ++index)
    kernels::add_device({DeviceKind::kCuda, index},
                        [index]() -> kernels::Backend& { return fenced_device(index); });
}

void set_fenced_seed(std::uint64_t seed) {
  FencedDevices& devices = fenced_devices();
  const std::lock_guard lock(devices.mutex);
  devices.seed = seed;
}

std::uint64_t fenced_seed() {
  FencedDevices& devices = fenced_devices();
  const std::lock_guard lock(devices.mutex);
  return seed_of(devices);
}

std::vector<std::string> take_fenced_errors() {
  FencedDevices& devices = fenced_devices();
  const std::lock_guard lock(devices.mutex);
  std::vector<std::string> errors;
  for (const auto& device : devices.made) {
    if (!device) continue;
    for (std::string& error : device->take_errors()) errors.push_back(std::move(error));
  }
  return errors;
}

}  // namespace meshloom::testing
