// SPDX-License-Identifier: Apache-2.0
// FailureChannel over MPI: a message to every rank, for which each keeps a receive posted.
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>

#include "daemon/comm/failure/failure_channel.h"
#include "daemon/comm/transport/mpi_leftovers.h"

namespace meshloom::comm {

/// Makes a failure channel on duplicates of `communicator`; every member calls it. `timeout` is for
/// each wait for all ranks. Ends before MPI does.
std::unique_ptr<FailureChannel> make_mpi_failure_channel(MPI_Comm communicator,
                                                         std::shared_ptr<MpiLeftovers> leftovers,
                                                         std::chrono::milliseconds timeout);

}  // namespace meshloom::comm
