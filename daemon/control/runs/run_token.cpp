// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_token.h"

#include <sys/random.h>

#include <array>
#include <span>

#include "daemon/base/sha256.h"
#include "kernels/base/error.h"

namespace meshloom::control {
std::string make_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw InternalError("the system gives no random bytes");
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
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace meshloom::control
