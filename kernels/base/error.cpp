// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/error.h"

namespace meshloom {

const char* error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument: return "INVALID_ARGUMENT";
    case ErrorKind::kNotFound: return "NOT_FOUND";
    case ErrorKind::kAlreadyExists: return "ALREADY_EXISTS";
    case ErrorKind::kFailedPrecondition: return "FAILED_PRECONDITION";
    case ErrorKind::kAborted: return "ABORTED";
    case ErrorKind::kOutOfRange: return "OUT_OF_RANGE";
    case ErrorKind::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case ErrorKind::kUnimplemented: return "UNIMPLEMENTED";
    case ErrorKind::kDataLoss: return "DATA_LOSS";
    case ErrorKind::kIo: return "IO_ERROR";
    case ErrorKind::kComm: return "COMM_ERROR";
    case ErrorKind::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case ErrorKind::kCancelled: return "CANCELLED";
    case ErrorKind::kUnavailable: return "UNAVAILABLE";
    case ErrorKind::kNumeric: return "NUMERIC_ERROR";
    case ErrorKind::kInternal: return "INTERNAL";
  }
  return "INTERNAL";
}

}  // namespace meshloom
