// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/request_size.h"

#include "kernels/base/error.h"

namespace meshloom::control {

void check_request_size(const google::protobuf::Message& request) {
  const std::size_t bytes = request.ByteSizeLong();
  if (bytes <= kRequestBytes) return;
  throw ResourceExhausted(
      fmt::format("the request has {} bytes, at most {} are taken", bytes, kRequestBytes),
      "REQUEST_TOO_LARGE", {{"bytes", std::to_string(bytes)}});
}

}  // namespace meshloom::control
