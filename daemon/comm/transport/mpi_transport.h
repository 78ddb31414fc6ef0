// SPDX-License-Identifier: Apache-2.0
// Transport over MPI: nonblocking sends and receives on a communicator of its own.
#pragma once

#include <mpi.h>

#include <memory>

#include "daemon/comm/transport/mpi_leftovers.h"
#include "daemon/comm/transport/transport.h"

namespace meshloom::comm {

/// Duplicates `communicator`; every member calls it. What is cancelled goes to `leftovers`, which
/// all transports of a rank share.
std::unique_ptr<Transport> make_mpi_transport(MPI_Comm communicator,
                                              std::shared_ptr<MpiLeftovers> leftovers);

}  // namespace meshloom::comm
