// SPDX-License-Identifier: Apache-2.0
// The main of test programs: GoogleTest's, with the devices that tests can compute on.
//
//   --device cpu|fenced   what test_device() gives
//   --seed N              of the order of work on fenced devices
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "kernels/cpu/cpu_device.h"
#include "tests/support/fenced_device/fenced_device.h"
#include "tests/support/test_device.h"

namespace meshloom::testing {
namespace {

constexpr int kFencedDevices = 16;

/// Lets a test fail whose device met an error that nobody waited for.
class FencedErrors final : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    for (const std::string& error : take_fenced_errors()) ADD_FAILURE() << error;
  }
};

bool choose_seed(std::string_view text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  set_fenced_seed(seed);
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
    if (option != "--device" && option != "--seed") {
      argv[kept++] = argv[i];
      continue;
    }
    const std::string_view value = i + 1 < argc ? argv[++i] : "";
    if (option == "--device" && !choose_test_device(value))
      return refuse(option, value, "cpu or fenced");
    if (option == "--seed" && !choose_seed(value)) return refuse(option, value, "a number");
  }
  argc = kept;
  argv[argc] = nullptr;
  if (test_device() != kCpuDevice) fmt::print("fenced devices: --seed {}\n", fenced_seed());
  return true;
}

}  // namespace
}  // namespace meshloom::testing

int main(int argc, char** argv) {
  meshloom::kernels::cpu::add_cpu_device();
  meshloom::testing::add_fenced_devices(meshloom::testing::kFencedDevices);
  // GoogleTest keeps the arguments for the processes of its death tests, this program's among them.
  ::testing::InitGoogleTest(&argc, argv);
  if (!meshloom::testing::take_options(argc, argv)) return 2;
  ::testing::UnitTest::GetInstance()->listeners().Append(new meshloom::testing::FencedErrors);
  return RUN_ALL_TESTS();
}
