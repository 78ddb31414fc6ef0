// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/call_metadata.h"

#include <algorithm>

#include "daemon/base/utf8.h"
#include "daemon/control/net/listen_address.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

std::string metadata_of(const grpc::ServerContextBase& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

std::string client_name(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("meshloom-client");
  if (found == metadata.end()) return "address:" + client_of_peer(context.peer());
  std::string name(found->second.data(), found->second.size());
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
