// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/secret.h"

#include <sys/random.h>

#include <cstdint>

#include "kernels/base/error.h"

namespace meshloom::control {

std::string random_secret() {
  std::uint64_t bits[2] = {};
  check_internal(::getrandom(bits, sizeof bits, 0) == sizeof bits,
                 "no random bits from the kernel");
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

bool same_secret(std::string_view given, std::string_view expected) {
  if (given.size() != expected.size()) return false;
  // Volatile, so that no compiler makes the loop end at the first difference.
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < given.size(); ++i)
    difference = difference | static_cast<unsigned char>(given[i] ^ expected[i]);
  return difference == 0;
}

}  // namespace meshloom::control
