// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/caller.h"

#include <algorithm>

#include "daemon/base/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

std::string Caller::name() const {
  if (!given_name_) return "address:" + address_;
  const std::string& name = *given_name_;
  constexpr std::size_t kLongest = 63;
  const bool valid = !name.empty() && name.size() <= kLongest && is_letter_or_digit(name[0]) &&
                     std::all_of(name.begin(), name.end(), [](char c) {
                       return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-';
                     });
  if (!valid)
    throw InvalidArgument(
        fmt::format(
            "meshloom-client \"{}\" is not valid, expected [A-Za-z0-9][A-Za-z0-9._-]{{0,62}}",
            base::printable_text(name, 80, false)),
        "CLIENT_INVALID");
  return name;
}

}  // namespace meshloom::control
