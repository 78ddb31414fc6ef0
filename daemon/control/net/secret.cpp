// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/secret.h"

#include "daemon/control/host/random_hex.h"

namespace meshloom::control {

std::string random_secret() { return random_hex(); }

bool same_secret(std::string_view given, std::string_view expected) {
  if (given.size() != expected.size()) return false;
  // Volatile, so that no compiler makes the loop end at the first difference.
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < given.size(); ++i)
    difference = difference | static_cast<unsigned char>(given[i] ^ expected[i]);
  return difference == 0;
}

}  // namespace meshloom::control
