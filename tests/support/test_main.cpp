// SPDX-License-Identifier: Apache-2.0
// The main of test programs: GoogleTest's, with the devices that tests can compute on.
//
//   --device cpu|fenced|cuda|cuda-emulated   what test_device() gives
//   --seed N                                 of the order of work on fenced and emulated devices
//   --launches FILE                          what an emulated device launched: a line for each
//   kernel with its
//                                            launches, threads of a block, dynamic shared memory,
//                                            bytes moved and the fewest, then its name
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/error.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/support/fenced_device/fenced_device.h"
#include "tests/support/test_backend.h"
#include "tests/support/test_device.h"

namespace meshloom::testing {
namespace {

constexpr int kFencedDevices = 16;

/// Lets a test fail whose device met an error that nobody waited for.
class DeviceErrors final : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    for (const std::string& error : take_fenced_errors()) ADD_FAILURE() << error;
    for (const std::string& fault : take_test_backend_faults()) ADD_FAILURE() << fault;
  }
};

// The command line gives it before devices are loaded.
std::optional<std::uint64_t> g_seed;
std::string g_launches_file;

bool choose_seed(std::string_view text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  set_fenced_seed(seed);
  g_seed = seed;
  return true;
}

bool refuse(std::string_view option, std::string_view value, const char* expected) {
  fmt::print(stderr, "{} is \"{}\", expected {}\n", option, value, expected);
  return false;
}

/// Takes the options of this program out of the arguments. False, with a text, for a wrong value.
bool take_options(int& argc, char** argv) {
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option != "--device" && option != "--seed" && option != "--launches") {
      argv[kept++] = argv[i];
      continue;
    }
    const std::string_view value = i + 1 < argc ? argv[++i] : "";
    if (option == "--device" && !choose_test_device(value))
      return refuse(option, value, "cpu, fenced, cuda or cuda-emulated");
    if (option == "--seed" && !choose_seed(value)) return refuse(option, value, "a number");
    if (option != "--launches") continue;
    if (value.empty()) return refuse(option, value, "a file");
    g_launches_file = value;
  }
  argc = kept;
  argv[argc] = nullptr;
  return true;
}

/// Fills the table with the CPU, and with the chosen device or else fenced ones. False, with a
/// text, where there is none.
bool add_devices() {
  kernels::cpu::add_cpu_device();
  if (!test_device_name().starts_with("cuda")) {
    add_fenced_devices(kFencedDevices);
    if (test_device() != kCpuDevice) fmt::print("fenced devices: --seed {}\n", fenced_seed());
    return true;
  }
  try {
    load_test_backend(test_device_name());
  } catch (const Error& error) {
    fmt::print(stderr, "--device {}: {}\n", test_device_name(), error.what());
    return false;
  }
  if (g_seed) set_test_backend_seed(*g_seed);
  return true;
}

bool start_records() {
  return g_launches_file.empty() || record_launches() ||
         refuse("--launches", g_launches_file, "an emulated device");
}

void write_records() {
  if (g_launches_file.empty()) return;
  std::ofstream file(g_launches_file);
  for (const emulator::KernelRecord& kernel : recorded_launches())
    file << fmt::format("{} {} {} {} {} {}\n", kernel.launches, kernel.threads,
                        kernel.dynamic_shared, kernel.moved, kernel.least, kernel.kernel);
}

}  // namespace
}  // namespace meshloom::testing

int main(int argc, char** argv) {
  // GoogleTest keeps the arguments for the processes of its death tests, this program's among them.
  ::testing::InitGoogleTest(&argc, argv);
  if (!meshloom::testing::take_options(argc, argv) || !meshloom::testing::add_devices() ||
      !meshloom::testing::start_records())
    return 2;
  ::testing::UnitTest::GetInstance()->listeners().Append(new meshloom::testing::DeviceErrors);
  const int failed = RUN_ALL_TESTS();
  meshloom::testing::write_records();
  return failed;
}
