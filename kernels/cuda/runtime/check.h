// SPDX-License-Identifier: Apache-2.0
// What CUDA's runtime says, as our errors. For .cpp files alone.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::kernels::cuda {

using meshloom::check;

/// Throws what `error` says, with what was tried ("copy to host"): ResourceExhausted for out of
/// memory, else InternalError. An error of work that the device was given earlier names the calls
/// of this thread since its last wait (call_log.h); then the process cannot use the device again.
void check(cudaError_t error, const char* what);

/// For a call of a library, `what`, that says it failed: where the stream's earlier work is the
/// cause, throws as `check` does. Does not wait.
void check_late(cudaStream_t stream, const char* what);

/// Calls `body`, where nothing may be thrown: at the end of what owns something of the device. What
/// it throws goes to the log.
template <class Body>
void log_failure(Body&& body) noexcept {
  try {
    body();
  } catch (const std::exception& failure) {
    spdlog::error("{}", failure.what());
  }
}

/// Throws Unimplemented: "<what> is not built yet on cuda".
[[noreturn]] void not_built(const std::string& what);

}  // namespace meshloom::kernels::cuda
