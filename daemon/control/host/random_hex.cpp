// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/random_hex.h"

#include <sys/random.h>

#include <cstdint>

#include "kernels/base/error.h"

namespace meshloom::control {

std::string random_hex() {
  std::uint64_t bits[2] = {};
  check_internal(::getrandom(bits, sizeof bits, 0) == sizeof bits,
                 "no random bits from the kernel");
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

}  // namespace meshloom::control
