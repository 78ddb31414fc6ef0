// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_token.h"

#include <span>

#include "daemon/base/sha256.h"

namespace meshloom::control {

std::string token_digest(const std::string& token) {
  base::Sha256 digest;
  digest.update(std::as_bytes(std::span(token)));
  return digest.hex();
}

}  // namespace meshloom::control
