// SPDX-License-Identifier: Apache-2.0
// A limit on requests that carry no samples, below the server's own.
#pragma once

#include <google/protobuf/message.h>

#include "daemon/control/net/status.h"

namespace meshloom::control {

/// Of a request that is no verb of a run.
inline constexpr std::size_t kRequestBytes = 4 << 20;

/// Throws ResourceExhausted (REQUEST_TOO_LARGE).
void check_request_size(const google::protobuf::Message& request);

/// As guarded() for a handler of a request that is no verb of a run.
template <typename Handler>
grpc::Status guarded(const char* method, const google::protobuf::Message& request,
                     Handler&& handler) {
  return guarded(method, [&] {
    check_request_size(request);
    handler();
  });
}

}  // namespace meshloom::control
