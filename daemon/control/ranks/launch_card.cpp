// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/launch_card.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cstdint>

#include "kernels/base/error.h"

namespace meshloom::control {

std::string to_bytes(const LaunchCard& card) {
  std::string bytes;
  for (const auto* field : {&card.address, &card.beats, &card.secret, &card.failure})
    bytes += *field + '\0';
  return bytes;
}

LaunchCard launch_card_from(const std::string& bytes) {
  LaunchCard card;
  std::size_t at = 0;
  for (auto* field : {&card.address, &card.beats, &card.secret, &card.failure}) {
    const auto end = bytes.find('\0', at);
    check_internal(end != std::string::npos, "rank 0 sent a launch card of {} bytes", bytes.size());
    *field = bytes.substr(at, end - at);
    at = end + 1;
  }
  return card;
}

std::string make_secret() {
  std::uint64_t bits[2] = {};
  check_internal(::getrandom(bits, sizeof bits, 0) == sizeof bits,
                 "no random bits from the kernel");
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

bool same_secret(std::string_view given, std::string_view expected) {
  if (given.size() != expected.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(expected[i]);
  return difference == 0;
}

}  // namespace meshloom::control
