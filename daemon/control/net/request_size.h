// SPDX-License-Identifier: Apache-2.0
// A limit on requests that carry no samples, below the server's own.
#pragma once

#include <google/protobuf/message.h>

namespace meshloom::control {

/// Of a request that is no verb of a run.
inline constexpr std::size_t kRequestBytes = 4 << 20;

/// Throws ResourceExhausted (REQUEST_TOO_LARGE).
void check_request_size(const google::protobuf::Message& request);

}  // namespace meshloom::control
