// SPDX-License-Identifier: Apache-2.0
// What anything that was thrown is as an Error.
#pragma once

#include <exception>

#include "kernels/base/error.h"

namespace meshloom::base {

/// Returns the error itself, with its kind, reason and metadata. A filesystem_error is what
/// throw_input_error makes of it, bad_alloc ResourceExhausted (OUT_OF_MEMORY), a thread that could
/// not be started ResourceExhausted (NO_THREAD), anything else InternalError with its text.
Error as_error(const std::exception_ptr& thrown);

}  // namespace meshloom::base
