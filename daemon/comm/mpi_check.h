// SPDX-License-Identifier: Apache-2.0
// check_mpi: what MPI says of a call, as an exception.
#pragma once

#include <mpi.h>

#include <string>

#include "kernels/base/error.h"

namespace meshloom::comm {

/// Throws CommError naming the call and MPI's text unless `code` is MPI_SUCCESS.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(
      fmt::format("{} failed: {}", call, std::string(text, static_cast<std::size_t>(length))),
      "MPI_ERROR", {{"call", call}, {"code", std::to_string(code)}});
}

}  // namespace meshloom::comm
