// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/status.h"

#include <array>

#include "daemon/base/as_error.h"
#include "daemon/base/utf8.h"
#include "daemon/control/access/access_error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr const char* kDomain = "meshloom";
// Bytes; trailers share 8 KiB of metadata.
constexpr std::size_t kLongestText = 3000;
constexpr std::size_t kLongestViolation = 1000;
constexpr std::size_t kLongestValue = 512;

struct KindRow {
  ErrorKind kind;
  grpc::StatusCode code;
};

constexpr std::array kKinds{
    KindRow{ErrorKind::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
    KindRow{ErrorKind::kNotFound, grpc::StatusCode::NOT_FOUND},
    KindRow{ErrorKind::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS},
    KindRow{ErrorKind::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION},
    KindRow{ErrorKind::kAborted, grpc::StatusCode::ABORTED},
    KindRow{ErrorKind::kOutOfRange, grpc::StatusCode::OUT_OF_RANGE},
    KindRow{ErrorKind::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
    KindRow{ErrorKind::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED},
    KindRow{ErrorKind::kDataLoss, grpc::StatusCode::DATA_LOSS},
    KindRow{ErrorKind::kIo, grpc::StatusCode::INTERNAL},
    KindRow{ErrorKind::kComm, grpc::StatusCode::UNAVAILABLE},
    KindRow{ErrorKind::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
    KindRow{ErrorKind::kCancelled, grpc::StatusCode::CANCELLED},
    KindRow{ErrorKind::kUnavailable, grpc::StatusCode::UNAVAILABLE},
    KindRow{ErrorKind::kNumeric, grpc::StatusCode::FAILED_PRECONDITION},
    KindRow{ErrorKind::kInternal, grpc::StatusCode::INTERNAL},
};

grpc::StatusCode code_of(ErrorKind kind) {
  for (const auto& row : kKinds)
    if (row.kind == kind) return row.code;
  return grpc::StatusCode::INTERNAL;
}

ErrorKind kind_of(const v1::ErrorDetails& details) {
  for (const auto& row : kKinds)
    if (details.kind() == error_kind_name(row.kind)) return row.kind;
  return ErrorKind::kInternal;
}

template <typename Message>
void add_detail(const char* type, const Message& message, v1::RpcStatus* status) {
  auto* any = status->add_details();
  any->set_type_url(std::string("type.googleapis.com/google.rpc.") + type);
  any->set_value(message.SerializeAsString());
}

}  // namespace

const char* code_text(grpc::StatusCode code) {
  constexpr std::array kNames{"OK",
                              "CANCELLED",
                              "UNKNOWN",
                              "INVALID_ARGUMENT",
                              "DEADLINE_EXCEEDED",
                              "NOT_FOUND",
                              "ALREADY_EXISTS",
                              "PERMISSION_DENIED",
                              "RESOURCE_EXHAUSTED",
                              "FAILED_PRECONDITION",
                              "ABORTED",
                              "OUT_OF_RANGE",
                              "UNIMPLEMENTED",
                              "INTERNAL",
                              "UNAVAILABLE",
                              "DATA_LOSS",
                              "UNAUTHENTICATED"};
  const auto number = static_cast<std::size_t>(code);
  return number < kNames.size() ? kNames[number] : "UNKNOWN";
}

v1::ErrorDetails to_details(const Error& error) {
  v1::ErrorDetails details;
  details.set_code(code_of(error.kind()));
  details.set_kind(error_kind_name(error.kind()));
  details.set_message(base::printable_text(error.what(), kLongestText));
  details.mutable_info()->set_reason(error.reason());
  details.mutable_info()->set_domain(kDomain);
  for (const auto& [key, value] : error.metadata())
    (*details.mutable_info()->mutable_metadata())[key] = base::printable_text(value, kLongestValue);
  const auto field = error.metadata().find("field");
  if (field != error.metadata().end()) {
    auto* violation = details.add_violations();
    violation->set_field(base::printable_text(field->second, kLongestValue));
    violation->set_description(details.message());
  }
  return details;
}

v1::ErrorDetails to_details(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const AccessError& refused) {
    v1::ErrorDetails details = to_details(static_cast<const Error&>(refused));
    details.set_code(refused.is_unauthenticated() ? grpc::StatusCode::UNAUTHENTICATED
                                                  : grpc::StatusCode::PERMISSION_DENIED);
    return details;
  } catch (...) {
    return to_details(base::as_error(error));
  }
}

grpc::Status to_status(const v1::ErrorDetails& details) {
  v1::RpcStatus status;
  status.set_code(details.code());
  status.set_message(details.message());
  add_detail("ErrorInfo", details.info(), &status);
  if (details.violations_size() > 0) {
    v1::BadRequest bad;
    *bad.mutable_field_violations() = details.violations();
    for (auto& violation : *bad.mutable_field_violations())
      violation.set_description(base::printable_text(violation.description(), kLongestViolation));
    add_detail("BadRequest", bad, &status);
  }
  if (details.code() == grpc::StatusCode::UNAVAILABLE) {
    v1::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(1);
    add_detail("RetryInfo", retry, &status);
  }
  return {static_cast<grpc::StatusCode>(details.code()), details.message(),
          status.SerializeAsString()};
}

grpc::Status unauthenticated(const std::string& message, const std::string& reason) {
  v1::ErrorDetails details;
  details.set_code(grpc::StatusCode::UNAUTHENTICATED);
  details.set_message(message);
  details.mutable_info()->set_reason(reason);
  details.mutable_info()->set_domain(kDomain);
  return to_status(details);
}

Error to_error(const v1::ErrorDetails& details) {
  Error::Metadata metadata(details.info().metadata().begin(), details.info().metadata().end());
  return Error(kind_of(details), details.info().reason(), details.message(), std::move(metadata));
}

namespace detail {

grpc::Status status_of_current_exception(const char* method) {
  const auto details = to_details(std::current_exception());
  if (details.code() == grpc::StatusCode::INTERNAL)
    spdlog::error("{} failed: {}", method, details.message());
  return to_status(details);
}

}  // namespace detail

void check_request_size(const google::protobuf::Message& request) {
  const std::size_t bytes = request.ByteSizeLong();
  if (bytes <= kRequestBytes) return;
  throw ResourceExhausted(
      fmt::format("the request has {} bytes, at most {} are taken", bytes, kRequestBytes),
      "REQUEST_TOO_LARGE", {{"bytes", std::to_string(bytes)}});
}

}  // namespace meshloom::control
