// SPDX-License-Identifier: Apache-2.0
// What the status of a call says of its error.
#pragma once

#include <grpcpp/support/status.h>

#include "v1/error.pb.h"

namespace meshloom::control {

/// Reason and metadata; empty if the status has none.
inline v1::ErrorInfo info_of(const grpc::Status& status) {
  v1::RpcStatus wire;
  v1::ErrorInfo info;
  if (wire.ParseFromString(status.error_details()) && wire.details_size() > 0)
    info.ParseFromString(wire.details(0).value());
  return info;
}

}  // namespace meshloom::control
