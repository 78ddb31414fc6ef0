// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/launch_card.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cstdint>

#include "kernels/base/error.h"

namespace meshloom::control {

std::string to_bytes(const LaunchCard& card) {
  return card.address + '\0' + card.secret + '\0' + card.failure;
}

LaunchCard launch_card_from(const std::string& bytes) {
  const auto first = bytes.find('\0');
  const auto second = first == std::string::npos ? first : bytes.find('\0', first + 1);
  check_internal(second != std::string::npos, "rank 0 sent a launch card of {} bytes",
                 bytes.size());
  return {bytes.substr(0, first), bytes.substr(first + 1, second - first - 1),
          bytes.substr(second + 1)};
}

std::string make_secret() {
  std::uint64_t bits[2] = {};
  check_internal(::getrandom(bits, sizeof bits, 0) == sizeof bits,
                 "no random bits from the kernel");
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

}  // namespace meshloom::control
