// SPDX-License-Identifier: Apache-2.0
// Throws an error whose kind is known as it runs alone.
#pragma once

#include <string>

#include "kernels/base/error.h"

namespace meshloom::base {

/// Throws the class of the kind: ErrorOf, or a template of classes like it.
template <template <ErrorKind> typename Class>
[[noreturn]] void throw_kind(ErrorKind kind, const std::string& text, const std::string& reason,
                             const Error::Metadata& metadata) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      throw Class<ErrorKind::kInvalidArgument>(text, reason, metadata);
    case ErrorKind::kNotFound: throw Class<ErrorKind::kNotFound>(text, reason, metadata);
    case ErrorKind::kAlreadyExists: throw Class<ErrorKind::kAlreadyExists>(text, reason, metadata);
    case ErrorKind::kFailedPrecondition:
      throw Class<ErrorKind::kFailedPrecondition>(text, reason, metadata);
    case ErrorKind::kAborted: throw Class<ErrorKind::kAborted>(text, reason, metadata);
    case ErrorKind::kOutOfRange: throw Class<ErrorKind::kOutOfRange>(text, reason, metadata);
    case ErrorKind::kResourceExhausted:
      throw Class<ErrorKind::kResourceExhausted>(text, reason, metadata);
    case ErrorKind::kUnimplemented: throw Class<ErrorKind::kUnimplemented>(text, reason, metadata);
    case ErrorKind::kDataLoss: throw Class<ErrorKind::kDataLoss>(text, reason, metadata);
    case ErrorKind::kIo: throw Class<ErrorKind::kIo>(text, reason, metadata);
    case ErrorKind::kComm: throw Class<ErrorKind::kComm>(text, reason, metadata);
    case ErrorKind::kDeadlineExceeded:
      throw Class<ErrorKind::kDeadlineExceeded>(text, reason, metadata);
    case ErrorKind::kCancelled: throw Class<ErrorKind::kCancelled>(text, reason, metadata);
    case ErrorKind::kUnavailable: throw Class<ErrorKind::kUnavailable>(text, reason, metadata);
    case ErrorKind::kNumeric: throw Class<ErrorKind::kNumeric>(text, reason, metadata);
    case ErrorKind::kInternal: throw Class<ErrorKind::kInternal>(text, reason, metadata);
  }
  throw Class<ErrorKind::kInternal>(text, reason, metadata);
}

}  // namespace meshloom::base
