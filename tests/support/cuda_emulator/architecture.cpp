// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/architecture.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace meshloom::emulator {
namespace {

[[noreturn]] void refuse(const char* variable, std::string_view value, const char* expected) {
  fmt::print(stderr, "emulated device: {} is \"{}\", expected {}\n", variable, value, expected);
  std::exit(2);
}

int read_number(const char* variable, int otherwise, int least, int most, const char* expected) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  const std::string_view value = text;
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < least || number > most)
    refuse(variable, value, expected);
  return number;
}

std::size_t shared_bytes_of(int sm) {
  switch (sm) {
    case 75: return std::size_t{64} << 10;
    case 80: return std::size_t{163} << 10;
    case 90:
    case 100: return std::size_t{227} << 10;
    default: refuse("MESHLOOM_EMULATED_SM", std::to_string(sm), "75, 80, 90 or 100");
  }
}

Architecture read_architecture() {
  Architecture read;
  read.devices = read_number("MESHLOOM_EMULATED_DEVICES", read.devices, 0, 16, "0 to 16");
  read.sm = read_number("MESHLOOM_EMULATED_SM", read.sm, 0, 1000, "75, 80, 90 or 100");
  read.driver = read_number("MESHLOOM_EMULATED_DRIVER", read.driver, 1000, 99000,
                            "1000 * major + 10 * minor");
  read.shared_bytes = shared_bytes_of(read.sm);
  return read;
}

}  // namespace

const Architecture& architecture() {
  static const Architecture read = read_architecture();
  return read;
}

}  // namespace meshloom::emulator
