// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/unread_requests.h"

#include <string>

#include "daemon/control/net/status.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

using grpc::experimental::InterceptionHookPoints;

/// Whether gRPC alone has made the status: what handlers end with has details, and a text.
bool is_of_an_unread_request(const grpc::Status& status) {
  if (!status.error_details().empty()) return false;
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) return status.error_message().empty();
  return status.error_code() == grpc::StatusCode::INTERNAL &&
         (status.error_message().empty() || status.error_message() == "No payload");
}

class UnreadRequest final : public grpc::experimental::Interceptor {
 public:
  explicit UnreadRequest(const char* method) : method_(method) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS) &&
        is_of_an_unread_request(batch->GetSendStatus()))
      batch->ModifySendStatus(to_status(to_details(InvalidArgument(
          fmt::format(
              "the request could not be read as one of {}: its bytes are no message of that "
              "type, a text in it is not UTF-8, or messages are nested too deep",
              method_),
          "REQUEST_UNREADABLE", {{"method", method_}}))));
    batch->Proceed();
  }

 private:
  const char* const method_;
};

}  // namespace

grpc::experimental::Interceptor* UnreadRequests::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* call) {
  return new UnreadRequest(call->method());
}

}  // namespace meshloom::control
