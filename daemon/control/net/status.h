// SPDX-License-Identifier: Apache-2.0
// The one place where Meshloom's errors become gRPC statuses, stored error details, and errors
// again, and where the size of requests is checked.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/status.h>

#include <exception>

#include "kernels/base/error.h"
#include "v1/error.pb.h"

namespace meshloom::control {

/// "OK", "NOT_FOUND": as gRPC writes it.
const char* code_text(grpc::StatusCode code);

/// Anything that was thrown; what is not an Error becomes INTERNAL.
v1::ErrorDetails to_details(const std::exception_ptr& error);
v1::ErrorDetails to_details(const Error& error);

/// A status whose trailer holds the details as google.rpc.Status with ErrorInfo, and BadRequest and
/// RetryInfo if they apply.
grpc::Status to_status(const v1::ErrorDetails& details);

/// Refuses a caller of the ranks' port that does not prove to be one; clients are refused by
/// AccessError.
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

/// The most bytes of a request that is no verb of a run, below the server's own limit.
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
