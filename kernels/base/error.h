// SPDX-License-Identifier: Apache-2.0
// Typed exceptions: one base, one class per kind, each carrying a reason and the values seen.
#pragma once

#include <fmt/format.h>

#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace meshloom {

/// The kind says what failure it is. `daemon/control/net/status.cpp` maps each to one gRPC status
/// code.
enum class ErrorKind {
  kInvalidArgument,     ///< the request or value is wrong whatever the state
  kNotFound,            ///< a named thing does not exist
  kAlreadyExists,       ///< a named thing exists already
  kFailedPrecondition,  ///< right request, wrong state
  kAborted,             ///< conflict with another operation, or an older epoch
  kOutOfRange,          ///< offset or revision outside what exists
  kResourceExhausted,   ///< memory, disk, queue or quota
  kUnimplemented,       ///< a clear refusal of what is not offered
  kDataLoss,            ///< stored bytes fail their digest
  kIo,                  ///< the operating system refused a read or write
  kComm,                ///< a collective or peer failed
  kDeadlineExceeded,    ///< a wait passed its deadline
  kCancelled,           ///< stopped on request
  kUnavailable,         ///< try again later
  kNumeric,             ///< NaN or infinity where a number was needed
  kInternal,            ///< a broken invariant: a defect of Meshloom
};

/// Error is the base of everything Meshloom throws. `reason` is UPPER_SNAKE (at most 63 characters)
/// and stable; `metadata` holds every dynamic value of the message, for programs.
class Error : public std::runtime_error {
 public:
  using Metadata = std::map<std::string, std::string>;

  Error(ErrorKind kind, std::string reason, const std::string& message, Metadata metadata = {})
      : std::runtime_error(message),
        kind_(kind),
        reason_(std::move(reason)),
        metadata_(std::move(metadata)) {}

  ErrorKind kind() const { return kind_; }
  const std::string& reason() const { return reason_; }
  const Metadata& metadata() const { return metadata_; }

 private:
  ErrorKind kind_;
  std::string reason_;
  Metadata metadata_;
};

/// There is one class per kind, so that callers can catch what they can handle.
template <ErrorKind Kind>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message, std::string reason = default_reason(),
                   Metadata metadata = {})
      : Error(Kind, std::move(reason), message, std::move(metadata)) {}

 private:
  static std::string default_reason();
};

using InvalidArgument = ErrorOf<ErrorKind::kInvalidArgument>;
using NotFound = ErrorOf<ErrorKind::kNotFound>;
using AlreadyExists = ErrorOf<ErrorKind::kAlreadyExists>;
using FailedPrecondition = ErrorOf<ErrorKind::kFailedPrecondition>;
using Aborted = ErrorOf<ErrorKind::kAborted>;
using OutOfRange = ErrorOf<ErrorKind::kOutOfRange>;
using ResourceExhausted = ErrorOf<ErrorKind::kResourceExhausted>;
using Unimplemented = ErrorOf<ErrorKind::kUnimplemented>;
using DataLoss = ErrorOf<ErrorKind::kDataLoss>;
using IoError = ErrorOf<ErrorKind::kIo>;
using CommError = ErrorOf<ErrorKind::kComm>;
using DeadlineExceeded = ErrorOf<ErrorKind::kDeadlineExceeded>;
using Cancelled = ErrorOf<ErrorKind::kCancelled>;
using Unavailable = ErrorOf<ErrorKind::kUnavailable>;
using NumericError = ErrorOf<ErrorKind::kNumeric>;
using InternalError = ErrorOf<ErrorKind::kInternal>;

/// Returns "INVALID_ARGUMENT", "NOT_FOUND", ...
const char* error_kind_name(ErrorKind kind);

template <ErrorKind Kind>
std::string ErrorOf<Kind>::default_reason() {
  return error_kind_name(Kind);
}

/// Throws InvalidArgument with the formatted text unless `condition` holds. The arguments are
/// formatted only on failure.
template <typename... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    throw InvalidArgument(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws InternalError: for invariants that no input can break.
template <typename... Args>
void check_internal(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    throw InternalError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace meshloom
