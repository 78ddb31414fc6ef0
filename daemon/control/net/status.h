// SPDX-License-Identifier: Apache-2.0
// The one place where Meshloom's errors become gRPC statuses, stored error details, and errors
// again.
#pragma once

#include <grpcpp/support/status.h>

#include <exception>

#include "kernels/base/error.h"
#include "v1/error.pb.h"

namespace meshloom::control {

/// Anything that was thrown; what is not an Error becomes INTERNAL.
v1::ErrorDetails to_details(const std::exception_ptr& error);
v1::ErrorDetails to_details(const Error& error);

/// A status whose trailer holds the details as google.rpc.Status with ErrorInfo, and BadRequest and
/// RetryInfo if they apply.
grpc::Status to_status(const v1::ErrorDetails& details);

/// For a caller that does not prove who it is. Nothing throws it, so it is no kind of Error.
grpc::Status unauthenticated(const std::string& message, const std::string& reason);

/// The error that the details were made from, with its kind.
Error to_error(const v1::ErrorDetails& details);

/// Runs a handler; what it throws becomes the status. Unexpected exceptions are logged with the
/// method's name.
template <typename Handler>
grpc::Status guarded(const char* method, Handler&& handler);

namespace detail {
grpc::Status status_of_current_exception(const char* method);
}

template <typename Handler>
grpc::Status guarded(const char* method, Handler&& handler) {
  try {
    handler();
    return grpc::Status::OK;
  } catch (...) {
    return detail::status_of_current_exception(method);
  }
}

}  // namespace meshloom::control
