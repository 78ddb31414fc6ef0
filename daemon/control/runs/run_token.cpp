// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_token.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <array>
#include <span>

#include "daemon/base/sha256.h"
#include "kernels/base/error.h"

namespace meshloom::control {
std::string make_token() {
  std::array<unsigned char, 16> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    throw InternalError("libcrypto gives no random bytes");
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

std::string token_digest(const std::string& token) {
  base::Sha256 digest;
  digest.update(std::as_bytes(std::span(token)));
  return digest.hex();
}

bool equal_in_constant_time(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace meshloom::control
