// SPDX-License-Identifier: Apache-2.0
// Bootstrap over MPI: nonblocking collectives, polled with a deadline.
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>

#include "daemon/comm/bootstrap/bootstrap.h"

namespace meshloom::comm {

/// Makes a bootstrap on a duplicate of `communicator`; every member calls it. Waits throw
/// DeadlineExceeded naming the step.
std::unique_ptr<Bootstrap> make_mpi_bootstrap(MPI_Comm communicator,
                                              std::chrono::milliseconds timeout);

}  // namespace meshloom::comm
