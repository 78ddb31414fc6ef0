// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/field_error.h"

namespace meshloom::base {

void throw_with_field(const Error& error, const std::string& field) {
  Error::Metadata metadata = error.metadata();
  metadata["field"] = field;
  const std::string text = fmt::format("{}: {}", field, error.what());
  const std::string& reason = error.reason();
  switch (error.kind()) {
    case ErrorKind::kInvalidArgument: throw InvalidArgument(text, reason, metadata);
    case ErrorKind::kNotFound: throw NotFound(text, reason, metadata);
    case ErrorKind::kAlreadyExists: throw AlreadyExists(text, reason, metadata);
    case ErrorKind::kFailedPrecondition: throw FailedPrecondition(text, reason, metadata);
    case ErrorKind::kAborted: throw Aborted(text, reason, metadata);
    case ErrorKind::kOutOfRange: throw OutOfRange(text, reason, metadata);
    case ErrorKind::kResourceExhausted: throw ResourceExhausted(text, reason, metadata);
    case ErrorKind::kUnimplemented: throw Unimplemented(text, reason, metadata);
    case ErrorKind::kDataLoss: throw DataLoss(text, reason, metadata);
    case ErrorKind::kIo: throw IoError(text, reason, metadata);
    case ErrorKind::kComm: throw CommError(text, reason, metadata);
    case ErrorKind::kDeadlineExceeded: throw DeadlineExceeded(text, reason, metadata);
    case ErrorKind::kCancelled: throw Cancelled(text, reason, metadata);
    case ErrorKind::kUnavailable: throw Unavailable(text, reason, metadata);
    case ErrorKind::kNumeric: throw NumericError(text, reason, metadata);
    case ErrorKind::kInternal: throw InternalError(text, reason, metadata);
  }
  throw InternalError(text, reason, metadata);
}

}  // namespace meshloom::base
